//! The header of a safetensors file, checked whole before any byte of a tensor is used.
//!
//! The `safetensors` crate gives the dtypes and their sizes. Its own reader is not used on files from elsewhere: it
//! takes the last of two tensors with one name, adds offsets without an overflow check, and names no tensor in most of
//! its errors. A test proves that this reader accepts nothing which that one refuses.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use safetensors::Dtype as Stored;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, de};

use crate::{Error, Result};

/// The format's own limit on a header.
const MAX_HEADER: usize = 100_000_000;

/// Highest rank of a tensor worth reading.
const MAX_RANK: usize = 8;

/// One tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name on disk.
    pub name: String,
    /// Dtype on disk.
    pub stored: Stored,
    /// Shape as stored.
    pub shape: Vec<usize>,
    /// Where its bytes are in the file.
    pub range: Range<usize>,
}

#[derive(Deserialize)]
struct Info {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The header's tensors in file order; a name twice is an error.
struct Header(Vec<(String, Info)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Header, A::Error> {
                let mut seen = HashSet::new();
                let mut out = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(A::Error::custom(format!("tensor `{name}` twice in one file")));
                    }
                    if name == "__metadata__" {
                        map.next_value::<Option<std::collections::HashMap<String, String>>>()?;
                    } else {
                        out.push((name, map.next_value()?));
                    }
                }
                Ok(Header(out))
            }
        }
        deserializer.deserialize_map(V)
    }
}

/// The dtype of that name, if the format knows it.
fn stored(name: &str) -> Option<Stored> {
    Stored::deserialize(de::value::StrDeserializer::<de::value::Error>::new(name)).ok()
}

/// Reads and checks a file's header. Tensors come in the order of their bytes.
///
/// # Errors
/// Shorter than its header; not JSON; a name twice; an unknown dtype; a shape that overflows or doesn't fit its bytes;
/// bytes beyond the file, overlapping, unused or left over. The message names the tensor.
pub fn read(bytes: &[u8]) -> Result<Vec<Entry>> {
    let Some((len, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(Error::input("too short to be a safetensors file")
            .expected("at least 8 bytes")
            .found(format!("{} bytes", bytes.len()))
            .hint("the file is truncated or empty: download or write it again"));
    };
    let len = u64::from_le_bytes(*len);
    if len > rest.len() as u64 {
        return Err(Error::input("header is longer than the file")
            .expected(format!("at most {} bytes of header", rest.len()))
            .found(len)
            .hint("the file is truncated, or isn't safetensors"));
    }
    let len = len as usize;
    if len > MAX_HEADER {
        return Err(Error::input("header is too long").expected(format!("at most {MAX_HEADER} bytes")).found(len));
    }
    let (header, data) = rest.split_at(len);
    let Header(tensors) = serde_json::from_slice(header).map_err(|e| {
        Error::input("header is not the JSON of a safetensors file")
            .found(e)
            .hint("the file is damaged or isn't safetensors")
    })?;
    let mut entries =
        tensors.into_iter().map(|(name, info)| entry(name, info, data.len())).collect::<Result<Vec<_>>>()?;
    entries.sort_by(|a, b| (a.range.start, a.range.end, &a.name).cmp(&(b.range.start, b.range.end, &b.name)));
    tiles(&entries, data.len())?;
    let base = 8 + len;
    for e in &mut entries {
        e.range = e.range.start + base..e.range.end + base;
    }
    Ok(entries)
}

fn entry(name: String, info: Info, data_len: usize) -> Result<Entry> {
    let fail = |what: &str| Error::input(what).at(format!("tensor {name}"));
    let Some(stored) = stored(&info.dtype) else {
        return Err(fail("unknown dtype")
            .expected("a dtype of safetensors, such as F8_E4M3, BF16 or F32")
            .found(info.dtype)
            .hint("convert the file with a newer writer"));
    };
    let (start, end) = info.data_offsets;
    if start > end {
        return Err(fail("bytes end before they start").found(format!("{start}..{end}")));
    }
    if end > data_len as u64 {
        return Err(fail("bytes reach beyond the file")
            .expected(format!("at most {data_len} bytes of data"))
            .found(format!("{start}..{end}"))
            .hint("the file is truncated: download or write it again"));
    }
    if info.shape.len() > MAX_RANK {
        return Err(fail("too many axes").expected(format!("at most {MAX_RANK}")).found(info.shape.len()));
    }
    let bits = info
        .shape
        .iter()
        .try_fold(1u64, |n, &d| n.checked_mul(d))
        .and_then(|n| n.checked_mul(stored.bitsize() as u64))
        .ok_or_else(|| fail("shape overflows").found(format!("{:?}", info.shape)))?;
    if !bits.is_multiple_of(8) || bits / 8 != end - start {
        return Err(fail("shape and bytes don't fit")
            .expected(format!("{} bytes for {} {:?}", bits.div_ceil(8), info.dtype, info.shape))
            .found(format!("{} bytes", end - start)));
    }
    // No axis is larger than the file unless another one is 0, and then nothing is ever read by it.
    let shape = info.shape.iter().map(|&d| d as usize).collect();
    Ok(Entry { name, stored, shape, range: start as usize..end as usize })
}

/// The format wants tensors to tile the data without overlap, gap or rest.
fn tiles(entries: &[Entry], data_len: usize) -> Result<()> {
    let mut at = 0;
    let mut before = "the header";
    for e in entries {
        if e.range.start < at {
            return Err(Error::input("tensors overlap")
                .at(format!("tensor {}", e.name))
                .expected(format!("bytes from {at}, after {before}"))
                .found(e.range.start));
        }
        if e.range.start > at {
            return Err(Error::input("bytes belong to no tensor")
                .at(format!("tensor {}", e.name))
                .expected(format!("bytes from {at}, after {before}"))
                .found(e.range.start));
        }
        at = e.range.end;
        before = &e.name;
    }
    if at != data_len {
        return Err(Error::input("bytes left over after the last tensor")
            .expected(format!("{at} bytes of data"))
            .found(data_len)
            .hint("the header is of another file, or something was appended"));
    }
    Ok(())
}
