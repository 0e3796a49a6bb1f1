//! Other engines' dumps: tensors with names, out of files that are not trusted.
//!
//! | module | reads |
//! |---|---|
//! | [`pt`] | torch.save's `.pt`: zip and pickle, read as data; SGLang's dumper and forward hooks, transformers' hidden_states |
//! | [`npy`] | numpy's `.npy` and `.npz` |
//! | [`folder`], [`names`] | folders of these and of safetensors; what a file's name says about its tensors |
//! | [`map`] | mapping files: other names, axes, shards and chunks, made into taps |
//!
//! Files are mapped; a tensor is a view of its bytes until it is compared, so memory holds one tensor at a time (and
//! none of a dense one). Arbitrary bytes give tensors or one error with its place, in memory bounded by the file.

mod array;
mod element;
pub(crate) mod folder;
pub mod map;
pub(crate) mod names;
mod npy;
mod pickle;
#[cfg(test)]
mod properties;
mod pt;
mod zip;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use karat_model::{Error, Result};

use crate::TensorFile;
use crate::blob::Blob;

pub use array::Array;
pub use element::Element;

/// What a file holds.
#[derive(Default)]
pub(crate) struct Contents {
    /// Tensors by name.
    pub(crate) arrays: BTreeMap<String, Array>,
    /// Names of what can't be compared, and why: never left out in silence.
    pub(crate) unread: Vec<(String, String)>,
}

/// Formats by the end of a file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Format {
    Safetensors,
    Torch,
    Npy,
    Npz,
}

impl Format {
    /// Of a path; `None` for a name that says nothing.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let end = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match end.as_str() {
            "safetensors" => Self::Safetensors,
            "pt" | "pth" => Self::Torch,
            "npy" => Self::Npy,
            "npz" => Self::Npz,
            _ => return None,
        })
    }
}

/// Reads a file of a known format. Errors (input) name the file.
pub(crate) fn read(path: &Path, format: Format) -> Result<Contents> {
    if format == Format::Safetensors {
        let file = TensorFile::open(path)?;
        let mut out = Contents::default();
        for name in file.names() {
            match file.dtype(name) {
                Ok(_) => drop(out.arrays.insert(name.to_string(), file.array(name)?)),
                Err(e) => out.unread.push((name.to_string(), format!("element type {}", e.found.unwrap_or_default()))),
            }
        }
        return Ok(out);
    }
    let blob = Arc::new(Blob::open(path)?);
    read_blob(&blob, format).map_err(|e| e.at(path.display()))
}

/// The same of bytes.
pub(crate) fn read_blob(blob: &Arc<Blob>, format: Format) -> Result<Contents> {
    match format {
        Format::Torch => pt::read(blob),
        Format::Npy => npy::read(blob),
        Format::Npz => npy::read_archive(blob),
        Format::Safetensors => Err(Error::input("not read from memory")),
    }
}
