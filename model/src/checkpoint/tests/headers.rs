//! Files that are not whole: one clear error each, never a panic; and nothing that the format's own reader refuses.

use proptest::prelude::*;
use safetensors::SafeTensors;

use crate::checkpoint::header;
use crate::testing::{Model, file};

#[track_caller]
fn refuses(bytes: &[u8], words: &[&str]) {
    let message = header::read(bytes).expect_err("must be refused").to_string();
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}

const A: &str = r#""a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#;

#[test]
fn a_whole_file_is_read() {
    let entries = header::read(&file(&format!("{{{A}}}"), &[0; 8])).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].name.as_str(), entries[0].shape.as_slice()), ("a", [2].as_slice()));
    assert_eq!(entries[0].range.len(), 8);
    // A file without tensors is whole, too.
    assert!(header::read(&file("{}", &[])).unwrap().is_empty());
    let meta = format!(r#"{{"__metadata__":{{"format":"pt"}},{A}}}"#);
    assert_eq!(header::read(&file(&meta, &[0; 8])).unwrap(), {
        let mut moved = entries.clone();
        moved[0].range = 8 + meta.len()..16 + meta.len();
        moved
    });
}

#[test]
fn damaged_files_are_refused_by_tensor() {
    let whole = file(&format!("{{{A}}}"), &[0; 8]);
    refuses(&[], &["too short", "0 bytes"]);
    refuses(&whole[..7], &["too short"]);
    refuses(&whole[..20], &["header is longer than the file", "truncated"]);
    refuses(&whole[..whole.len() - 1], &["tensor a", "beyond the file", "truncated"]);
    refuses(&[whole.as_slice(), &[0]].concat(), &["left over"]);
    refuses(&u64::MAX.to_le_bytes(), &["header is longer"]);
    refuses(&file("{", &[]), &["not the JSON"]);
    refuses(&file("[]", &[]), &["not the JSON"]);
    refuses(&file("\u{0}\u{0}", &[]), &["not the JSON"]);
    refuses(&file(&format!("{{{A},{A}}}"), &[0; 8]), &["tensor `a` twice"]);
    let two = |b: &str| format!("{{{A},{b}}}");
    let b = |dtype: &str, shape: &str, at: &str| {
        two(&format!(r#""b":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{at}}}"#))
    };
    refuses(&file(&b("F32", "[1]", "[4,8]"), &[0; 8]), &["tensor b", "overlap"]);
    refuses(&file(&b("F32", "[1]", "[12,16]"), &[0; 16]), &["tensor b", "belong to no tensor"]);
    refuses(&file(&b("F32", "[1]", "[12,8]"), &[0; 16]), &["tensor b", "end before they start"]);
    refuses(&file(&b("F32", "[3]", "[8,16]"), &[0; 16]), &["tensor b", "don't fit", "12 bytes"]);
    refuses(&file(&b("Q4_0", "[8]", "[8,16]"), &[0; 16]), &["tensor b", "unknown dtype", "Q4_0"]);
    refuses(&file(&b("F4", "[3]", "[8,10]"), &[0; 10]), &["tensor b", "don't fit"]);
    refuses(&file(&b("F32", "[-1]", "[8,16]"), &[0; 16]), &["not the JSON"]);
    refuses(&file(&b("F32", "[18446744073709551615,2]", "[8,16]"), &[0; 16]), &["tensor b", "overflows"]);
    refuses(&file(&b("I8", "[18446744073709551615]", "[8,18446744073709551615]"), &[0; 8]), &["beyond the file"]);
    refuses(&file(&b("I8", "[0,0,0,0,0,0,0,0,0]", "[8,8]"), &[0; 8]), &["too many axes"]);
}

#[test]
fn every_truncation_of_a_checkpoint_is_refused() {
    let files = Model::new().files();
    let bytes = &files["model.safetensors"];
    for len in (0..bytes.len()).step_by(997) {
        let mut cut = files.clone();
        cut.insert("model.safetensors".to_string(), bytes[..len].into());
        let message = crate::Checkpoint::from_memory("cut", cut).expect_err("must be refused").to_string();
        assert!(message.contains("model.safetensors"), "{message}");
    }
}

proptest! {
    #[test]
    fn any_bytes_give_an_error_or_entries(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = header::read(&bytes);
    }

    #[test]
    fn any_header_text_gives_an_error_or_entries(text in "[{}\\[\\]\":,a0-9]{0,60}", data in 0usize..20) {
        let _ = header::read(&file(&text, &vec![0; data]));
    }

    /// What this reader takes, the format's own takes as well, with the same meaning.
    #[test]
    fn a_changed_header_is_taken_only_if_the_formats_own_reader_takes_it(
        at in 0usize..4000, byte: u8, again in proptest::option::of((0usize..4000, any::<u8>())),
    ) {
        let files = small();
        let mut bytes = files.clone();
        for (at, byte) in [(at, byte)].into_iter().chain(again) {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Ok(entries) = header::read(&bytes) {
            let theirs = SafeTensors::deserialize(&bytes);
            prop_assert!(theirs.is_ok(), "taken here only");
            let theirs = theirs.unwrap();
            prop_assert_eq!(theirs.len(), entries.len());
            for e in entries {
                let view = theirs.tensor(&e.name).unwrap();
                prop_assert_eq!(view.shape(), &e.shape[..]);
                prop_assert_eq!(view.dtype(), e.stored);
                prop_assert_eq!(view.data(), &bytes[e.range]);
            }
        }
    }

    #[test]
    fn a_changed_checkpoint_opens_or_gives_one_error(at in 0usize..20_000, byte: u8) {
        let mut files = Model::new().files();
        let mut bytes = files["model.safetensors"].to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        files.insert("model.safetensors".to_string(), bytes.into());
        if let Ok(c) = crate::Checkpoint::from_memory("changed", files) {
            for e in c.inventory().iter().filter(|e| e.shape.len() == 2 && !e.name.contains("hc_")) {
                let _ = c.tensor(&e.disk_name());
            }
        }
    }
}

/// A small file with one tensor of each kind of byte.
fn small() -> Vec<u8> {
    let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
        "b":{"dtype":"F8_E4M3","shape":[2,3],"data_offsets":[8,14]},"c":{"dtype":"I64","shape":[],"data_offsets":[14,22]},
        "d":{"dtype":"BF16","shape":[0,5],"data_offsets":[22,22]}}"#;
    file(header, &[7; 22])
}
