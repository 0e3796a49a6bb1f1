use super::*;

fn words(script: &str) -> Vec<(String, usize)> {
    split("f", script, 1).unwrap().into_iter().filter(|w| !w.ends).map(|w| (w.text, w.line)).collect()
}

#[test]
fn quotes_escapes_and_lines() {
    let script = "A='b c' \"d \\\"e\\\" $F\" \\\n  g\\ h # said\nnext";
    let expected = [("A=b c", 1), ("d \"e\" $F", 1), ("g h", 2), ("next", 3)];
    assert_eq!(words(script), expected.map(|(w, l)| (w.to_owned(), l)));
    assert_eq!(words("''"), [(String::new(), 1)]);
}

#[test]
fn operators_end_a_command() {
    let ends: Vec<String> =
        split("f", "a && b; c | d\ne", 1).unwrap().into_iter().filter(|w| w.ends).map(|w| w.text).collect();
    assert_eq!(ends, ["&", "&", ";", "|", "\n"]);
}

#[test]
fn an_open_quote_is_an_error_with_its_line() {
    let error = split("f", "a\nb 'c\nd", 1).unwrap_err();
    assert!(error.place == "f:2" && error.what.contains("cut"), "{error}");
}
