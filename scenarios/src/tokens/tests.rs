//! Token files: one clear error for each way to be wrong.

use proptest::prelude::*;

use super::read_tokens;
use karat_model::ErrorKind;

fn read(text: &str) -> karat_model::Result<karat_seam::Requests> {
    read_tokens("t.json", text.as_bytes(), 512)
}

#[test]
fn sequences_are_prompts() {
    let r = read(r#"{"sequences":[{"id":"a","input_ids":[0,511]},{"id":"b-1.x_","input_ids":[7]}]}"#).unwrap();
    assert_eq!(r.seqs.len(), 2);
    assert_eq!((r.seqs[0].id.as_str(), &*r.seqs[0].ids), ("a", &[0, 511][..]));
    assert!(r.seqs[0].turns.is_empty());
}

#[test]
fn each_fault_is_named() {
    let ids = |ids: &str| format!(r#"{{"sequences":[{{"id":"a","input_ids":[1]}},{{"id":"b","input_ids":[{ids}]}}]}}"#);
    for (text, named) in [
        (ids(""), "sequences[1] (b): input_ids: the sequence is empty"),
        (ids("3, 512"), "input_ids[1]: the id is beyond the vocabulary"),
        (ids("99999999999999999999"), "input_ids[0]"),
        (ids("4294967296"), "vocab_size 512"),
        (ids("-1"), "not a token id"),
        (ids("1.0"), "found 1.0"),
        (ids("\"7\""), "not a token id"),
        (ids("null"), "found null"),
        (ids("[1]"), "found [1]"),
        (r#"{"sequences":[]}"#.to_owned(), "no sequences"),
        (r#"{"sequences":[{"id":"a","input_ids":[1]},{"id":"a","input_ids":[1]}]}"#.to_owned(), "same id"),
        (r#"{"sequences":[{"id":"","input_ids":[1]}]}"#.to_owned(), "can't name"),
        (r#"{"sequences":[{"id":"a/b","input_ids":[1]}]}"#.to_owned(), "a/b"),
        (r#"{"sequences":[{"id":"a@1","input_ids":[1]}]}"#.to_owned(), "a@1"),
        (r#"{"sequences":[{"id":"a","input_ids":[1],"turns":[]}]}"#.to_owned(), "turns"),
        (r#"{"sequences":[{"id":"a"}]}"#.to_owned(), "input_ids"),
        (r#"{"sequences":[{"id":"a","input_ids":[1,2],"generated_from":2}]}"#.to_owned(), "generated_from"),
        (r#"{"sequences":[{"id":"a","input_ids":[1,2],"generated_from":0}]}"#.to_owned(), "generated_from"),
        (r#"{"sequence":[]}"#.to_owned(), "sequence"),
        ("[1,2]".to_owned(), "not a token file"),
        (String::new(), "not a token file"),
        (r#"{"sequences":[{"id":"a","input_ids":[1"#.to_owned(), "line 1"),
        ("[".repeat(100_000), "not a token file"),
    ] {
        let error = read(&text).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Input);
        let error = error.to_string();
        assert!(error.starts_with("t.json") && error.contains(named), "{named}: {error}");
    }
    assert!(read_tokens("t.json", b"\xff\xfe{}", 512).is_err());
}

#[test]
fn what_was_generated_is_a_span_of_its_own() {
    let text = r#"{"sequences":[{"id":"a","input_ids":[1,2,3],"generated_from":1},{"id":"b","input_ids":[4]}]}"#;
    let read = read(text).unwrap();
    let spans = read.seqs[0].spans();
    assert_eq!(spans.len(), 2);
    assert_eq!((spans[0].start, spans[0].end, spans[1].start, spans[1].end), (0, 1, 1, 3));
    assert_eq!(spans[1].kind, karat_seam::SpanKind::Generated);
    assert_eq!(read.seqs[1].spans().len(), 1);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_tokens("any", &bytes, 512);
    }

    #[test]
    fn what_is_accepted_obeys_the_vocabulary(ids in prop::collection::vec(0_i64..700, 1..20)) {
        let text = serde_json::json!({"sequences": [{"id": "a", "input_ids": ids}]}).to_string();
        match read(&text) {
            Ok(r) => prop_assert!(r.seqs[0].ids.iter().all(|&id| id < 512)),
            Err(_) => prop_assert!(ids.iter().any(|&id| id >= 512)),
        }
    }
}
