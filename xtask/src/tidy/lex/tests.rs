use super::{Kind, tokens};

fn idents(text: &str) -> Vec<String> {
    tokens(text).iter().filter_map(|t| t.ident().map(str::to_string)).collect()
}

#[test]
fn comments_and_strings_hide_their_words() {
    let text = r###"
        // unsafe in a line
        /* unsafe /* nested unsafe */ still */ a
        "unsafe \" unsafe" b r#"unsafe " unsafe"# c b"unsafe" d br##"unsafe"## e
        'u' f '\'' g 'life h
    "###;
    assert_eq!(idents(text), ["a", "b", "c", "d", "e", "f", "g", "h"]);
}

#[test]
fn numbers_end_where_rust_ends_them() {
    let numbers: Vec<String> = tokens("1.5 0..3 1.0e-6f32 2.max(3) x.0 0xe-1 7.")
        .into_iter()
        .filter_map(|t| if let Kind::Number(n) = t.kind { Some(n) } else { None })
        .collect();
    assert_eq!(numbers, ["1.5", "0", "3", "1.0e-6f32", "2", "3", "0", "0xe", "1", "7."]);
}

#[test]
fn lines_count_through_comments_and_raw_strings() {
    let found = tokens("a\n/* x\n y */ b\nr\"\n\n\" c");
    let lines: Vec<usize> = found.iter().filter(|t| t.ident().is_some()).map(|t| t.line).collect();
    assert_eq!(lines, [1, 3, 6]);
}

#[test]
fn raw_identifiers_and_lifetimes_are_told_from_text() {
    assert_eq!(
        idents("r#type fn f<'a>(x: &'a str, y: char) { y == 'a' }"),
        ["type", "fn", "f", "x", "str", "y", "char", "y"]
    );
}

#[test]
fn an_unfinished_text_ends_the_file_without_a_panic() {
    for text in ["\"abc", "'", "/* /*", "r#\"abc", "b'", "1.0e", "'\\"] {
        tokens(text);
    }
}
