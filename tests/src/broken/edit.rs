//! Breaks safetensors files by hand: the header as JSON, the data as bytes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Files by relative name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Splits a whole safetensors file into header and data.
fn split(file: &[u8]) -> (Map<String, Value>, Vec<u8>) {
    let (len, rest) = file.split_first_chunk::<8>().expect("a whole file");
    let len = u64::from_le_bytes(*len) as usize;
    (serde_json::from_slice(&rest[..len]).expect("a whole header"), rest[len..].to_vec())
}

/// Joins header text and data; the header may be anything.
pub(super) fn join(header: &str, data: &[u8]) -> Vec<u8> {
    let padded = format!("{header}{}", " ".repeat(header.len().next_multiple_of(8) - header.len()));
    [&(padded.len() as u64).to_le_bytes(), padded.as_bytes(), data].concat()
}

/// Edits the header of `files[name]`; the data stays.
pub(super) fn header(files: &mut Files, name: &str, edit: impl FnOnce(&mut Map<String, Value>)) {
    let (mut head, data) = split(&files[name]);
    edit(&mut head);
    files.insert(name.to_string(), join(&Value::Object(head).to_string(), &data));
}

/// Edits the header's text of `files[name]`: what JSON can't say twice.
pub(super) fn text(files: &mut Files, name: &str, edit: impl FnOnce(&str) -> String) {
    let (head, data) = split(&files[name]);
    files.insert(name.to_string(), join(&edit(&Value::Object(head).to_string()), &data));
}

/// Edits the bytes of one tensor in place.
pub(super) fn values(files: &mut Files, name: &str, tensor: &str, edit: impl FnOnce(&mut [u8])) {
    let (head, mut data) = split(&files[name]);
    let offsets = &head[tensor]["data_offsets"];
    let at = |i: usize| offsets[i].as_u64().expect("an offset") as usize;
    edit(&mut data[at(0)..at(1)]);
    files.insert(name.to_string(), join(&Value::Object(head).to_string(), &data));
}

/// Takes a tensor out of the file, header and bytes.
pub(super) fn remove(files: &mut Files, name: &str, tensor: &str) {
    let all = tensors(&files[name]).into_iter().filter(|t| t.0 != tensor).collect();
    files.insert(name.to_string(), pack(all));
}

/// Name, dtype, shape, bytes.
pub(super) type Stored = (String, String, Vec<u64>, Vec<u8>);

/// All tensors of a whole file, in the order of their bytes.
pub(super) fn tensors(file: &[u8]) -> Vec<Stored> {
    let (head, data) = split(file);
    let mut out: Vec<(usize, Stored)> = Vec::new();
    for (name, info) in head.into_iter().filter(|(name, _)| name != "__metadata__") {
        let at = |i: usize| info["data_offsets"][i].as_u64().expect("an offset") as usize;
        let shape = info["shape"].as_array().expect("a shape").iter().map(|d| d.as_u64().expect("a size")).collect();
        let dtype = info["dtype"].as_str().expect("a dtype").to_string();
        out.push((at(0), (name, dtype, shape, data[at(0)..at(1)].to_vec())));
    }
    out.sort_by_key(|(at, _)| *at);
    out.into_iter().map(|(_, tensor)| tensor).collect()
}

/// A safetensors file of these tensors.
pub(super) fn pack(tensors: Vec<Stored>) -> Vec<u8> {
    let (mut head, mut data) = (Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let end = data.len() + bytes.len();
        head.insert(name, json!({"dtype": dtype, "shape": shape, "data_offsets": [data.len(), end]}));
        data.extend(bytes);
    }
    join(&Value::Object(head).to_string(), &data)
}

/// Edits a JSON file.
pub(super) fn json_file(files: &mut Files, name: &str, edit: impl FnOnce(&mut Map<String, Value>)) {
    let mut map: Map<String, Value> = serde_json::from_slice(&files[name]).expect("whole JSON");
    edit(&mut map);
    files.insert(name.to_string(), Value::Object(map).to_string().into_bytes());
}
