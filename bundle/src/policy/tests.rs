//! Policies as text, and what they select.

use std::path::Path;

use proptest::prelude::*;

use super::*;

fn read(text: &str) -> crate::Result<Policy> {
    Policy::from_toml(Path::new("karat.toml"), text.as_bytes())
}

fn error(text: &str) -> String {
    read(&format!("format = \"karat-policy/1\"\n{text}")).unwrap_err().to_string()
}

#[test]
fn the_file_of_the_default_policy_says_what_the_code_does() {
    assert_eq!(read(DEFAULT).unwrap(), Policy::default());
    assert_eq!(read("format = \"karat-policy/1\"").unwrap().limit, [], "a policy of one's own starts empty");
}

#[test]
fn a_policy_reads_back_from_its_text() {
    let text = "format = \"karat-policy/1\"\nrecall_margin = 0.01\nmin_floors = 5\n\
        [[tolerance]]\nwhere = { class = \"experts\", phase = \"decode\" }\nscale = 2\nreason = \"a \\\"new\\\" kernel\"\n\
        [[limit]]\nname = \"fast\"\nmetric = \"speedup\"\nmin = 1.5\nwhere = { patch = \"fp8-*\" }\n\
        [[limit]]\nname = \"kl\"\nmetric = \"kl_p99\"\nmax = 0.5\nprove = true\nwhere = { stratum = \"generated\" }\n\
        [[allow]]\nlimit = \"kl\"\nowner = \"ann\"\nreason = \"known\"\nexpires = \"2027-02-28\"\n";
    let policy = read(text).unwrap();
    assert_eq!(
        (policy.tolerance[0].scale, policy.limit[0].min, policy.allow[0].limit.as_str()),
        (2.0, Some(1.5), "kl")
    );
    assert_eq!(read(&policy.to_toml()).unwrap(), policy);
    assert_ne!(policy.hash(), Policy::default().hash());
    assert_eq!(read(&Policy::default().to_toml()).unwrap(), Policy::default());
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let e = read("tolerance_scale = 1\n").unwrap_err().to_string();
    assert!(e.starts_with("karat.toml, line 1: format: expected \"karat-policy/1\", found nothing"), "{e}");
    for (text, line, words) in [
        ("min_floor = 1", 2, "unknown field `min_floor`"),
        ("delta = 2", 2, "over 0 and under 1, found 2"),
        ("\ndelta = \"often\"", 3, "`often` is no number"),
        ("delta = [1]", 2, "expected a number"),
        ("recall_margin = 1.5", 2, "recall_margin"),
        ("tolerance_scale = nan", 2, "positive"),
        ("[[limit]]\nname = \"a\"\nmetric = \"kl\"\n", 2, "give `max`"),
        ("[[limit]]\nname = \"a\"\nmetric = \"cosine\"\nmax = 1", 4, "unknown variant `cosine`"),
        ("[[limit]]\nname = \"a\"\nmetric = \"speedup\"\nmax = 1", 2, "speedup has a `min`"),
        ("[[limit]]\nname = \"a\"\nmetric = \"kl\"\nmin = 1", 2, "`min` is for speedup"),
        ("[[limit]]\nname = \"tolerance\"\nmetric = \"kl\"\nmax = 1", 2, "a name of its own"),
        (
            "[[limit]]\nname = \"a\"\nmetric = \"kl\"\nmax = 1\n[[limit]]\nname = \"a\"\nmetric = \"kl\"\nmax = 1",
            6,
            "another limit's already",
        ),
        ("[[limit]]\nname = \"a\"\nmetric = \"kl\"\nmax = 1\nwhere = { tap = \"x\" }", 2, "tap says nothing about"),
        ("[[tolerance]]\nscale = 2\n", 2, "needs a `reason`"),
        ("[[tolerance]]\nscale = 0.5\nwhere = { class = \"heads\" }", 2, "expected embed, mhc,"),
        ("[[tolerance]]\nscale = 0.5\nwhere = { phase = \"warm\" }", 2, "prefill, decode, found `warm`"),
        ("[[allow]]\nowner = \" \"\nreason = \"r\"\nexpires = \"2027-01-01\"", 2, "owner"),
        ("[[allow]]\nowner = \"ann\"\nreason = \"\"\nexpires = \"2027-01-01\"", 2, "reason"),
        ("[[allow]]\nowner = \"ann\"\nexpires = \"2027-01-01\"", 2, "missing field `reason`"),
        ("[[allow]]\nowner = \"ann\"\nreason = \"r\"\nexpires = \"2027-02-29\"", 5, "expected a day such as"),
        (
            "[[allow]]\nlimit = \"b\"\nowner = \"a\"\nreason = \"r\"\nexpires = \"2027-01-01\"",
            2,
            "no limit of this policy",
        ),
        ("a b", 2, "karat.toml"),
    ] {
        let e = error(text);
        assert!(e.starts_with(&format!("karat.toml, line {line}: ")) && e.contains(words), "{text}: {e}");
    }
}

