//! What follows from the facts: which patches are asked for, which of them can be in effect, what contradicts what.

use std::collections::BTreeSet;

use crate::data::{Change, Effect, Rule, data};
use crate::effective::{Effective, How};
use crate::evidence::{Evidence, Kind};
use crate::facts::{Fact, Facts};
use crate::report::{
    Claim, Conflict, Contradiction, Note, PatchRow, Report, Requested, Seen, Setting, SourceSeen, State, Verdict,
    WatchedFile,
};

/// Judges the facts.
pub(crate) fn judge(mut facts: Facts, contracts: &[&str], conflicts: &[(&str, &str)]) -> Report {
    for rule in data().rules.iter().filter(|r| r.changes.is_empty()) {
        if let (Some(true), because) = all(&facts, rule) {
            let text = format!("{}: {}", rule.name, rule.says);
            facts.note(&text, because.into_iter().next());
        }
    }
    let mut patches: Vec<PatchRow> = data().changes.iter().map(|c| row(&facts, c, contracts)).collect();
    let contradictions = contradictions(&facts, &mut patches, conflicts);
    let requested_inert = patches.iter().any(|r| r.requested == Requested::Yes && r.state == State::Inert);
    let verdict = if requested_inert || !contradictions.is_empty() {
        Verdict::Fail
    } else if is_other_process(&facts) || patches.iter().all(|r| r.state == State::Unknown) {
        Verdict::Unproven
    } else {
        Verdict::Pass
    };
    Report {
        verdict,
        sources: facts.sources.iter().map(|(kind, file)| SourceSeen { kind: *kind, file: file.clone() }).collect(),
        settings: settings(&facts),
        patches,
        contradictions,
        conflicts: disagreements(&facts),
        files: files(&facts),
        not_in_tables: strangers(&facts),
        journal: facts.words.clone(),
        notes: facts.notes.clone(),
        diff: facts.diff.clone(),
    }
}

/// True when a process was looked at and nothing shows that it is a server: what it has not set is no setting.
fn is_other_process(facts: &Facts) -> bool {
    facts.sources.iter().any(|(kind, _)| *kind == Kind::Process) && facts.about("engine").is_empty()
}

/// Whether a rule holds, with what speaks for it; `None` when a setting that decides it isn't known.
fn all(facts: &Facts, rule: &Rule) -> (Option<bool>, Vec<Evidence>) {
    let lifted = rule.unless.iter().any(|c| facts.holds(c).0 == Some(true));
    let answers: Vec<(Option<bool>, Effective)> = rule.when.iter().map(|c| facts.holds(c)).collect();
    let open = answers.iter().any(|(a, _)| a.is_none());
    if lifted || (rule.seen_only && open) || answers.iter().any(|(a, _)| *a == Some(false)) {
        return (Some(false), Vec::new());
    }
    let evidence = answers.iter().flat_map(|(_, e)| e.evidence.clone()).collect();
    ((!open).then_some(true), evidence)
}

fn row(facts: &Facts, change: &Change, contracts: &[&str]) -> PatchRow {
    let id = change.id();
    let mut why = Vec::new();
    let requested = requested(facts, change, &mut why);
    let rules = || data().rules.iter().filter(|r| r.changes.contains(&id));
    let mut inert = false;
    let mut open = requested == Requested::Unknown;
    for rule in rules() {
        let claim =
            |says: String, evidence| Claim { rule: rule.name.clone(), says, source: rule.source.clone(), evidence };
        match all(facts, rule) {
            (Some(true), evidence) => {
                inert |= rule.effect == Effect::Inert;
                open |= rule.effect == Effect::Unknown;
                why.push(claim(rule.says.clone(), evidence));
            }
            (None, _) if rule.effect != Effect::Note => {
                // What isn't known could make the patch inert.
                if matches!(requested, Requested::Yes | Requested::ByDefault) {
                    why.push(claim(format!("undecided: {}", missing(facts, rule)), Vec::new()));
                }
                open = true;
            }
            _ => {}
        }
    }
    let state = if inert {
        State::Inert
    } else if requested == Requested::No {
        State::Off
    } else if open {
        State::Unknown
    } else {
        State::CanBeActive
    };
    let contract = contracts.contains(&change.name.as_str());
    PatchRow { patch: id, contract, requested, state, why }
}

