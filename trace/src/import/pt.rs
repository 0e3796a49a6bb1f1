//! `.pt` files: what torch.save writes, a zip archive of one pickle and the storages that it refers to. Tensors are
//! views of the mapped file.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use karat_model::{Error, Result};

use super::array::Bytes;
use super::pickle::{Id, Node, Pickle, Tensor};
use super::zip::{self, Member};
use super::{Array, Contents, Element};
use crate::Dtype;
use crate::blob::Blob;

/// Deepest nesting of dicts and lists.
const MAX_DEPTH: usize = 32;
/// Most values that are looked at while tensors are named: one list may hold another many times.
const MAX_VISITS: usize = 4 << 20;
/// Most bytes of names.
const MAX_NAMES: usize = 256 << 20;
/// First bytes of a file of torch before 1.6, a pickle of a magic number.
const LEGACY: &[&[u8]] = &[b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"];

/// Reads a file. A bare tensor is named `value`, others by keys and indices with `.` between.
///
/// Errors (input): not such a file, with a hint for torch's old format; a pickle that says more than tensors; storages
/// that are missing or too short; big-endian files.
pub(crate) fn read(blob: &Arc<Blob>) -> Result<Contents> {
    let file = blob.bytes();
    if !file.starts_with(zip::MAGIC) {
        let error = Error::input("not a file of torch.save").expected("a zip archive");
        return Err(if LEGACY.iter().any(|magic| file.starts_with(magic)) {
            error
                .found("a bare pickle, as torch before 1.6 wrote")
                .hint("load it in torch and save it again (torch.save writes zip archives now), or use safetensors")
        } else if file.is_empty() {
            error.found("an empty file")
        } else {
            error.found("other bytes").hint("the file is damaged, or has another format than its name says")
        });
    }
    let members = zip::members(file)?;
    let is_pickle = |name: &&String| name.split_once('/').is_some_and(|(_, rest)| rest == "data.pkl");
    let Some(name) = members.keys().find(is_pickle) else {
        return Err(Error::input("archive is not of torch.save").expected("a member ARCHIVE/data.pkl"));
    };
    let folder = name.strip_suffix("data.pkl").unwrap_or_default();
    if let Some(order) = members.get(&format!("{folder}byteorder")) {
        let order = order.bytes(blob, 0);
        if order.len() > 16 || &*order.read()? != b"little" {
            return Err(Error::input("file is big-endian")
                .expected("byteorder little")
                .hint("save it on a little-endian machine"));
        }
    }
    if members[name].len > super::pickle::LIMIT {
        return Err(Error::input("pickle is too large").at(name).found(members[name].len));
    }
    let pickled = members[name].bytes(blob, 0);
    let data = pickled.read()?;
    let pickle = Pickle::read(&data).map_err(|e| e.at(name))?;
    let mut walk =
        Walk { pickle: &pickle, blob, members: &members, folder, visits: 0, names: 0, out: Contents::default() };
    match walk.sglang_value() {
        Some(value) => {
            walk.visit(value, &mut vec!["value".to_string()])?;
            if walk.out.arrays.is_empty() && walk.out.unread.is_empty() {
                walk.out.unread.push(("value".into(), "no tensor".into()));
            }
        }
        None => walk.visit(pickle.root, &mut Vec::new())?,
    }
    Ok(walk.out)
}

struct Walk<'p> {
    pickle: &'p Pickle<'p>,
    blob: &'p Arc<Blob>,
    members: &'p BTreeMap<String, Member>,
    folder: &'p str,
    visits: usize,
    names: usize,
    out: Contents,
}

