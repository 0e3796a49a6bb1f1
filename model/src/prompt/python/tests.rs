//! Values of literals are those of CPython 3.13 (`ast.literal_eval`, or the f-string's source).

use proptest::prelude::*;

use super::encoding_from_python;
use super::literals::all;
use crate::prompt::texts::Release;

#[test]
fn every_kind_of_literal_has_pythons_value() {
    for (source, expected) in [
        (r#"x = 'a"b'"#, "a\"b"),
        ("x = \"\"\"two\nlines \"quoted\" \"\"\"", "two\nlines \"quoted\" "),
        ("x = '''a''b'''", "a''b"),
        (r"x = 'a\n\t\\\'\x41\u00e9\U0001f600\101\0'", "a\n\t\\'A\u{e9}\u{1f600}A\0"),
        (r"x = 'keeps \d and \N{BULLET}'", r"keeps \d and \N{BULLET}"),
        ("x = 'joined \\\nline'", "joined line"),
        ("x = '''a\r\nb'''", "a\nb"),
        (r"x = r'raw \n \' quote'", r"raw \n \' quote"),
        (r"x = Rb'\x41'", r"\x41"),
        (r"x = b'\x41\u0041'", r"A\u0041"),
        ("x = u'plain'", "plain"),
        ("x = f'{{one}} {two!r:>{width}} }}'", "{one} {two!r:>{width}} }"),
        (r#"x = f"{d["key"]} and {f('}')}""#, r#"{d["key"]} and {f('}')}"#),
        (r#"x = f'{x:"^9}'"#, r#"{x:"^9}"#),
        ("x = fR'{a}\\n'", "{a}\\n"),
        ("x = '<｜DSML｜> — ünï'", "<｜DSML｜> — ünï"),
        ("# 'not this'\nx = 'this'  # \"nor that\"", "this"),
    ] {
        assert_eq!(all(source), [expected], "{source}");
    }
}

#[test]
fn literals_side_by_side_and_added_are_joined() {
    for (source, joined) in [
        ("x = ('a'  # first\n     'b'\n     f'{c}')", "ab{c}"),
        ("x = 'a' \\\n  'b'", "ab"),
        ("x = {'k': 'a' 'b', 'l': 'c'}", "ab"),
        ("x = ('a' +\n 'b' + r'\\c')", "ab\\c"),
        ("def f(x=['a' '''b'''], y=1): pass", "ab"),
    ] {
        assert!(all(source).iter().any(|t| t == joined), "{source}: {:?}", all(source));
    }
    // Statements on lines of their own are not joined, and neither is what a name stands between.
    assert_eq!(all("'a'\n'b'"), ["a", "b"]);
    assert_eq!(all("x = 'a' + y + 'b'"), ["a", "b"]);
    assert_eq!(all("x = ['a', 'b']"), ["a", "b"]);
    assert_eq!(all("x = 'a' + + 'b'"), ["a", "b"]);
}

#[test]
fn damaged_literals_are_left_out() {
    assert_eq!(all("x = 'open\ny = 'closed'"), ["closed"]);
    assert_eq!(all("x = 'a'\ny = '''never ends"), ["a"]);
    assert_eq!(all("x = f'{never' 'b'"), ["{neverb", "{never", "b"]);
    assert_eq!(all("x = '\\"), Vec::<String>::new());
}

/// An encoder module in our own words: constants under other names, one joined, one in a dict.
const MODULE: &str = r###"
"""Docstring that mentions ## Response Format for {schema}."""
import json
PREFIXES = {
    "max": (
        "Reasoning Effort: Absolute maximum, "
        'spelled \u0041new.\n\n'
    ),
}
TEMPLATE = """## Tools

Use <{dsml_token}tool_calls>.

{tool_schemas}
"""
SHAPE = "## Response Format:\n\n" + "Obey {schema}"
def render(x): return f"<{x}>"
"###;

#[test]
fn texts_are_found_by_their_first_words_with_a_warning() {
    let found = encoding_from_python("encoder.py", MODULE.as_bytes()).unwrap();
    assert_eq!(found.texts.release, Release::Preview);
    assert_eq!(found.texts.origin, "encoder.py");
    assert_eq!(found.texts.effort_a.text, "Reasoning Effort: Absolute maximum, spelled Anew.\n\n");
    assert_eq!(found.texts.tools_template.text, "## Tools\n\nUse <{dsml_token}tool_calls>.\n\n{tool_schemas}\n");
    assert_eq!(found.texts.response_format.text, "## Response Format:\n\nObey {schema}");
    assert_eq!(found.texts.effort_b.text, "");
    assert_eq!(found.warnings.len(), 3, "{:?}", found.warnings);
    assert!(found.warnings.iter().all(|w| w.contains("sha256")));

    let later = format!("{MODULE}\nB = 'Reasoning Effort: Beyond maximum.'\n");
    let found = encoding_from_python("encoder.py", later.as_bytes()).unwrap();
    assert_eq!(found.texts.release, Release::V0731);
    assert_eq!(found.texts.effort_b.text, "Reasoning Effort: Beyond maximum.");
}

#[test]
fn a_text_with_the_known_sum_is_taken_without_a_warning() {
    // The sum of the response format is the spec's; its text is found by that sum whatever stands beside it.
    let text = "## Response Format:\\n\\nYou MUST strictly adhere to the following schema to reply:\\n{schema}";
    let module = format!(
        "{MODULE}\nX = '## Response Format: a much longer text that is not the one for {{schema}} {:900}'\nY = \"{text}\"",
        ""
    );
    let found = encoding_from_python("encoder.py", module.as_bytes()).unwrap();
    assert_eq!(found.texts.response_format.sha256, super::RESPONSE_FORMAT.sha256);
    assert_eq!(found.texts.response_format.text.len(), 88);
    assert_eq!(found.warnings.len(), 2, "{:?}", found.warnings);
}

#[test]
fn what_is_missing_is_named() {
    for (source, named) in [
        (&b"x = 1"[..], "tools_template"),
        (b"x = '## Tools {tool_schemas}'", "response_format"),
        (b"\xff\xfe", "UTF-8"),
    ] {
        let error = encoding_from_python("encoder.py", source).unwrap_err().to_string();
        assert!(error.contains(named) && error.contains("encoder.py"), "{error}");
    }
    assert!(encoding_from_python("big.py", &vec![b' '; 2 << 20]).unwrap_err().to_string().contains("too large"));
}

#[test]
fn hostile_sources_take_no_time() {
    // Each of these is quadratic for a reader that goes back.
    for unit in ["f'{", "f\"{(", "'", "\"\"\"", "f'{x:\"", "(", "{'a' +", "\\", "rb'\\", "f'''{\"", "#", "\r"] {
        let source = unit.repeat((1 << 20) / unit.len());
        let start = std::time::Instant::now();
        let _ = encoding_from_python("hostile.py", source.as_bytes());
        assert!(start.elapsed().as_secs() < 5, "{unit:?} took {:?}", start.elapsed());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = encoding_from_python("any.py", &bytes);
    }

    #[test]
    fn any_python_like_text_is_read(source in r#"([rbfuRBFU]{0,2}['"]{0,4}|\{|\}|\(|\)|\\|\n|\r|[a-z :!+#｜]|\\[xuUN0-7n]){0,60}"#) {
        let _ = all(&source);
    }

    #[test]
    fn a_plain_literal_keeps_its_text(text in "[^\\\\\"\r\n]*") {
        prop_assert_eq!(all(&format!("x = \"{text}\"")), [text.clone()]);
        prop_assert_eq!(all(&format!("{{'k': (\"{text}\"\n 'z')}}"))[1].clone(), format!("{text}z"));
    }
}
