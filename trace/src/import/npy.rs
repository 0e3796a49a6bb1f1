//! `.npy` files and `.npz` archives of them. A header is a Python literal of three keys; it is read as that and as
//! nothing more.

mod literal;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use karat_model::{Error, Result};

use super::array::{self, Bytes, row_major};
use super::zip::{self, Member};
use super::{Array, Contents, Element};
use crate::Dtype;
use crate::blob::Blob;

/// First bytes of a file.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header.
const MAX_HEADER: usize = 1 << 16;

/// Reads a `.npy` file: one tensor, `value`.
pub(crate) fn read(blob: &Arc<Blob>) -> Result<Contents> {
    let member = Member { range: 0..blob.bytes().len(), len: blob.bytes().len(), is_deflated: false };
    let mut out = Contents::default();
    one(blob, &member, "value", &mut out)?;
    Ok(out)
}

/// Reads a `.npz` archive: a tensor for each member.
pub(crate) fn read_archive(blob: &Arc<Blob>) -> Result<Contents> {
    let mut out = Contents::default();
    for (name, member) in zip::members(blob.bytes())? {
        match name.strip_suffix(".npy") {
            Some(short) => one(blob, &member, short, &mut out).map_err(|e| e.at(format!("member {name}")))?,
            None => out.unread.push((name, "no .npy member".into())),
        }
    }
    Ok(out)
}

fn one(blob: &Arc<Blob>, member: &Member, name: &str, out: &mut Contents) -> Result<()> {
    let start = match member.bytes(blob, 0) {
        Bytes::Plain { range, .. } => {
            let all = blob.bytes().get(range).unwrap_or_default();
            all[..all.len().min(MAX_HEADER + 12)].to_vec()
        }
        Bytes::Deflated { range, len, .. } => {
            array::inflate(blob.bytes().get(range).unwrap_or_default(), len.min(MAX_HEADER + 12))?
        }
    };
    let (text, skip) = header(&start)?;
    let header = literal::read(text)?;
    let Some(element) = element(&header.descr)? else {
        out.unread.push((name.to_string(), format!("element type {}", header.descr)));
        return Ok(());
    };
    let bytes = member.bytes(blob, skip);
    let count = header.shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    if count.and_then(|n| n.checked_mul(element.size())) != Some(bytes.len()) {
        let error =
            Error::input("shape and bytes don't fit").expected(format!("shape {:?} of {}", header.shape, header.descr));
        return Err(error
            .found(format!("{} bytes", bytes.len()))
            .hint("the file is truncated, or holds more than one array"));
    }
    let strides = if header.fortran_order {
        let mut reversed: Vec<usize> = header.shape.iter().rev().copied().collect();
        reversed = row_major(&reversed);
        reversed.reverse();
        reversed
    } else {
        row_major(&header.shape)
    };
    out.arrays.insert(name.to_string(), Array::new(bytes, element, header.shape, strides, 0)?);
    Ok(())
}

/// The header's text and where the data starts.
fn header(start: &[u8]) -> Result<(&str, usize)> {
    let truncated = || Error::input("header of the array is truncated");
    if !start.starts_with(MAGIC) {
        return Err(Error::input("not a .npy file").expected("the bytes \\x93NUMPY at its start"));
    }
    let (len, at) = match start.get(6).ok_or_else(truncated)? {
        1 => (start.get(8..).and_then(|b| b.first_chunk::<2>()).map(|b| usize::from(u16::from_le_bytes(*b))), 10),
        2 | 3 => (start.get(8..).and_then(|b| b.first_chunk::<4>()).map(|b| u32::from_le_bytes(*b) as usize), 12),
        other => return Err(Error::input("version of the .npy format isn't known").expected("1, 2 or 3").found(other)),
    };
    let len = len.ok_or_else(truncated)?;
    if len > MAX_HEADER {
        return Err(Error::input("header of the array is too long")
            .expected(format!("at most {MAX_HEADER} bytes"))
            .found(len));
    }
    let text = start.get(at..at + len).ok_or_else(truncated)?;
    let text = std::str::from_utf8(text).map_err(|_| Error::input("header of the array is no UTF-8"))?;
    Ok((text, at + len))
}

/// The element type of numpy's code; `None` for one that isn't read. Errors: big-endian, Python objects.
fn element(descr: &str) -> Result<Option<Element>> {
    if descr.starts_with('>') {
        return Err(Error::input("array is big-endian")
            .found(descr)
            .hint("save it as a.astype(a.dtype.newbyteorder('<'))"));
    }
    let kind = descr.trim_start_matches(['<', '|', '=']);
    if kind.starts_with('O') {
        let error = Error::input("array holds Python objects, a pickle").found(descr);
        return Err(error.hint("save numbers: a.astype('float32')"));
    }
    Ok(Some(match kind {
        "f4" => Element::Stored(Dtype::F32),
        "f8" => Element::Stored(Dtype::F64),
        "f2" => Element::Stored(Dtype::F16),
        "bfloat16" => Element::Stored(Dtype::Bf16),
        "i8" => Element::Stored(Dtype::I64),
        "i4" => Element::Stored(Dtype::I32),
        "i2" => Element::I16,
        "i1" => Element::Stored(Dtype::I8),
        "u1" => Element::Stored(Dtype::U8),
        "u2" => Element::U16,
        "u4" => Element::U32,
        "b1" => Element::Stored(Dtype::Bool),
        _ => return Ok(None),
    }))
}