/// What has to be known to decide a rule.
fn missing(facts: &Facts, rule: &Rule) -> String {
    let open = rule.when.iter().map(|c| (c, facts.holds(c))).filter(|(_, (answer, _))| answer.is_none());
    let says = open.map(|(c, (_, e))| if e.why.is_empty() { left_to_engine(&c.setting) } else { e.why });
    says.collect::<Vec<_>>().join("; ")
}

fn left_to_engine(setting: &str) -> String {
    format!("{setting} is left to the engine: what it chose is not seen")
}

fn requested(facts: &Facts, change: &Change, why: &mut Vec<Claim>) -> Requested {
    let claim =
        |says: String, evidence| Claim { rule: "requests".into(), says, source: "changes.toml".into(), evidence };
    let answers: Vec<_> = change.requests.iter().map(|c| (&c.setting, facts.holds(c))).collect();
    // A switch that is seen to be off decides over a source that has it.
    let switched_off = answers.iter().any(|(_, (answer, e))| *answer == Some(false) && e.how == How::Seen);
    if change.option.is_none()
        && (change.in_source || !switched_off)
        && let Some(evidence) = facts.diff.as_ref().map(|d| d.requests(&change.name)).filter(|e| !e.is_empty())
    {
        why.push(claim("asked for by the source, if this is the source that is loaded".into(), evidence));
        return Requested::Yes;
    }
    let asks = |how| answers.iter().find(|(_, (answer, e))| *answer == Some(true) && e.how == how);
    if let Some((setting, (_, e))) = asks(How::Seen) {
        why.push(claim(format!("{setting} asks for it"), e.evidence.clone()));
        return Requested::Yes;
    }
    if let Some((_, (_, e))) = asks(How::Default) {
        why.push(claim(e.why.clone(), e.evidence.clone()));
        return Requested::ByDefault;
    }
    let undecided = answers.iter().find(|(_, (answer, _))| answer.is_none());
    if let Some((setting, (_, e))) = undecided {
        let says = if e.why.is_empty() { left_to_engine(setting) } else { e.why.clone() };
        why.push(claim(says, e.evidence.clone()));
        return Requested::Unknown;
    }
    if change.in_source {
        why.push(claim("it can be in the source, which no setting shows: see --from-diff".into(), Vec::new()));
        return Requested::Unknown;
    }
    for (setting, (_, e)) in &answers {
        let says = if e.why.is_empty() { format!("{setting} doesn't ask for it") } else { e.why.clone() };
        why.push(claim(says, e.evidence.clone()));
    }
    Requested::No
}

/// Settings that can't hold together, and patches that replace the same kernel.
fn contradictions(facts: &Facts, patches: &mut [PatchRow], registry: &[(&str, &str)]) -> Vec<Contradiction> {
    let mut out = Vec::new();
    for clash in &data().clashes {
        let answers: Vec<_> = clash.when.iter().map(|c| facts.holds(c)).collect();
        if answers.iter().all(|(answer, e)| *answer == Some(true) && e.how == How::Seen) {
            out.push(Contradiction {
                rule: clash.name.clone(),
                between: clash.when.iter().map(|c| c.setting.clone()).collect(),
                says: clash.says.clone(),
                source: clash.source.clone(),
                evidence: answers.into_iter().flat_map(|(_, e)| e.evidence).collect(),
            });
        }
    }
    let mut pairs: BTreeSet<(String, String, String)> = BTreeSet::new();
    let mut add = |a: &str, b: &str, rule: &str| {
        let (a, b) = if a < b { (a, b) } else { (b, a) };
        if !pairs.iter().any(|(x, y, _)| x == a && y == b) {
            pairs.insert((a.to_owned(), b.to_owned(), rule.to_owned()));
        }
    };
    for set in &data().exclusive {
        for (i, a) in set.changes.iter().enumerate() {
            set.changes[i + 1..].iter().for_each(|b| add(a, b, &set.name));
        }
    }
    registry.iter().for_each(|(a, b)| add(a, b, "registry"));
    for (a, b, rule) in pairs {
        let row = |name: &str| {
            patches.iter().find(|r| r.patch == name && matches!(r.state, State::CanBeActive | State::Unknown))
        };
        let (Some(x), Some(y)) = (row(&a), row(&b)) else { continue };
        let says = "both replace the same kernel: only one of them runs".to_owned();
        let evidence: Vec<Evidence> =
            [x, y].iter().flat_map(|r| r.why.iter().take(1)).flat_map(|c| c.evidence.clone()).collect();
        let asked = |r: &PatchRow| matches!(r.requested, Requested::Yes | Requested::ByDefault);
        if x.requested == Requested::Yes && y.requested == Requested::Yes {
            let source = "patches of one kernel".to_owned();
            out.push(Contradiction { rule, between: vec![a, b], says, source, evidence });
        } else if asked(x) && asked(y) {
            let (claimed, other) = if x.requested == Requested::Yes { (a, b) } else { (b, a) };
            let says = format!("{other} is on by default for the same kernel: which of the two runs is not seen");
            if let Some(row) = patches.iter_mut().find(|r| r.patch == claimed) {
                row.why.push(Claim { rule, says, source: "patches of one kernel".into(), evidence });
            }
        }
    }
    out
}

