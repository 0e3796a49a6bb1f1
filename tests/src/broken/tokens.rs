//! Broken token files.

use super::edit::Files;
use super::{Broken, Kind, Row};

/// A whole one, of the oracle's vocabulary of 512.
pub(super) const WHOLE: &str = r#"{"sequences":[{"id":"a","input_ids":[1,2,3]},{"id":"b","input_ids":[511]}]}"#;

const FILE: &str = "tokens.json";

fn put(files: &mut Files, text: &str) {
    files.insert(FILE.to_string(), text.as_bytes().to_vec());
}

pub(super) fn all() -> Vec<Broken> {
    let list: Vec<Row<'_>> = vec![
        ("no token file", &[FILE], |f| {
            f.remove(FILE);
        }),
        ("empty token file", &[FILE], |f| put(f, "")),
        ("token file that ends in the middle", &[FILE], |f| put(f, &WHOLE[..40])),
        ("token file that isn't UTF-8", &[FILE], |f| {
            f.insert(FILE.to_string(), b"{\"sequences\":\xff}".to_vec());
        }),
        ("token file that is a bare list", &[FILE], |f| put(f, "[1,2,3]")),
        ("no sequences field", &[FILE, "sequences"], |f| put(f, r#"{"input_ids":[1]}"#)),
        ("no sequence", &[FILE, "sequence"], |f| put(f, r#"{"sequences":[]}"#)),
        ("sequence without ids", &[FILE, "input_ids"], |f| put(f, r#"{"sequences":[{"id":"a"}]}"#)),
        ("empty sequence", &[FILE, "a"], |f| put(f, r#"{"sequences":[{"id":"a","input_ids":[]}]}"#)),
        ("sequence without a name", &[FILE, "id"], |f| put(f, r#"{"sequences":[{"input_ids":[1]}]}"#)),
        ("two sequences of one name", &[FILE, "a"], |f| {
            put(f, r#"{"sequences":[{"id":"a","input_ids":[1]},{"id":"a","input_ids":[2]}]}"#);
        }),
        ("name that can't be part of a key", &[FILE, "a/b"], |f| {
            put(f, r#"{"sequences":[{"id":"a/b","input_ids":[1]}]}"#);
        }),
        ("empty name", &[FILE], |f| put(f, r#"{"sequences":[{"id":"","input_ids":[1]}]}"#)),
        ("negative id", &[FILE, "-1"], |f| put(f, r#"{"sequences":[{"id":"a","input_ids":[1,-1]}]}"#)),
        ("id with a fraction", &[FILE, "1.5"], |f| put(f, r#"{"sequences":[{"id":"a","input_ids":[1.5]}]}"#)),
        ("id beyond 32 bits", &[FILE, "4294967296"], |f| {
            put(f, r#"{"sequences":[{"id":"a","input_ids":[4294967296]}]}"#);
        }),
        ("id outside the vocabulary", &["512"], |f| put(f, r#"{"sequences":[{"id":"a","input_ids":[1,2,512]}]}"#)),
        ("unknown field", &[FILE, "temperature"], |f| {
            put(f, r#"{"sequences":[{"id":"a","input_ids":[1],"temperature":1}]}"#);
        }),
    ];
    list.into_iter().map(|(name, says, breaks)| Broken { name, kind: Kind::Tokens, says, breaks }).collect()
}