impl Walk<'_> {
    /// The tensor of SGLang's `{"value": ..., "meta": ...}`; what `meta` holds is none of the dump's tensors.
    fn sglang_value(&self) -> Option<Id> {
        let Node::Dict(pairs) = self.pickle.node(self.pickle.root) else { return None };
        let value = |name: &str| pairs.iter().find(|(k, _)| self.pickle.node(*k) == &Node::Text(name)).map(|(_, v)| *v);
        (pairs.len() == 2 && value("meta").is_some()).then(|| value("value"))?
    }

    fn visit(&mut self, id: Id, path: &mut Vec<String>) -> Result<()> {
        self.visits += 1;
        if self.visits > MAX_VISITS || path.len() > MAX_DEPTH {
            return Err(Error::input("values of the file are nested too deep or repeated too often").at(path
                .iter()
                .take(4)
                .cloned()
                .collect::<Vec<_>>()
                .join(".")));
        }
        let pickle = self.pickle;
        match pickle.node(id) {
            Node::Tensor(tensor) => self.tensor(tensor, path),
            Node::Tuple(items) | Node::List(items) => {
                for (number, item) in items.iter().enumerate() {
                    path.push(number.to_string());
                    self.visit(*item, path)?;
                    path.pop();
                }
                Ok(())
            }
            Node::Dict(pairs) => {
                for (key, value) in pairs {
                    path.push(match pickle.node(*key) {
                        Node::Text(text) => (*text).to_string(),
                        Node::Int(number) => number.to_string(),
                        Node::Bool(flag) => flag.to_string(),
                        _ => "?".to_string(),
                    });
                    self.visit(*value, path)?;
                    path.pop();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn tensor(&mut self, tensor: &Tensor<'_>, path: &[String]) -> Result<()> {
        let name = if path.is_empty() { "value".to_string() } else { path.join(".") };
        self.names += name.len();
        if self.names > MAX_NAMES {
            return Err(Error::input("names of the file's tensors take too much room"));
        }
        let place = format!("tensor {name}");
        let Some(element) = element(tensor.dtype) else {
            self.out.unread.push((name, format!("element type torch.{}", tensor.dtype)));
            return Ok(());
        };
        let member = format!("{}data/{}", self.folder, tensor.storage.key);
        let bytes = match self.members.get(&member) {
            Some(found) => found.bytes(self.blob, 0),
            // torch leaves the member of an empty storage out at times.
            None if tensor.storage.len == 0 => Bytes::Plain { blob: Arc::clone(self.blob), range: 0..0 },
            None => return Err(Error::input("storage is missing").at(&place).expected(format!("member {member}"))),
        };
        let unit = if tensor.storage.dtype.is_some() { element.size() } else { 1 };
        if tensor.storage.len.checked_mul(unit).is_none_or(|n| n > bytes.len()) {
            let error = Error::input("storage is shorter than the pickle says").at(&place);
            return Err(error
                .expected(format!("{} elements", tensor.storage.len))
                .found(format!("{} bytes", bytes.len())));
        }
        let array = Array::new(bytes, element, tensor.shape.clone(), tensor.strides.clone(), tensor.offset);
        self.out.arrays.insert(name, array.map_err(|e| e.at(&place))?);
        Ok(())
    }
}

/// The element type of torch's name; `None` for one that isn't read.
fn element(dtype: &str) -> Option<Element> {
    Some(match dtype {
        "float32" => Element::Stored(Dtype::F32),
        "float64" => Element::Stored(Dtype::F64),
        "float16" => Element::Stored(Dtype::F16),
        "bfloat16" => Element::Stored(Dtype::Bf16),
        "float8_e4m3fn" => Element::Stored(Dtype::F8E4M3),
        "float8_e8m0fnu" => Element::Stored(Dtype::F8E8M0),
        "float8_e5m2" => Element::F8E5M2,
        "int64" => Element::Stored(Dtype::I64),
        "int32" => Element::Stored(Dtype::I32),
        "int16" => Element::I16,
        "int8" => Element::Stored(Dtype::I8),
        "uint8" => Element::Stored(Dtype::U8),
        "uint16" => Element::U16,
        "uint32" => Element::U32,
        "bool" => Element::Stored(Dtype::Bool),
        _ => return None,
    })
}
