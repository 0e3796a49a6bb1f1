//! One safetensors file: mapped, its header checked whole.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use karat_model::files::{Entry, safetensors_header};
use karat_model::{Error, Result};
use karat_seam::Tensor;

use crate::Dtype;
use crate::blob::Blob;
use crate::import::{Array, Element};
use crate::values::decode;

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
    blob: Arc<Blob>,
    entries: BTreeMap<String, Entry>,
}

impl TensorFile {
    /// Opens and checks a file. Errors name the file and the tensor.
    pub fn open(path: &Path) -> Result<Self> {
        Self::new(path.display().to_string(), Blob::open(path)?)
    }

    /// A file held in memory.
    pub fn from_memory(label: &str, bytes: Arc<[u8]>) -> Result<Self> {
        Self::new(label.into(), Blob::Held(bytes))
    }

    fn new(label: String, blob: Blob) -> Result<Self> {
        let entries = safetensors_header(blob.bytes()).map_err(|e| e.at(&label))?;
        Ok(Self { label, blob: Arc::new(blob), entries: entries.into_iter().map(|e| (e.name.clone(), e)).collect() })
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

    /// A tensor as a view, for what turns and cuts it.
    pub(crate) fn array(&self, name: &str) -> Result<Array> {
        let (dtype, entry) = (self.dtype(name)?, self.entry(name)?);
        let element = Element::Stored(dtype);
        Array::dense(&self.blob, entry.range.clone(), element, entry.shape.clone())
            .map_err(|e| e.at(format!("tensor {name}")).at(&self.label))
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
