use super::*;

#[test]
fn lines_are_folded_at_a_space_and_nothing_is_lost() {
    let line = "layer  inherit   inject  nearest to tolerance  patch set, phase                error predict allowed";
    for width in [40, 60, 80, 100] {
        let folded = fold(line, width);
        assert!(folded.iter().all(|l| l.chars().count() <= width), "{width}: {folded:?}");
        let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
        assert_eq!(words(&folded.join(" ")), words(line), "{width}");
    }
    assert_eq!(fold(line, 100), [line]);
    let long = "x".repeat(200);
    assert_eq!(fold(&long, 40), [long]);
    // Colours take no room.
    assert_eq!(fold("\x1b[1;31mfail\x1b[0m: short", 12), ["\x1b[1;31mfail\x1b[0m: short"]);
}

#[test]
fn nothing_but_our_colours_commands_a_terminal() {
    let hostile = "a\x1b[2Jb\x1b]0;title\x07c\u{9b}d\u{202e}e";
    let shown = page(hostile, None, true, false);
    assert!(!shown.contains(['\x1b', '\x07', '\u{9b}', '\u{202e}']), "{shown:?}");
    assert_eq!(page("\x1b[1;32mpass\x1b[0m", None, true, false), "\x1b[1;32mpass\x1b[0m");
    assert_eq!(page("\x1b[1mx", None, false, false), "\\u{1b}[1mx");
    assert_eq!(page("a\r\nb\tc", None, false, false), "a \nb\tc");
}

#[test]
fn no_line_is_a_workflow_command() {
    assert_eq!(page("x\n  ::error::y\n##[group]", None, false, true), "x\n\\  ::error::y\n\\##[group]");
    assert_eq!(page("::error::y", None, false, false), "::error::y");
}