/// Every setting that a source shows, with the value that counts.
fn settings(facts: &Facts) -> Vec<Setting> {
    let mut names: Vec<&str> = facts.seen.iter().map(|f| f.switch.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let one = |name: &str| {
        let e = facts.effective(name);
        Setting { name: name.to_owned(), value: e.value, default: e.how == How::Default, evidence: e.evidence }
    };
    names.into_iter().map(one).collect()
}

/// Settings on which sources, or lines of one source, differ.
fn disagreements(facts: &Facts) -> Vec<Conflict> {
    let mut out = Vec::new();
    for setting in settings(facts) {
        let about = facts.about(&setting.name);
        let open = |f: &Fact| matches!(f.value.as_deref(), Some("auto" | "none"));
        let Some(wins) = about.last() else { continue };
        // What was left to the engine is no other value.
        let mut others: Vec<&&Fact> = Vec::new();
        for fact in about.iter().filter(|f| f.value != wins.value && !open(f)) {
            let told = |o: &&&Fact| o.value == fact.value && o.evidence.file == fact.evidence.file;
            if !others.iter().any(told) {
                others.push(fact);
            }
        }
        if others.is_empty() {
            continue;
        }
        let same_source =
            others.iter().all(|f| f.evidence.source == wins.evidence.source && f.evidence.file == wins.evidence.file);
        let why = if same_source {
            format!("within one {} the last counts", wins.evidence.source.name())
        } else {
            format!(
                "{} is nearest to the running process; the rest may have changed since it started",
                wins.evidence.source.name()
            )
        };
        let seen = |f: &Fact| Seen { value: f.value.clone(), evidence: f.evidence.clone() };
        out.push(Conflict {
            setting: setting.name,
            wins: seen(wins),
            others: others.into_iter().map(|f| seen(f)).collect(),
            why,
        });
    }
    out
}

fn files(facts: &Facts) -> Vec<WatchedFile> {
    let one = |watched: &'static crate::data::Watched| WatchedFile {
        file: &watched.file,
        patches: watched.patches.iter().map(String::as_str).collect(),
        copies: facts
            .files
            .iter()
            .filter(|f| f.name == watched.file)
            .map(|f| (f.path.clone(), f.how, f.evidence.clone()).into())
            .collect(),
    };
    data().watched.iter().map(one).collect()
}

/// The engine's own variables that no table knows, with the name that was perhaps meant.
fn strangers(facts: &Facts) -> Vec<Note> {
    let near = |name: &str| data().switches.iter().map(|s| s.name.as_str()).find(|known| distance(name, known) <= 2);
    let one = |(name, evidence): (&String, &Evidence)| {
        let hint = near(name).map_or(String::new(), |known| format!(" (nearly {known}: misspelt?)"));
        Note { text: format!("{name}{hint}"), evidence: Some(evidence.clone()) }
    };
    facts.strangers.iter().map(one).collect()
}

/// Edits between two names, up to 3.
fn distance(a: &str, b: &str) -> usize {
    if a.len().abs_diff(b.len()) > 2 || a.len() > 200 {
        return 3;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for j in 0..b.len() {
            let replace = diagonal + usize::from(x != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()].min(3)
}

#[cfg(test)]
pub(crate) mod tests;
