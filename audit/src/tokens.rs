//! Token files: `{"sequences":[{"id":"a","input_ids":[1,2,3]}]}`.

use std::collections::BTreeSet;
use std::path::Path;

use karat_model::{Error, Result};
use karat_seam::{Requests, Sequence};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    sequences: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    input_ids: Vec<i64>,
}

/// Reads a token file; every id must be below `vocab`.
pub fn read_tokens(path: &Path, vocab: usize) -> Result<Requests> {
    let bytes = std::fs::read(path).map_err(|e| Error::input(format!("cannot be read: {e}")).at(path.display()))?;
    parse_tokens(&bytes, vocab).map_err(|e| e.at(path.display()))
}

/// Reads a token file's bytes.
pub fn parse_tokens(bytes: &[u8], vocab: usize) -> Result<Requests> {
    let file: File = serde_json::from_slice(bytes).map_err(|e| {
        Error::input(format!("not a token file: {e}")).expected(r#"{"sequences":[{"id":"a","input_ids":[1,2,3]}]}"#)
    })?;
    if file.sequences.is_empty() {
        return Err(Error::input("the token file has no sequences"));
    }
    let mut names = BTreeSet::new();
    let mut requests = Requests::default();
    for entry in file.sequences {
        let place = format!("sequence `{}`", entry.id);
        if entry.id.is_empty() || entry.id.contains('/') {
            return Err(Error::input("a sequence id must be a name without `/`").at(place));
        }
        if !names.insert(entry.id.clone()) {
            return Err(Error::input("two sequences have this id").at(place));
        }
        if entry.input_ids.is_empty() {
            return Err(Error::input("a sequence has no ids")
                .at(place)
                .hint("give it at least one id or leave it out"));
        }
        let mut ids = Vec::with_capacity(entry.input_ids.len());
        for (position, id) in entry.input_ids.iter().enumerate() {
            match u32::try_from(*id).ok().filter(|id| (*id as usize) < vocab) {
                Some(id) => ids.push(id),
                None => {
                    return Err(Error::input("an id is outside the vocabulary")
                        .at(format!("{place}, position {position}"))
                        .expected(format!("0 to {}", vocab.saturating_sub(1)))
                        .found(id));
                }
            }
        }
        requests.seqs.push(Sequence::prompt(entry.id, ids));
    }
    Ok(requests)
}
