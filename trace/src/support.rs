//! Support for tests: safetensors bytes and traces made by hand, without this crate's writer.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

/// One tensor: name, dtype, shape, bytes.
pub(crate) type Raw<'a> = (&'a str, &'a str, Vec<usize>, Vec<u8>);

/// A safetensors file.
pub(crate) fn safetensors(tensors: &[Raw<'_>]) -> Arc<[u8]> {
    let mut header = Map::new();
    let mut body = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let start = body.len();
        body.extend_from_slice(bytes);
        let info = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, body.len()]});
        assert!(header.insert((*name).to_string(), info).is_none());
    }
    let header = Value::Object(header).to_string();
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(&body);
    out.into()
}

pub(crate) fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub(crate) fn i64s(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// `n` different f32 values.
pub(crate) fn ramp(n: usize) -> Vec<u8> {
    f32s(&(0..n).map(|i| i as f32 / 8.0).collect::<Vec<_>>())
}

/// A manifest of sequence `a` with ids 5, 6, 7 and one file `t.safetensors`.
pub(crate) fn manifest() -> Value {
    json!({
        "format": "karat-trace/1",
        "producer": "hand 1",
        "model": {"config_sha256": "ab".repeat(32), "weights_sha256": "01".repeat(32)},
        "mode": "eager",
        "sequences": [{"id": "a", "input_ids": [5, 6, 7]}],
        "history": [{"sequence": "a", "steps": [
            {"kind": "prefill", "start": 0, "end": 2}, {"kind": "decode", "start": 2, "end": 3}]}],
        "files": ["t.safetensors"],
    })
}

/// The files of a trace in memory.
pub(crate) fn files(manifest: &Value, tensors: &[Raw<'_>]) -> BTreeMap<String, Arc<[u8]>> {
    let text: Arc<[u8]> = manifest.to_string().into_bytes().into();
    [("manifest.json".to_string(), text), ("t.safetensors".to_string(), safetensors(tensors))].into()
}
