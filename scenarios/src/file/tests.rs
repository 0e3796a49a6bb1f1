//! The format: what is read, what is refused, and at which line.

use proptest::prelude::*;

use super::{Content, Scenario};
use crate::cut::{Cut, Interruption};
use karat_model::prompt::{Effort, Role};

const HEAD: &str = "format = \"karat-scenario/1\"\ntitle = \"t\"\n";
const USER: &str = "[[messages]]\nrole = \"user\"\ncontent = \"q\"\n";

fn read(text: &str) -> karat_model::Result<Scenario> {
    Scenario::from_toml("s", "s.toml", text)
}

#[test]
fn everything_is_read() {
    let s = read(&format!(
        "{HEAD}tools = '[{{\"function\": {{\"z\": 1, \"a\": 2}}}}]'\n\
         [options]\nthinking = false\ndrop_thinking = false\neffort = \"max\"\n{USER}\
         [[messages]]\nrole = \"assistant\"\ncontent = \"answer\"\ncut = {{ tokens = 3 }}\n\
         [[messages]]\nrole = \"assistant\"\ncontent = \"an\"\ninterrupted = true\n"
    ))
    .unwrap();
    assert_eq!((s.options.thinking, s.options.drop_thinking, s.options.effort), (false, false, Some(Effort::Max)));
    // Tools need a system message: an empty one is put in front. Their keys keep the order.
    assert_eq!(
        s.messages.iter().map(|m| m.role.clone()).collect::<Vec<_>>(),
        [Role::System, Role::User, Role::Assistant, Role::Assistant]
    );
    assert_eq!(s.messages[0].tools[0].dumps(), r#"{"z": 1, "a": 2}"#);
    let cut = Some(Interruption::Cut(Cut::Tokens(3)));
    assert_eq!(s.interruptions, [None, None, cut, Some(Interruption::AsWritten)]);
    let plain = read(&format!("{HEAD}{USER}")).unwrap();
    assert_eq!(plain.options, karat_model::prompt::EncodeOptions::default());
}

#[test]
fn errors_name_file_line_and_cause() {
    for (text, line, named) in [
        ("format = ".to_owned(), 1, ""),
        (format!("{HEAD}colour = 1\n{USER}"), 3, "colour"),
        (format!("format = \"karat-scenario/2\"\ntitle = \"\"\n{USER}"), 1, "karat-scenario/1"),
        (format!("{HEAD}{USER}[[messages]]\nrole = \"user\"\nmessage = \"x\"\n"), 6, "message"),
        (format!("{HEAD}{USER}{USER}extra = 1\n"), 6, "extra"),
        (format!("{HEAD}[[messages]]\nrole = \"user\"\ncontent = 1979-05-27\n"), 3, "date"),
        (format!("{HEAD}[[messages]]\nrole = \"user\"\ncontent = \"x\"\ninterrupted = true\n"), 3, "assistant"),
        (format!("{HEAD}[[messages]]\nrole = \"assistant\"\ncontent = \"x\"\ncut = {{ tokens = 0 }}\n"), 3, "cut"),
        (format!("{HEAD}[[messages]]\nrole = \"assistant\"\ncontent = \"x\"\ncut = {{ lines = 1 }}\n"), 3, "cut"),
        (format!("{HEAD}[[messages]]\nrole = \"system\"\ntools = [1]\n"), 3, "JSON text"),
        (format!("{HEAD}tools = '[1'\n{USER}"), 3, "tools"),
        (format!("{HEAD}[options]\neffort = \"huge\"\n{USER}"), 4, "huge"),
    ] {
        let error = read(&text).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("s.toml:{line}: ")) && error.contains(named),
            "line {line}, {named}: {error}"
        );
    }
    assert!(read(&format!("{HEAD}messages = []\n")).unwrap_err().to_string().contains("needs messages"));
    assert!(Scenario::from_toml("a/b", "a.toml", &format!("{HEAD}{USER}")).is_err());
    let missing = Scenario::load(std::path::Path::new("no/such/file.toml")).unwrap_err();
    assert!(missing.to_string().contains("no/such/file.toml"), "{missing}");
}

#[test]
fn builtins_load_and_unknown_names_list_them() {
    for builtin in crate::list() {
        let content = Content::builtin(builtin.name).unwrap();
        assert_eq!(content.name(), builtin.name);
        assert!(!content.title().is_empty());
    }
    let error = Scenario::builtin("nothing").unwrap_err().to_string();
    assert!(error.contains("tic-tac-toe"), "{error}");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        let _ = read(&text);
    }

    #[test]
    fn any_pieces_are_read_or_refused(pieces in prop::collection::vec(prop::sample::select(vec![
        HEAD, USER, "tools = '[]'\n", "[options]\n", "thinking = true\n", "effort = \"max\"\n", "[[messages]]\n",
        "role = \"assistant\"\n", "content = \"é\"\n", "cut = { characters = 1 }\n", "interrupted = true\n", "tool_calls = []\n",
        "tools = [{}]\n", "[messages]\n", "=", "\"", "{",
    ]), 0..12)) {
        let _ = read(&pieces.concat());
    }

    #[test]
    fn any_file_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("any.toml");
        std::fs::write(&path, bytes).unwrap();
        let _ = Scenario::load(&path);
    }
}
