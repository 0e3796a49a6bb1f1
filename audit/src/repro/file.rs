//! A safetensors file: length of the header, the header as json, the values.

use std::collections::BTreeMap;

use karat_seam::{Data, Tensor};
use serde_json::{Map, Value, json};

/// The file's bytes: tensors by name, in this order; the op and the constants of the config (as json) in its metadata.
pub(crate) fn safetensors(tensors: &[(String, Tensor)], op: &str, constants: &BTreeMap<&str, Value>) -> Vec<u8> {
    let mut header = Map::new();
    let mut values: Vec<u8> = Vec::new();
    for (name, tensor) in tensors {
        let start = values.len();
        let dtype = match &tensor.data {
            Data::F32(v) => {
                v.iter().for_each(|v| values.extend(v.to_le_bytes()));
                "F32"
            }
            Data::F64(v) => {
                v.iter().for_each(|v| values.extend(v.to_le_bytes()));
                "F64"
            }
            Data::I64(v) => {
                v.iter().for_each(|v| values.extend(v.to_le_bytes()));
                "I64"
            }
            Data::U8(v) => {
                values.extend(v);
                "U8"
            }
        };
        let place = json!({"dtype": dtype, "shape": tensor.shape, "data_offsets": [start, values.len()]});
        header.insert(name.clone(), place);
    }
    let constants = serde_json::to_string(constants).unwrap_or_default();
    let metadata = json!({"format": "karat-repro/1", "op": op, "constants": constants});
    header.insert("__metadata__".to_string(), metadata);
    let mut text = Value::Object(header).to_string();
    // Values begin at a multiple of eight.
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text.as_bytes());
    out.extend(values);
    out
}