#[test]
fn days_are_those_of_the_calendar() {
    // `date -u -d @SECONDS +%F`.
    for (seconds, day) in [
        (0, "1970-01-01"),
        (951_782_400, "2000-02-29"),
        (951_868_800, "2000-03-01"),
        (1_735_689_599, "2024-12-31"),
        (1_796_083_200, "2026-12-01"),
        (4_107_542_399, "2100-02-28"),
        (4_107_542_400, "2100-03-01"),
    ] {
        assert_eq!(Date::of_unix_seconds(seconds).to_string(), day);
        assert_eq!(day.parse::<Date>().unwrap(), Date::of_unix_seconds(seconds));
    }
    for wrong in ["", "2026-13-01", "2026-00-10", "2100-02-29", "2026-1-01", "2026-01-0a", "２026-01-01", "2026-01-01 "]
    {
        assert!(wrong.parse::<Date>().is_err(), "{wrong}");
    }
    assert!("2026-12-31".parse::<Date>().unwrap() < "2027-01-01".parse().unwrap());
}

#[test]
fn rows_are_selected_by_name() {
    let row = TapRow {
        patch_set: "stock+fp8-kv".into(),
        phase: "decode".into(),
        tap: "attn.index_q".into(),
        ..TapRow::default()
    };
    let on = |patch: &str, class: &str, tap: &str| {
        let some = |v: &str| (!v.is_empty()).then(|| v.to_string());
        Select { patch: some(patch), class: some(class), tap: some(tap), ..Select::default() }.fits_tap(&row)
    };
    assert!(
        on("", "", "") && on("fp8-kv", "indexer", "attn.index_q") && on("fp8-*", "", "*index*") && on("*kv", "", "*")
    );
    assert!(!on("fp8", "", "") && !on("stock", "", "") && !on("", "attention", "") && !on("", "", "attn.*_k"));
    assert!(
        !on("*kv*x", "", "") && !on("", "", "attn.index_qq*") && on("", "", "attn.*q") && !on("", "", "a*n.index_q*q")
    );
    // Each class by a tap of it (spec 2.15), and nothing in two of them.
    for (tap, class) in [
        ("hc_attn.pre", "mhc"),
        ("out", "mhc"),
        ("attn.index_kvp", "compressor"),
        ("attn.ckv", "compressor"),
        ("attn.index_score", "indexer"),
        ("attn.o", "attention"),
        ("ffn.idx", "router"),
        ("ffn.expert_act", "experts"),
        ("logits", "head"),
        ("embed", "embed"),
        ("in", "embed"),
        ("nonsense", "other"),
    ] {
        assert_eq!(class_of(tap), class);
    }
}

#[test]
fn the_last_scale_that_fits_a_row_counts() {
    let scale = |class: &str, scale| Scale {
        on: Select { class: Some(class.into()), ..Select::default() },
        scale,
        reason: "r".into(),
    };
    let tolerance = vec![scale("head", 3.0), scale("experts", 0.5), scale("head", 0.25)];
    let policy = Policy { tolerance_scale: 2.0, tolerance, ..Policy::default() };
    let of = |tap: &str| policy.scale(&TapRow { tap: tap.into(), ..TapRow::default() });
    assert_eq!([of("logits"), of("ffn.out"), of("attn.o")], [0.5, 1.0, 2.0]);
}

proptest! {
    #[test]
    fn a_policy_reader_takes_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..1500) {
        let mut mixed = DEFAULT.as_bytes().to_vec();
        let at = at.min(mixed.len());
        mixed.splice(at..at, bytes.iter().copied());
        for text in [&bytes, &mixed] {
            if let Err(error) = Policy::from_toml(Path::new("p.toml"), text) {
                prop_assert!(error.to_string().starts_with("p.toml, line "), "{error}");
            }
        }
    }

    #[test]
    fn any_text_stands_in_a_policy(reason in "\\PC{0,30}|[\"\\\\\n\t\u{0}\u{7f}]{0,6}") {
        let mut policy = Policy::default();
        policy.limit[0].reason = reason;
        prop_assert_eq!(read(&policy.to_toml()).unwrap(), policy);
    }
}
