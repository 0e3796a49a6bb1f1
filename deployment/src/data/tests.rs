use super::*;

fn conditions() -> Vec<&'static Condition> {
    let d = data();
    let rules = d.rules.iter().flat_map(|r| r.when.iter().chain(&r.unless));
    let changes = d.changes.iter().flat_map(|c| &c.requests);
    rules.chain(changes).chain(d.clashes.iter().flat_map(|c| &c.when)).collect()
}

#[test]
fn the_tables_fit_their_schema() {
    load().expect("every table parses with no unknown field");
}

#[test]
fn names_are_unique() {
    let d = data();
    let lists: [Vec<String>; 4] = [
        d.switches.iter().map(|s| s.name.clone()).collect(),
        d.changes.iter().map(Change::id).collect(),
        d.rules.iter().map(|r| r.name.clone()).chain(d.clashes.iter().map(|c| c.name.clone())).collect(),
        d.words.iter().map(|w| w.name.clone()).collect(),
    ];
    for names in lists {
        let unique: BTreeSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "{names:?}");
    }
}

#[test]
fn conditions_ask_one_thing_of_a_known_setting() {
    for c in conditions() {
        let switch = data().switch(&c.setting).unwrap_or_else(|| panic!("{} is no setting", c.setting));
        let asked = [!c.values.is_empty(), !c.not.is_empty(), c.above.is_some()].iter().filter(|x| **x).count();
        assert_eq!(asked, 1, "{c:?}");
        assert!(c.above.is_none() || switch.value == ValueKind::Number, "{c:?}");
        for value in c.values.iter().chain(&c.not) {
            assert_eq!(value, &value.to_lowercase(), "values are compared in small letters");
            let fine = switch.value != ValueKind::Bool || matches!(value.as_str(), "true" | "false");
            assert!(fine, "{c:?}");
        }
    }
}

#[test]
fn defaults_are_values_of_their_kind() {
    let archs: BTreeSet<&str> = data().devices.iter().map(|d| d.arch.as_str()).collect();
    for s in &data().switches {
        for value in s.default.iter().chain(s.unset_on.values()) {
            let fine = match s.value {
                ValueKind::Bool => matches!(value.as_str(), "true" | "false"),
                ValueKind::Number => value.parse::<i64>().is_ok() || value == "auto",
                ValueKind::Word => value == &value.to_lowercase(),
            };
            assert!(fine, "{}: {value}", s.name);
        }
        assert!(s.unset_on.keys().all(|arch| archs.contains(arch.as_str())), "{}", s.name);
        assert!(s.unset_on.is_empty() || s.default.is_some(), "{}", s.name);
        // What isn't read has no default.
        assert!(s.read || s.default.is_none(), "{}", s.name);
    }
}

#[test]
fn rules_and_lists_name_patches_of_the_table() {
    let d = data();
    let ids: BTreeSet<String> = d.changes.iter().map(Change::id).collect();
    let names: BTreeSet<&str> = d.changes.iter().map(|c| c.name.as_str()).collect();
    for rule in &d.rules {
        assert!(rule.changes.iter().all(|c| ids.contains(c)), "{}", rule.name);
        assert!(!rule.changes.is_empty() || rule.effect == Effect::Note, "{}", rule.name);
        assert!(!rule.says.is_empty() && !rule.source.is_empty() && !rule.when.is_empty(), "{}", rule.name);
    }
    assert!(d.exclusive.iter().all(|e| e.changes.iter().all(|c| ids.contains(c))));
    assert!(d.planned.iter().all(|p| names.contains(p.as_str())));
    assert!(change_names().iter().all(|name| names.contains(name)), "places name only patches of the table");
    // A patch that nothing can ask for would stay unknown for ever without saying why.
    assert!(d.changes.iter().all(|c| c.in_source || !c.requests.is_empty()));
}

#[test]
fn places_and_clues_can_fit() {
    for place in &data().places {
        assert!(place.file.is_some() || !place.words.is_empty(), "{place:?}");
        assert!(!place.ops.is_empty() && (place.file.is_some() || place.functions.is_empty()), "{place:?}");
    }
    for clue in &data().clues {
        assert!(data().switch(&clue.setting).is_some() && !clue.before.is_empty(), "{clue:?}");
        assert!(clue.value.is_some() == clue.after.is_empty(), "a text behind the value, or the value: {clue:?}");
    }
    let small = |texts: &[String]| texts.iter().all(|t| *t == t.to_lowercase() && !t.trim().is_empty());
    assert!(
        data().words.iter().all(|w| small(&w.forms) && small(&w.except)),
        "the journal is compared in small letters"
    );
    assert!(data().words.iter().all(|w| !w.forms.is_empty() && w.except.iter().all(|e| !e.trim().is_empty())));
}

#[test]
fn names_lead_to_their_settings() {
    let name = |s: Option<&Switch>| s.map(|s| s.name.clone());
    assert_eq!(name(data().variable("SGLANG_MMA_FLASHMLA")).as_deref(), Some("MMA_FLASHMLA"));
    assert_eq!(name(data().variable("MMA_FLASHMLA")).as_deref(), Some("MMA_FLASHMLA"));
    assert_eq!(name(data().variable("COMMA_FLASHMLA")), None, "the ending begins after _");
    assert_eq!(name(data().flag("--tensor-parallel-size")).as_deref(), Some("tp_size"));
    assert_eq!(name(data().flag("--moe-runner-backend")).as_deref(), Some("moe_runner_backend"));
    assert_eq!(name(data().flag("--sglang-dsv4-fp4-experts")), None, "a variable is no flag");
}
