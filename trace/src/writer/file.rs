//! Writes one safetensors file without holding its bytes a second time.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use karat_model::Result;
use karat_seam::{Data, Tensor};
use serde_json::{Map, Value, json};

use super::io;
use super::pieces::Pieces;

pub(super) fn write(path: &Path, tensors: &[(String, Pieces)]) -> Result<()> {
    // Wide elements first: then every tensor is aligned for its element type.
    let mut sorted: Vec<(&str, &Tensor)> =
        tensors.iter().filter_map(|(key, p)| p.tensor().map(|t| (key.as_str(), t))).collect();
    sorted.sort_by_key(|(key, t)| (std::cmp::Reverse(element(t).1), *key));
    let mut header = Map::new();
    let mut at = 0;
    for (key, tensor) in &sorted {
        let (dtype, size) = element(tensor);
        let end = at + tensor.data.len() * size;
        header.insert((*key).into(), json!({"dtype": dtype, "shape": tensor.shape, "data_offsets": [at, end]}));
        at = end;
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let body = || -> std::io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create_new(path)?);
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        for (_, tensor) in &sorted {
            match &tensor.data {
                Data::F32(v) => v.iter().try_for_each(|x| out.write_all(&x.to_le_bytes()))?,
                Data::F64(v) => v.iter().try_for_each(|x| out.write_all(&x.to_le_bytes()))?,
                Data::I64(v) => v.iter().try_for_each(|x| out.write_all(&x.to_le_bytes()))?,
                Data::U8(v) => out.write_all(v)?,
            }
        }
        out.flush()
    };
    body().map_err(|e| io("trace file can't be written", path, &e))
}

fn element(tensor: &Tensor) -> (&'static str, usize) {
    match tensor.data {
        Data::F32(_) => ("F32", 4),
        Data::F64(_) => ("F64", 8),
        Data::I64(_) => ("I64", 8),
        Data::U8(_) => ("U8", 1),
    }
}
