//! Marks go into messages and come out again.

use karat_model::prompt::{Json, Message, Role};

use super::{Place, read, take, write};
use crate::grammar::marks::{Mark, mark};

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

#[test]
fn marks_come_out_and_go_back() {
    let mut message = Message::new(
        Role::Assistant,
        format!("a{}, b{}.", mark(" K1", Mark::Free), mark(" L2", Mark::Plant { fact: 3 })),
    );
    message.reasoning_content = Some(mark("why", Mark::Answer { fact: 9999, kind: 5 }));
    let (clean, marks) = take(message.clone());
    assert_eq!((clean.content[0].as_str(), clean.reasoning_content.as_deref()), ("a K1, b L2.", Some("why")));
    let found: Vec<_> = marks.iter().map(|m| (m.place, m.range.clone(), m.mark)).collect();
    assert_eq!(
        found,
        [
            (Place::Reasoning, 0..3, Mark::Answer { fact: 9999, kind: 5 }),
            (Place::Content(0), 1..4, Mark::Free),
            (Place::Content(0), 7..10, Mark::Plant { fact: 3 }),
        ]
    );
    assert_eq!(write(&clean, &marks), message);
    // What the client cut has no mark.
    let mut cut = clean.clone();
    cut.content[0].truncate(5);
    assert_eq!(write(&cut, &marks).content[0], format!("a{},", mark(" K1", Mark::Free)));
}

#[test]
fn a_file_names_stretches_by_their_text() {
    let message = Message::new(Role::Assistant, "it is K1, not K12: K1");
    let found =
        read("answers", &json(r#"[{"fact": 1, "text": "K1", "nth": 2, "kind": "corrected"}]"#), &message).unwrap();
    // The space before belongs to the word's token.
    assert_eq!((found[0].range.clone(), found[0].mark), (18..21, Mark::Answer { fact: 1, kind: 3 }));
    for (bad, named) in [
        (r#"[{"fact": 1, "text": "K1", "nth": 3}]"#, "does not say"),
        (r#"[{"fact": 1, "text": ""}]"#, "fact = NUMBER"),
        (r#"[{"fact": 10000, "text": "K1"}]"#, "fact = NUMBER"),
        (r#"[{"fact": 1, "text": "K1", "kind": "odd"}]"#, "check_digit"),
        (r#"[{"fact": 1, "text": "K1", "in": "arguments"}]"#, "does not say"),
        (r#"[{"fact": 1, "text": "K1", "colour": 2}]"#, "fact = NUMBER"),
        (r#"{"fact": 1}"#, "a list"),
    ] {
        let error = read("answers", &json(bad), &message).unwrap_err().to_string();
        assert!(error.contains(named), "{bad}: {error}");
    }
}
