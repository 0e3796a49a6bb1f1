//! Named tensors of anything that can be compared without a model: traces, safetensors files, other engines' dumps.

mod pairs;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use karat_model::{Error, Result};
use karat_seam::Tensor;

pub use pairs::{Matched, Pairs, pair, pair_mapped};

use crate::import::map::{Built, Recipe, build};
use crate::import::{Array, Contents, Format, folder};
use crate::reader::is_trace;
use crate::values::decode;
use crate::{Dtype, TensorFile, Trace};

/// Where a dump comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A karat-trace/1 folder.
    Trace,
    /// A safetensors file or a folder of them.
    Safetensors,
    /// Another engine's files.
    Import,
}

/// Named tensors from one place.
pub struct Dump {
    label: String,
    origin: Origin,
    files: Vec<TensorFile>,
    items: BTreeMap<String, Item>,
    unread: Vec<(String, String)>,
}

/// A tensor: in a safetensors file, or a view.
enum Item {
    File(usize),
    Array(Array),
}

/// A tensor's bytes: where they lie, or made for the purpose.
pub struct Held<'a> {
    /// Element type.
    pub dtype: Dtype,
    /// Extent of each axis.
    pub shape: Vec<usize>,
    /// Little-endian elements, row-major, of any alignment.
    pub bytes: Cow<'a, [u8]>,
}

impl Held<'_> {
    /// The values, decoded.
    pub fn decode(&self) -> Result<Tensor> {
        decode(self.dtype, &self.shape, &self.bytes)
    }
}

/// Opens a karat-trace folder, a `.safetensors`, `.pt`, `.npy` or `.npz` file, or a folder of them (SGLang's dumper and
/// forward hooks among them).
///
/// Errors (input): nothing there, not one of these, a broken file, a name in two files.
pub fn open_any(path: &Path) -> Result<Dump> {
    if is_trace(path) {
        let (label, files) = Trace::open(path)?.into_files();
        return Dump::new(label, Origin::Trace, files);
    }
    let label = path.display().to_string();
    let meta = std::fs::metadata(path).map_err(|e| {
        Error::input("can't be read").at(&label).found(e).hint("name a trace folder or a .safetensors file")
    })?;
    if !meta.is_dir() {
        return match Format::of(path) {
            None | Some(Format::Safetensors) => Dump::new(label, Origin::Safetensors, vec![TensorFile::open(path)?]),
            Some(format) => Ok(Dump::imported(label, crate::import::read(path, format)?)),
        };
    }
    let files = folder::files(path)?;
    let here: Vec<_> = files.iter().filter(|(p, _)| p.parent() == Some(path)).collect();
    if !here.is_empty() && here.iter().all(|(_, format)| *format == Format::Safetensors) {
        let opened = here.iter().map(|(p, _)| TensorFile::open(p)).collect::<Result<Vec<_>>>()?;
        // vLLM's connector writes one file a request, all with the same two names.
        let of_requests = |f: &TensorFile| f.names().all(|n| matches!(n, "hidden_states" | "token_ids"));
        if opened.len() == 1 || !opened.iter().all(of_requests) {
            return Dump::new(label, Origin::Safetensors, opened);
        }
    }
    if files.is_empty() {
        return Err(Error::input("folder holds no tensors")
            .at(&label)
            .expected("manifest.json, or files *.safetensors, *.pt, *.npy or *.npz"));
    }
    let contents = folder::contents(path, &files)?;
    Ok(Dump::imported(label, contents))
}

impl Dump {
    /// From opened files.
    fn new(label: String, origin: Origin, files: Vec<TensorFile>) -> Result<Self> {
        let mut items = BTreeMap::new();
        for (number, file) in files.iter().enumerate() {
            for name in file.names() {
                if let Some(Item::File(other)) = items.insert(name.to_string(), Item::File(number)) {
                    let other: &TensorFile = &files[other];
                    return Err(Error::input("name is in two files")
                        .at(format!("tensor {name}"))
                        .at(file.label())
                        .found(other.label()));
                }
            }
        }
        Ok(Self { label, origin, files, items, unread: Vec::new() })
    }

    fn imported(label: String, contents: Contents) -> Self {
        let items = contents.arrays.into_iter().map(|(name, array)| (name, Item::Array(array))).collect();
        Self { label, origin: Origin::Import, files: Vec::new(), items, unread: contents.unread }
    }

    /// Path, for messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// What kind of place it is.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.items.keys().map(String::as_str)
    }

    /// What is there and can't be compared: name and reason.
    pub fn unread(&self) -> &[(String, String)] {
        &self.unread
    }

    /// Shape of a tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        match self.items.get(name)? {
            Item::File(number) => self.files[*number].shape(name),
            Item::Array(array) => Some(array.shape()),
        }
    }

    /// Element type of a tensor; an error for a dtype that can't be compared.
    pub fn dtype(&self, name: &str) -> Result<Dtype> {
        match self.item(name)? {
            Item::File(number) => self.files[*number].dtype(name),
            Item::Array(array) => Ok(array.dtype()),
        }
    }

    /// A tensor, decoded: f32 or f64 for floats, i64 for integers, u8 for bytes and masks.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        self.held(name)?.decode().map_err(|e| e.at(format!("tensor {name}")).at(&self.label))
    }

    /// A tensor's bytes, where they lie if they lie in order.
    pub fn held(&self, name: &str) -> Result<Held<'_>> {
        match self.item(name)? {
            Item::File(number) => {
                let raw = self.files[*number].raw(name)?;
                Ok(Held { dtype: raw.dtype, shape: raw.shape.to_vec(), bytes: Cow::Borrowed(raw.bytes) })
            }
            Item::Array(array) => {
                let bytes = array.read().map_err(|e| e.at(format!("tensor {name}")).at(&self.label))?;
                Ok(Held { dtype: array.dtype(), shape: array.shape().to_vec(), bytes })
            }
        }
    }

    /// A tensor made by a recipe of a map.
    pub fn build(&self, recipe: &Recipe) -> Result<Built> {
        build(recipe, &|name| self.array(name)).map_err(|e| e.at(&self.label))
    }

    fn array(&self, name: &str) -> Result<Array> {
        match self.item(name)? {
            Item::File(number) => self.files[*number].array(name),
            Item::Array(array) => Ok(array.clone()),
        }
    }

    fn item(&self, name: &str) -> Result<&Item> {
        let item = self.items.get(name);
        item.ok_or_else(|| Error::input("no such tensor").at(format!("tensor {name}")).at(&self.label))
    }
}
