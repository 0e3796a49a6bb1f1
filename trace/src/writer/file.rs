//! Writes one safetensors file without holding its bytes a second time.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use karat_model::Result;
use karat_seam::{Data, Tensor};
use serde_json::{Map, Value, json};

use super::io;
use super::pieces::Pieces;

/// Bytes of a block where elements have to be turned.
const BLOCK: usize = 4 << 20;

/// A file of these tensors; nothing is written over. Returns the file, still open, for who brings it to the disk.
pub(super) fn write(path: &Path, tensors: &[(String, Pieces)]) -> Result<File> {
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
    let body = || -> std::io::Result<File> {
        let mut out = File::create_new(path)?;
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        for (_, tensor) in &sorted {
            match &tensor.data {
                Data::F32(v) => put(&mut out, v, f32::to_le_bytes)?,
                Data::F64(v) => put(&mut out, v, f64::to_le_bytes)?,
                Data::I64(v) => put(&mut out, v, i64::to_le_bytes)?,
                Data::U8(v) => out.write_all(v)?,
            }
        }
        Ok(out)
    };
    body().map_err(|e| io("trace file can't be written", path, &e))
}

/// Elements as bytes: where memory holds them as the file does, no copy is made.
fn put<T: bytemuck::NoUninit, const N: usize>(
    out: &mut File,
    values: &[T],
    bytes: impl Fn(T) -> [u8; N],
) -> std::io::Result<()> {
    if cfg!(target_endian = "little") {
        return out.write_all(bytemuck::cast_slice(values));
    }
    let mut block = vec![0; values.len().min(BLOCK / N) * N];
    for values in values.chunks(BLOCK / N) {
        let block = &mut block[..values.len() * N];
        for (to, v) in block.as_chunks_mut::<N>().0.iter_mut().zip(values) {
            *to = bytes(*v);
        }
        out.write_all(block)?;
    }
    Ok(())
}

fn element(tensor: &Tensor) -> (&'static str, usize) {
    match tensor.data {
        Data::F32(_) => ("F32", 4),
        Data::F64(_) => ("F64", 8),
        Data::I64(_) => ("I64", 8),
        Data::U8(_) => ("U8", 1),
    }
}
