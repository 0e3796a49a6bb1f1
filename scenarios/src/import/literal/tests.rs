use karat_model::prompt::Json;
use proptest::prelude::*;

use super::{Literal, parse};

fn json(text: &str) -> String {
    parse(text).unwrap().0.value.dumps()
}

#[test]
fn reprs_are_read() {
    assert_eq!(json("{'a': 1, 'b': [True, None, -2.5, 'x']}"), r#"{"a": 1, "b": [true, null, -2.5, "x"]}"#);
    assert_eq!(
        json(r#"['it\'s', "it's", '\n\t\\', '\x41\u00e9\U0001f600', '｜']"#),
        r#"["it's", "it's", "\n\t\\", "Aé😀", "｜"]"#
    );
    assert_eq!(
        json("Req(rid='r', n=1, o=<A.B: 3>, t=array([1, 2], kind='i'), u=(1,), s={1, 2})"),
        r#"{"rid": "r", "n": 1, "o": null, "t": {"kind": "i"}, "u": [1], "s": [1, 2]}"#
    );
    assert_eq!(json("<object at 0x7f>"), "null");
    assert_eq!(json("b'ab'"), "null");
    assert!(matches!(parse("nan").unwrap().0.value, Json::Float(v) if v.is_nan()));
    assert_eq!(parse("-inf, out=1").unwrap().1, 4);
}

#[test]
fn cut_values_are_named() {
    let (Literal { value, cut }, _) =
        parse("R(text='ab' ... 'yz', ids=[1] ... [9], o={'m': 'a' ... 'b'}, n=1)").unwrap();
    assert_eq!(cut, ["text", "ids", "o.m"]);
    assert_eq!(value.dumps(), r#"{"text": null, "ids": null, "o": {"m": null}, "n": 1}"#);
}

#[test]
fn broken_reprs_are_refused() {
    for text in
        ["", "{'a': ", "{'a': 'b", "[1, 2", "R(a=", "R(a", "x", "<a", "'\\q'", "'\\x4'", "--", &"[".repeat(5000)]
    {
        assert!(parse(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(text in r#"[\[\](){}'"<>\\,:=. a-fnx0-9-]{0,60}"#) {
        let _ = parse(&text);
    }

    /// What Python would write of a text is read as that text.
    #[test]
    fn strings_come_back(text in ".{0,40}") {
        let mut repr = String::from("'");
        for c in text.chars() {
            match c {
                '\\' => repr.push_str("\\\\"),
                '\'' => repr.push_str("\\'"),
                '\n' => repr.push_str("\\n"),
                c if c.is_control() => repr.push_str(&format!("\\U{:08x}", u32::from(c))),
                c => repr.push(c),
            }
        }
        repr.push('\'');
        let (read, n) = parse(&repr).unwrap();
        prop_assert_eq!(read.value, Json::Str(text));
        prop_assert_eq!(n, repr.len());
    }
}
