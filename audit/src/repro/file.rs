//! A safetensors file: length of the header, the header as json, the values.

use karat_seam::{Data, Tensor};
use serde_json::{Map, Value, json};

/// The file's bytes. Tensors by name, in this order.
pub(super) fn safetensors(tensors: &[(String, Tensor)]) -> Vec<u8> {
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
    header.insert("__metadata__".to_string(), json!({"format": "karat-repro/1"}));
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
