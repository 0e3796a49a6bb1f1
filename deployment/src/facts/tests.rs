use crate::Kind;
use crate::facts::Facts;
use crate::rules::tests::{has_note, setting, verify_one};

#[test]
fn values_in_the_engine_s_spellings() {
    let bools = [
        ("1", Some("true")),
        ("YES", Some("true")),
        ("y", Some("true")),
        ("no", Some("false")),
        ("on", None),
        ("", None),
    ];
    for (text, expected) in bools {
        let mut facts = Facts::default();
        facts.variable("SGLANG_DSV4_FP4_DEQUANT", text, (Kind::Environment, "f", 1));
        assert_eq!(facts.seen[0].value.as_deref(), expected, "{text}");
    }
}

#[test]
fn a_value_that_the_engine_cannot_read_is_its_default() {
    let report = verify_one(Kind::Environment, "PATH=/bin\nSGLANG_DSV4_FP4_DEQUANT=on\n");
    assert_eq!(setting(&report, "SGLANG_DSV4_FP4_DEQUANT").value, None, "the version isn't seen, so no default");
    assert!(has_note(&report, "SGLANG_DSV4_FP4_DEQUANT: not 1, true, yes, y, 0"), "{:?}", report.notes);
}

#[test]
fn old_prefixes_and_misspelt_names() {
    let report = verify_one(
        Kind::Environment,
        "SGL_DSV4_FP4_DEQUANT=1\nSGLANG_OPT_FP8_WO_A_GEM=s3cret\nSGLANG_SOMETHING_ELSE=1\nOTHER=2\n",
    );
    assert_eq!(setting(&report, "SGLANG_DSV4_FP4_DEQUANT").value.as_deref(), Some("true"));
    let names: Vec<&str> = report.not_in_tables.iter().map(|n| n.text.as_str()).collect();
    assert_eq!(
        names,
        ["SGLANG_OPT_FP8_WO_A_GEM (nearly SGLANG_OPT_FP8_WO_A_GEMM: misspelt?)", "SGLANG_SOMETHING_ELSE"]
    );
    assert!(!serde_json::to_string(&report).unwrap().contains("s3cret"), "values of unknown names are not kept");
}
