//! Which files hold the tensors: `model.safetensors.index.json`, or every `*.safetensors` of the folder.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::source::{Source, plain_name};
use crate::{Error, Result, json};

/// The index file of a sharded checkpoint.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// The only file of a checkpoint in one piece.
const WHOLE: &str = "model.safetensors";

/// Largest index worth reading: Flash's has 72,000 tensors in about 6 MB.
const LIMIT: usize = 256 << 20;

/// The files of a checkpoint's tensors.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// File names, sorted.
    pub(crate) shards: Vec<String>,
    /// Tensor name to shard, when there is an index.
    pub(crate) map: Option<BTreeMap<String, String>>,
    /// `metadata.total_size`, when the index has it.
    pub(crate) total_size: Option<u64>,
    /// Safetensors files of the folder that are not read.
    pub(crate) stray: Vec<String>,
}

/// Finds the shards.
pub(crate) fn layout(source: &Source) -> Result<Layout> {
    let files: Vec<String> =
        source.list()?.into_iter().filter(|n| n.len() > ".safetensors".len() && n.ends_with(".safetensors")).collect();
    if let Some(bytes) = source.read(INDEX, LIMIT as u64)? {
        let mut layout = read(&bytes).map_err(|e| e.at(INDEX))?;
        let present: BTreeSet<&str> = files.iter().map(String::as_str).collect();
        let missing: Vec<&String> = layout.shards.iter().filter(|s| !present.contains(s.as_str())).collect();
        if let Some(first) = missing.first() {
            return Err(Error::input("shard is missing")
                .at(first)
                .expected(format!("{} files named by {INDEX}", layout.shards.len()))
                .found(format!("{} of them missing", missing.len()))
                .hint("download the rest of the checkpoint"));
        }
        layout.stray = files.into_iter().filter(|f| layout.shards.binary_search(f).is_err()).collect();
        return Ok(layout);
    }
    if files.is_empty() {
        return Err(Error::input("no weights")
            .expected("model.safetensors, or shards with model.safetensors.index.json")
            .hint("name the folder that holds the safetensors files"));
    }
    without_index(&files)
}

/// Without an index: `model.safetensors` alone, else one set of numbered shards, else every file.
fn without_index(files: &[String]) -> Result<Layout> {
    let numbered: Vec<(&str, &str)> = files.iter().filter_map(|f| shard_number(f)).collect();
    let whole = files.iter().any(|f| f == WHOLE);
    if let Some(&(stem, count)) = numbered.first() {
        let other = if whole { Some(WHOLE.to_string()) } else { None };
        let other = other.or_else(|| {
            let (s, c) = numbered.iter().find(|n| **n != (stem, count))?;
            Some(format!("{s}-*-of-{c}.safetensors"))
        });
        if let Some(other) = other {
            return Err(Error::input("two sets of weights in one folder")
                .at(format!("{stem}-*-of-{count}.safetensors"))
                .found(format!("also {other}"))
                .hint(format!("delete one of them, or name the right files in {INDEX}")));
        }
        complete(files, stem, count)?;
    }
    let (stem_count, any) = (numbered.first().copied(), !numbered.is_empty());
    let mine = |f: &String| if whole { f == WHOLE } else { !any || shard_number(f) == stem_count };
    let (shards, stray) = files.iter().cloned().partition(mine);
    Ok(Layout { shards, stray, ..Layout::default() })
}

/// Reads an index file.
pub(crate) fn read(bytes: &[u8]) -> Result<Layout> {
    let top = json::object(INDEX, bytes, LIMIT)?;
    let Some(Value::Object(weights)) = top.get("weight_map") else {
        return Err(Error::input("index has no weight_map").expected("an object of tensor name to file name"));
    };
    let mut map = BTreeMap::new();
    let mut shards = BTreeSet::new();
    for (tensor, file) in weights {
        let Some(file) = file.as_str() else {
            return Err(Error::input("wrong value")
                .at(format!("weight_map.{tensor}"))
                .expected("a file name")
                .found(json::shown(file)));
        };
        plain_name(file).map_err(|e| e.at(format!("weight_map.{tensor}")))?;
        shards.insert(file.to_string());
        map.insert(tensor.clone(), file.to_string());
    }
    if shards.is_empty() {
        return Err(Error::input("index names no tensor").at("weight_map"));
    }
    let total_size = top.get("metadata").and_then(|m| m.get("total_size")).and_then(Value::as_u64);
    Ok(Layout { shards: shards.into_iter().collect(), map: Some(map), total_size, stray: Vec::new() })
}

/// `name-00001-of-00046.safetensors` says how many shards there must be.
fn complete(files: &[String], stem: &str, count: &str) -> Result<()> {
    let width = count.len();
    // The first missing shard ends the loop, so a count of millions costs nothing.
    let n: u64 = count.parse().unwrap_or(u64::MAX);
    for i in 1..=n {
        let want = format!("{stem}-{i:0width$}-of-{count}.safetensors");
        if !files.contains(&want) {
            return Err(Error::input("shard is missing")
                .at(&want)
                .expected(format!("{n} shards, as the others' names say"))
                .hint("download the rest of the checkpoint"));
        }
    }
    Ok(())
}

/// Stem and count (as written) of a numbered shard.
fn shard_number(file: &str) -> Option<(&str, &str)> {
    let base = file.strip_suffix(".safetensors")?;
    let (left, count) = base.rsplit_once("-of-")?;
    let (stem, number) = left.rsplit_once('-')?;
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    (digits(number) && digits(count)).then_some((stem, count))
}
