//! Expected texts are what CPython 3.13's json module gives for the same input.

use proptest::prelude::*;

use super::Json;

#[test]
fn reads_and_writes_as_python_does() {
    for (text, expected) in [
        ("1", "1"),
        ("-0", "0"),
        ("-0.0", "-0.0"),
        ("1.0", "1.0"),
        ("1e5", "100000.0"),
        ("1E400", "Infinity"),
        ("-1e400", "-Infinity"),
        ("-Infinity", "-Infinity"),
        ("NaN", "NaN"),
        ("1e16", "1e+16"),
        ("1e15", "1000000000000000.0"),
        ("0.0001", "0.0001"),
        ("0.00001", "1e-05"),
        ("1.5e-7", "1.5e-07"),
        ("5e-324", "5e-324"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("12345678901234567.0", "1.2345678901234568e+16"),
        ("9007199254740993.0", "9007199254740992.0"),
        ("2.50", "2.5"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        (r#"[1,2 , {"a" :"\u00e9\n\u0001\u007f/\/"}]"#, "[1, 2, {\"a\": \"é\\n\\u0001\u{7f}//\"}]"),
        (r#"{"b":1,"a":2,"b":3}"#, r#"{"b": 3, "a": 2}"#),
        (r#""\ud83d\ude00 \u2028""#, "\"😀 \u{2028}\""),
        ("\t[ ]\r\n ", "[]"),
        ("{ }", "{}"),
        ("[true,false,null]", "[true, false, null]"),
    ] {
        let value = Json::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(value.dumps(), expected, "{text}");
    }
}

#[test]
fn refuses_what_python_refuses() {
    for text in [
        "",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "- 1",
        "-",
        "-NaN",
        "1.e5",
        "nul",
        "tru",
        "[",
        "[1,]",
        "[1] x",
        "{\"a\":1,}",
        "{'a':1}",
        "{\"a\"}",
        "{\"a\":1",
        "\"a",
        "\"\t\"",
        "\"\\x41\"",
        "\u{feff}1",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
    ] {
        assert!(Json::parse(text).is_err(), "{text}");
    }
}

#[test]
fn nesting_and_digits_are_bounded() {
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(Json::parse(&deep(400)).is_ok());
    assert!(Json::parse(&deep(100_000)).is_err());
    assert!(Json::parse(&"9".repeat(4300)).is_ok());
    assert!(Json::parse(&"9".repeat(4301)).is_err());
}

#[test]
fn serde_reads_the_same_values() {
    let text = r#"{"z": [1, -2, 2.5, "x", null, true], "a": {"z": 0}}"#;
    let from_serde: Json = serde_json::from_str(text).unwrap();
    assert_eq!(from_serde, Json::parse(text).unwrap());
    assert_eq!(from_serde.dumps(), text);
}

fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        any::<i64>().prop_map(|v| Json::Int(v.to_string())),
        any::<f64>().prop_filter("not a number is not equal to itself", |v| !v.is_nan()).prop_map(Json::Float),
        ".*".prop_map(Json::Str),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            prop::collection::btree_map(".*", inner, 0..4).prop_map(|m| Json::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".*") {
        let _ = Json::parse(&text);
    }

    #[test]
    fn what_is_written_reads_back(value in any_json()) {
        prop_assert_eq!(Json::parse(&value.dumps()).unwrap(), value);
    }
}
