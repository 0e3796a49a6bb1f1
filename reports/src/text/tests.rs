use super::*;

#[test]
fn what_cannot_be_seen_is_written_out() {
    assert_eq!(clean("a\u{1b}[31mb\u{0}c\nd\u{202e}e\u{feff}", 99), "a\\u{1b}[31mb\\u{0}c d\\u{202e}e\\u{feff}");
    assert_eq!(clean("héé", 3), "héé");
    assert_eq!(clean("héés", 3), "hé…");
    assert_eq!(clean(&"x".repeat(1 << 20), 80).chars().count(), 80);
    assert_eq!(clean_lines("a\nb\tc\r\u{7}"), "a\nb\tc \\u{7}");
}

#[test]
fn markdown_holds_no_markup() {
    assert_eq!(markdown("<b>*x*</b> [a](b) |"), "&lt;b&gt;\\*x\\*&lt;/b&gt; \\[a\\](b) \\|");
    assert_eq!(markdown("max_over_max _x_"), "max_over_max \\_x\\_");
    assert_eq!(markdown("1. one"), "1\\. one");
    assert_eq!(markdown("- one"), "\\- one");
    assert_eq!(
        markdown("# @team #12 https://x www.y"),
        "#\u{200b} @\u{200b}team #\u{200b}12 https:\u{200b}//x www\u{200b}.y"
    );
}

#[test]
fn code_spans_close() {
    assert_eq!(code("layers.3.attn.o"), "`layers.3.attn.o`");
    assert_eq!(code("a`b``c"), "```a`b``c```");
    assert_eq!(code("`a|b"), "`` `a\\|b ``");
    assert_eq!(code(" "), "");
}

#[test]
fn cells_are_no_formulas() {
    assert_eq!(cell("=HYPERLINK(\"x\")"), "\"'=HYPERLINK(\"\"x\"\")\"");
    assert_eq!(cell("@a"), "'@a");
    assert_eq!(cell("-1.5e-3"), "-1.5e-3");
    assert_eq!(cell("-cmd"), "'-cmd");
    assert_eq!(cell("a,b"), "\"a,b\"");
    assert_eq!(cell("\ta"), "\" a\"");
}

#[test]
fn xml_holds_what_xml_can() {
    assert_eq!(xml("<a b=\"c\">&'\u{ffff}\u{8}", 99), "&lt;a b=&quot;c&quot;&gt;&amp;&#39;\u{fffd}\\u{8}");
}
