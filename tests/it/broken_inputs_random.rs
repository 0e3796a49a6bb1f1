//! Random damage: whole inputs with random edits, and random bytes, through every reader. Nothing may panic, and an
//! error is one line.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use karat_model::{Checkpoint, Error};
use karat_tests::tiny_v4_files;
use proptest::prelude::*;

/// The whole checkpoint, unpacked once.
static WHOLE: LazyLock<BTreeMap<String, Arc<[u8]>>> = LazyLock::new(tiny_v4_files);

/// One edit of a file's bytes. Places are fractions, so that they fit any length.
#[derive(Debug, Clone)]
enum Edit {
    /// Cut off the end.
    Truncate(f64),
    /// Overwrite from here.
    Overwrite(f64, Vec<u8>),
    /// Insert here.
    Insert(f64, Vec<u8>),
    /// Take some bytes out.
    Remove(f64, usize),
    /// Copy some bytes from one place to another.
    Copy(f64, f64, usize),
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>, within: usize) {
        let within = within.min(bytes.len());
        let at = |part: f64| (part * within as f64) as usize;
        match self {
            Self::Truncate(part) => bytes.truncate(at(*part)),
            Self::Overwrite(part, new) => {
                let start = at(*part);
                let end = (start + new.len()).min(bytes.len());
                bytes[start..end].copy_from_slice(&new[..end - start]);
            }
            Self::Insert(part, new) => {
                bytes.splice(at(*part)..at(*part), new.iter().copied());
            }
            Self::Remove(part, n) => {
                let start = at(*part);
                bytes.drain(start..(start + n).min(bytes.len()));
            }
            Self::Copy(from, to, n) => {
                let from = at(*from);
                let piece = bytes[from..(from + n).min(bytes.len())].to_vec();
                Self::Overwrite(*to, piece).apply(bytes, within);
            }
        }
    }
}

/// Bytes that mean something in JSON and in numbers, and any others.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let telling: Vec<&'static [u8]> = vec![
        b"0",
        b"-1",
        b"1e999",
        b"null",
        b"[]",
        b"{}",
        b"\"",
        b"[",
        b"}",
        b",",
        b":",
        b"\\u0000",
        b"9007199254740993",
        b"18446744073709551615",
        b"1.5",
        b"true",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x7f",
    ];
    prop_oneof![prop::sample::select(telling).prop_map(<[u8]>::to_vec), prop::collection::vec(any::<u8>(), 1..12),]
}

fn edit() -> impl Strategy<Value = Edit> {
    let part = || 0.0..1.0;
    prop_oneof![
        1 => part().prop_map(Edit::Truncate),
        6 => (part(), bytes()).prop_map(|(at, b)| Edit::Overwrite(at, b)),
        3 => (part(), bytes()).prop_map(|(at, b)| Edit::Insert(at, b)),
        3 => (part(), 1usize..40).prop_map(|(at, n)| Edit::Remove(at, n)),
        2 => (part(), part(), 1usize..200).prop_map(|(a, b, n)| Edit::Copy(a, b, n)),
    ]
}

/// An error is for people: one line that says something.
fn one_line(error: &Error) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains('\n') && text.len() < 4000, "{} bytes: {text:.200}", text.len());
}

/// Length of a safetensors header: damage there is what a reader has to survive.
fn header_len(file: &[u8]) -> usize {
    let (len, _) = file.split_first_chunk::<8>().expect("a whole file");
    8 + u64::from_le_bytes(*len) as usize
}

fn open(files: &BTreeMap<String, Arc<[u8]>>) {
    if let Err(error) = Checkpoint::from_memory("damaged", files.clone()) {
        one_line(&error);
    }
}

proptest! {
    #[test]
    fn a_damaged_config_is_read_or_refused(edits in prop::collection::vec(edit(), 1..4)) {
        let mut files = WHOLE.clone();
        let mut config = files["config.json"].to_vec();
        edits.iter().for_each(|e| e.apply(&mut config, usize::MAX));
        files.insert("config.json".to_string(), config.into());
        open(&files);
    }

    #[test]
    fn a_damaged_header_is_read_or_refused(edits in prop::collection::vec(edit(), 1..4)) {
        let mut files = WHOLE.clone();
        let mut weights = files["model.safetensors"].to_vec();
        let within = header_len(&weights);
        edits.iter().for_each(|e| e.apply(&mut weights, within));
        files.insert("model.safetensors".to_string(), weights.into());
        open(&files);
    }

    #[test]
    fn random_bytes_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        name in prop::sample::select(vec!["config.json", "model.safetensors", "model.safetensors.index.json"]),
    ) {
        let mut files = WHOLE.clone();
        files.insert(name.to_string(), bytes.into());
        open(&files);
    }
}
