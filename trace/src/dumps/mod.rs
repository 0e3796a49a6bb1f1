//! Named tensors of anything that can be compared without a model: traces and safetensors files.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use karat_model::{Error, Result};
use karat_seam::Tensor;

use crate::reader::is_trace;
use crate::{Dtype, RawTensor, TensorFile, Trace};

/// Named tensors from one place.
pub struct Dump {
    label: String,
    files: Vec<TensorFile>,
    /// File of each name.
    index: BTreeMap<String, usize>,
}

/// Opens a karat-trace folder, one `.safetensors` file, or a folder of them.
///
/// Errors (input): nothing there, not one of these, a broken file, a name in two files.
pub fn open_any(path: &Path) -> Result<Dump> {
    if is_trace(path) {
        let (label, files) = Trace::open(path)?.into_files();
        return Dump::new(label, files);
    }
    let label = path.display().to_string();
    let meta = std::fs::metadata(path).map_err(|e| {
        Error::input("can't be read").at(&label).found(e).hint("name a trace folder or a .safetensors file")
    })?;
    if meta.is_dir() {
        let fail = |e: std::io::Error| Error::input("folder can't be listed").at(&label).found(e);
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(path).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            if path.extension().is_some_and(|e| e == "safetensors") {
                paths.push(path);
            }
        }
        paths.sort();
        if paths.is_empty() {
            return Err(Error::input("folder holds no tensors").at(&label).expected("manifest.json or *.safetensors"));
        }
        return Dump::new(label, paths.iter().map(|p| TensorFile::open(p)).collect::<Result<_>>()?);
    }
    Dump::new(label, vec![TensorFile::open(path)?])
}

impl Dump {
    /// From opened files.
    pub fn new(label: String, files: Vec<TensorFile>) -> Result<Self> {
        let mut index = BTreeMap::new();
        for (number, file) in files.iter().enumerate() {
            for name in file.names() {
                if let Some(other) = index.insert(name.to_string(), number) {
                    let other: &TensorFile = &files[other];
                    return Err(Error::input("name is in two files")
                        .at(format!("tensor {name}"))
                        .at(file.label())
                        .found(other.label()));
                }
            }
        }
        Ok(Self { label, files, index })
    }

    /// Path, for messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// Shape of a tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.files[*self.index.get(name)?].shape(name)
    }

    /// Element type of a tensor; an error for a dtype that can't be compared.
    pub fn dtype(&self, name: &str) -> Result<Dtype> {
        self.file(name)?.dtype(name)
    }

    /// A tensor, decoded: f32 or f64 for floats, i64 for integers, u8 for bytes and masks.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        self.file(name)?.tensor(name)
    }

    /// A tensor's bytes where they lie.
    pub fn raw(&self, name: &str) -> Result<RawTensor<'_>> {
        self.file(name)?.raw(name)
    }

    fn file(&self, name: &str) -> Result<&TensorFile> {
        let number = self.index.get(name);
        number
            .map(|n| &self.files[*n])
            .ok_or_else(|| Error::input("no such tensor").at(format!("tensor {name}")).at(&self.label))
    }
}

/// Names of two dumps, matched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs {
    /// (name in A, name in B), sorted by the name in A.
    pub matched: Vec<(String, String)>,
    /// Names that only A has.
    pub only_a: Vec<String>,
    /// Names that only B has.
    pub only_b: Vec<String>,
}

/// Matches tensors by equal name.
pub fn pair(a: &Dump, b: &Dump) -> Pairs {
    let mut out = Pairs::default();
    for name in a.names() {
        if b.index.contains_key(name) {
            out.matched.push((name.into(), name.into()));
        } else {
            out.only_a.push(name.into());
        }
    }
    out.only_b = b.names().filter(|n| !a.index.contains_key(*n)).map(String::from).collect();
    out
}
