//! One safetensors file: mapped, its header checked whole.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use karat_model::files::{Entry, safetensors_header};
use karat_model::{Error, Result};
use karat_seam::Tensor;

use crate::values::decode;
use crate::{Dtype, mmap};

/// Bytes of a file, mapped or held.
enum Blob {
    Mapped(memmap2::Mmap),
    Held(Arc<[u8]>),
}

/// A tensor as it lies in a file: nothing is copied or decoded.
#[derive(Debug, Clone, Copy)]
pub struct RawTensor<'a> {
    /// Element type.
    pub dtype: Dtype,
    /// Extent of each axis.
    pub shape: &'a [usize],
    /// Little-endian elements, row-major, of any alignment.
    pub bytes: &'a [u8],
}

/// A safetensors file with its tensors by name.
pub struct TensorFile {
    label: String,
    blob: Blob,
    entries: BTreeMap<String, Entry>,
}

impl TensorFile {
    /// Opens and checks a file. Errors name the file and the tensor.
    pub fn open(path: &Path) -> Result<Self> {
        let blob = mmap::map(path)?.map_or_else(|| Blob::Held(Arc::from([])), Blob::Mapped);
        Self::new(path.display().to_string(), blob)
    }

    /// A file held in memory.
    pub fn from_memory(label: &str, bytes: Arc<[u8]>) -> Result<Self> {
        Self::new(label.into(), Blob::Held(bytes))
    }

    fn new(label: String, blob: Blob) -> Result<Self> {
        let entries = safetensors_header(blob.bytes()).map_err(|e| e.at(&label))?;
        Ok(Self { label, blob, entries: entries.into_iter().map(|e| (e.name.clone(), e)).collect() })
    }

    /// Path or label, for messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Names of the tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Shape of a tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.entries.get(name).map(|e| &*e.shape)
    }

    /// Element type of a tensor; an error for one that traces can't hold.
    pub fn dtype(&self, name: &str) -> Result<Dtype> {
        let entry = self.entry(name)?;
        Dtype::of(entry.stored).ok_or_else(|| {
            self.fail(name, "dtype that traces don't have")
                .expected("F64 F32 BF16 F16 F8_E4M3 F8_E8M0 I64 I32 I8 U8 or BOOL")
                .found(format!("{:?}", entry.stored))
        })
    }

    /// A tensor, decoded.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let RawTensor { dtype, shape, bytes } = self.raw(name)?;
        decode(dtype, shape, bytes).map_err(|e| e.at(format!("tensor {name}")).at(&self.label))
    }

    /// A tensor's bytes where they lie.
    pub fn raw(&self, name: &str) -> Result<RawTensor<'_>> {
        let dtype = self.dtype(name)?;
        let entry = self.entry(name)?;
        let bytes = self.blob.bytes().get(entry.range.clone()).unwrap_or_default();
        Ok(RawTensor { dtype, shape: &entry.shape, bytes })
    }

    /// All bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.blob.bytes()
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        self.entries.get(name).ok_or_else(|| self.fail(name, "no such tensor"))
    }

    fn fail(&self, name: &str, what: &str) -> Error {
        Error::input(what).at(format!("tensor {name}")).at(&self.label)
    }
}

impl Blob {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Held(bytes) => bytes,
        }
    }
}
