//! Identity of the weights.

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::inventory::{Expected, Role};
use super::pages::give_back;
use super::store::Store;
use super::{Dtype, RawTensor};
use crate::Result;

/// Tensors that are hashed side by side.
const TOGETHER: usize = 1024;

/// sha256 of bytes.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// sha256 over all tensors in canonical order: of each part its name, dtype, shape and the sha256 of its bytes. Tensors
/// are hashed in parallel; naming and sharding on disk don't matter.
pub(crate) fn weights(store: &Store, expected: &[Expected]) -> Result<[u8; 32]> {
    let mut all = Sha256::new();
    // Not all at once: the records of a deep model would be megabytes.
    let hashed = expected.chunks(TOGETHER).try_for_each(|some| {
        let parts = some.par_iter().map(|e| one(store, e)).collect::<Result<Vec<Vec<u8>>>>()?;
        parts.iter().for_each(|part| all.update(part));
        Ok(())
    });
    // Also what the system mapped around a tensor while others were read.
    give_back(store, 0..store.entries.len());
    hashed?;
    Ok(all.finalize().into())
}

fn one(store: &Store, e: &Expected) -> Result<Vec<u8>> {
    let mut record = Vec::new();
    if let Role::Linear(_) = e.role {
        let (w, ids) = store.linear(&e.name)?;
        let parts =
            [("weight", Some(w.data)), ("scale", w.scale), ("global", w.global_scale), ("input", w.input_scale)];
        for (part, tensor) in parts {
            if let Some(t) = tensor {
                write(&mut record, &e.name, part, &t);
            }
        }
        // Every byte is read here, and none of them is needed afterwards.
        give_back(store, ids);
    } else {
        let (t, id) = store.tensor(&e.name)?;
        write(&mut record, &e.name, "value", &t);
        give_back(store, [id]);
    }
    Ok(record)
}

fn write(record: &mut Vec<u8>, name: &str, part: &str, t: &RawTensor<'_>) {
    let dtype = match t.dtype {
        Dtype::F8E4M3 => "e4m3",
        Dtype::F8E8M0 => "e8m0",
        Dtype::Packed4 => "packed4",
        Dtype::Bf16 => "bf16",
        Dtype::F32 => "f32",
        Dtype::I64 => "i64",
        Dtype::I32 => "i32",
    };
    record.extend(format!("{name}\0{part}\0{dtype}\0{:?}\0", t.shape).into_bytes());
    record.extend(sha256(t.bytes));
}
