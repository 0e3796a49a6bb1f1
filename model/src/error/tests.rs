use super::{Error, Plain};

#[test]
fn a_message_is_one_line_whatever_a_file_holds() {
    let error = Error::input("unknown field `a\nb\u{1b}[31m`")
        .at("x\t.json")
        .at("dir\r")
        .expected("c\u{202e}d")
        .found("\u{0}")
        .hint("\n");
    let want = r"dir\r: x\t.json: unknown field `a\nb\u{1b}[31m`: expected c\u{202e}d, found \u{0}; \n";
    assert_eq!(error.to_string(), want);
}

#[test]
fn letters_of_every_language_stay_as_they_are() {
    let text = "<｜User｜> \u{fc}ber 漢字 \\ \"quoted\"";
    assert_eq!(Plain(text).to_string(), text);
}

#[test]
fn a_huge_value_does_not_bury_the_message() {
    let text = Error::input("wrong value").found("9".repeat(1_000_000)).hint("shorten it").to_string();
    assert!(text.len() < 1100 && text.ends_with("9... (999000 more characters); shorten it"), "{}", text.len());
}
