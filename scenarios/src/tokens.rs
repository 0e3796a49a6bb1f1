//! `--tokens FILE.json`: sequences of ids without any text.

use std::collections::HashSet;
use std::sync::Arc;

use karat_model::{Error, Result};
use karat_seam::{Requests, Sequence, Span, SpanKind, Turn};
use serde::Deserialize;
use serde_json::Value;

use crate::check_name;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    sequences: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    input_ids: Vec<Value>,
    /// Ids from here on were generated: what is served computes them token by token.
    #[serde(default)]
    generated_from: Option<u64>,
}

/// Reads `{"sequences":[{"id":"a","input_ids":[...]}]}`; each sequence is one prompt, up to `generated_from` where it has that. `label` names the file in
/// messages; ids must lie below `vocab_size`.
pub fn read_tokens(label: &str, bytes: &[u8], vocab_size: usize) -> Result<Requests> {
    let file: File = serde_json::from_slice(bytes).map_err(|e| {
        Error::input("not a token file")
            .at(label)
            .expected("{\"sequences\":[{\"id\":\"a\",\"input_ids\":[...]}]}")
            .found(e)
    })?;
    if file.sequences.is_empty() {
        return Err(Error::input("the file has no sequences").at(label));
    }
    let mut seen = HashSet::new();
    let mut seqs = Vec::with_capacity(file.sequences.len());
    for (i, entry) in file.sequences.into_iter().enumerate() {
        let place = format!("{label}: sequences[{i}]");
        check_name(&entry.id).map_err(|e| e.at("id").at(&place))?;
        if !seen.insert(entry.id.clone()) {
            return Err(Error::input("two sequences have the same id").at(place).found(format!("{:?}", entry.id)));
        }
        let ids = ids(&entry.input_ids, vocab_size).map_err(|e| e.at(format!("{place} ({})", entry.id)))?;
        let sequence = Sequence::prompt(entry.id, ids);
        seqs.push(match entry.generated_from {
            None => sequence,
            Some(from) => generated(sequence, from).map_err(|e| e.at(format!("{place}: generated_from")))?,
        });
    }
    Ok(Requests { seqs })
}

/// The same ids with those from `from` on as one generated span.
fn generated(sequence: Sequence, from: u64) -> Result<Sequence> {
    let all = sequence.ids.len() as u32;
    let Some(start) = u32::try_from(from).ok().filter(|n| (1..all).contains(n)) else {
        return Err(Error::input("no place to begin an answer")
            .expected(format!("a position from 1 on and below {all}, the number of ids"))
            .found(from));
    };
    let span = |kind, start, end| Span { kind, start, end };
    let spans = vec![span(SpanKind::Prompt, 0, start), span(SpanKind::Generated, start, all)];
    Ok(Sequence { turns: vec![Turn { spans, interrupted: false }], ..sequence })
}

fn ids(values: &[Value], vocab_size: usize) -> Result<Arc<[u32]>> {
    if values.is_empty() {
        return Err(Error::input("the sequence is empty").at("input_ids").expected("at least one id"));
    }
    let id = |(at, value): (usize, &Value)| {
        let id = value.as_u64().filter(|&id| id < vocab_size as u64).and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| {
            let what = if value.is_u64() { "the id is beyond the vocabulary" } else { "not a token id" };
            let found: String = value.to_string().chars().take(80).collect();
            Error::input(what)
                .at(format!("input_ids[{at}]"))
                .expected(format!("an integer of at least 0 and below vocab_size {vocab_size}"))
                .found(found)
        })
    };
    values.iter().enumerate().map(id).collect()
}

#[cfg(test)]
mod tests;
