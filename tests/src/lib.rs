//! Support for the cross-crate tests: the oracle fixtures and comparisons.

pub mod broken;
mod cold;
mod oracle_taps;

pub use cold::{bits, cold_run};
pub use oracle_taps::OracleTaps;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use karat_seam::{Data, Tensor};
use safetensors::{Dtype, SafeTensors};

/// Folder of the committed fixtures.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// Unpacks a gzipped fixture.
pub fn unpack(relative: &str) -> Vec<u8> {
    let path = fixtures().join(format!("{relative}.gz"));
    let packed = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).expect("fixture is a whole gzip file");
    bytes
}

/// The files of the oracle's tiny checkpoint, for `Checkpoint::from_memory`.
pub fn tiny_v4_files() -> BTreeMap<String, std::sync::Arc<[u8]>> {
    let config = std::fs::read(fixtures().join("oracle/tiny-v4/config.json")).expect("fixture is committed");
    let model = unpack("oracle/tiny-v4/model.safetensors");
    [("config.json".to_string(), config.into()), ("model.safetensors".to_string(), model.into())].into()
}

/// An oracle file: `short`, `long` or `ops`. Keys ending in `@rows` hold the rows that `long_rows` lists.
pub fn oracle(name: &str) -> BTreeMap<String, Tensor> {
    read_safetensors(&unpack(&format!("oracle/oracle-{name}.safetensors")))
}

/// Positions of the rows that `@rows` tensors of oracle-long keep (those under the tensor's own row count).
pub fn long_rows() -> Vec<usize> {
    let bytes = unpack("oracle/oracle-long.safetensors");
    let (_, meta) = SafeTensors::read_metadata(&bytes).expect("fixture header");
    let rows = meta.metadata().as_ref().expect("metadata")["rows"].clone();
    serde_json::from_str(&rows).expect("a list of rows")
}

/// All tensors of a safetensors file (F32, I64, U8).
pub fn read_safetensors(bytes: &[u8]) -> BTreeMap<String, Tensor> {
    let file = SafeTensors::deserialize(bytes).expect("fixture is a whole safetensors file");
    let mut out = BTreeMap::new();
    for (name, view) in file.iter() {
        let b = view.data();
        let data = match view.dtype() {
            Dtype::F32 => Data::F32(b.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()),
            Dtype::I64 => Data::I64(b.chunks_exact(8).map(|c| i64::from_le_bytes(c.try_into().unwrap())).collect()),
            Dtype::U8 => Data::U8(b.to_vec()),
            other => panic!("{name}: no test needs {other:?}"),
        };
        out.insert(name.to_string(), Tensor::new(view.shape().to_vec(), data));
    }
    out
}

/// Largest |a-b| over the largest |b|, ignoring places where both are the same infinity.
pub fn rel_max(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len(), "lengths differ");
    let mut worst = 0f64;
    let mut max = 0f64;
    for (&x, &y) in a.iter().zip(b) {
        if x == y {
            if y.is_finite() {
                max = max.max(f64::from(y).abs());
            }
            continue;
        }
        let d = (f64::from(x) - f64::from(y)).abs();
        worst = if d.is_nan() { f64::INFINITY } else { worst.max(d) };
        max = max.max(f64::from(y).abs());
    }
    if worst == 0.0 { 0.0 } else { worst / max.max(f64::MIN_POSITIVE) }
}
