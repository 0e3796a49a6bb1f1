//! The central directory of a zip archive over a mapped file. Nothing is unpacked to disk, and nothing is believed that
//! the bytes don't bear out: members lie apart from each other, inside the file, under plain names.
//!
//! Read: stored and deflated members, zip64. Refused: encryption, several disks, other methods, names that lead out of
//! a folder, a member twice, overlapping members and incredible ratios (zip bombs).

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use karat_model::{Error, Result};

use super::array::Bytes;
use crate::blob::Blob;

const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const LOCAL: u32 = 0x0403_4b50;
/// First bytes of an archive.
pub(crate) const MAGIC: &[u8] = b"PK\x03\x04";
/// Most members that are read.
const MAX_MEMBERS: usize = 1 << 20;
/// Beyond this size a member may not be this many times its packed size.
const FREE: usize = 16 << 20;
const MAX_RATIO: usize = 256;

/// A member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Packed bytes in the file.
    pub(crate) range: Range<usize>,
    /// Unpacked size.
    pub(crate) len: usize,
    /// Deflated, not stored.
    pub(crate) is_deflated: bool,
}

impl Member {
    /// Its bytes less the first `skip`, unpacked when they are read.
    pub(crate) fn bytes(&self, blob: &Arc<Blob>, skip: usize) -> Bytes {
        let (blob, range) = (Arc::clone(blob), self.range.clone());
        if self.is_deflated {
            Bytes::Deflated { blob, range, len: self.len, skip }
        } else {
            Bytes::Plain { blob, range: (range.start + skip).min(range.end)..range.end }
        }
    }
}

/// The members of an archive by name. Errors (input) name the member.
pub(crate) fn members(file: &[u8]) -> Result<BTreeMap<String, Member>> {
    let directory = directory(file)?;
    let mut at = directory.range.start;
    let mut out = BTreeMap::new();
    let mut spans: Vec<Range<usize>> = Vec::new();
    for _ in 0..directory.members {
        let (name, member, start, next) = central(file, at, directory.range.end)?;
        at = next;
        if name.ends_with('/') && member.len == 0 {
            continue;
        }
        spans.push(start..member.range.end);
        if out.insert(name.clone(), member).is_some() {
            return Err(bad("member is twice in the archive").at(format!("member {name}")));
        }
    }
    if at != directory.range.end {
        return Err(bad("archive's list of members is longer than it says"));
    }
    spans.sort_by_key(|s| s.start);
    if spans.windows(2).any(|w| w[1].start < w[0].end) || spans.last().is_some_and(|s| s.end > directory.range.start) {
        return Err(bad("members of the archive overlap").hint("this is how zip bombs are made; write the file again"));
    }
    Ok(out)
}

fn bad(what: &str) -> Error {
    Error::input(what)
}

fn truncated() -> Error {
    bad("archive is truncated").hint("the file was cut short, or is still being written")
}

fn u16_at(file: &[u8], at: usize) -> Result<u16> {
    let bytes = file.get(at..).and_then(|b| b.first_chunk()).ok_or_else(truncated)?;
    Ok(u16::from_le_bytes(*bytes))
}

fn u32_at(file: &[u8], at: usize) -> Result<u32> {
    let bytes = file.get(at..).and_then(|b| b.first_chunk()).ok_or_else(truncated)?;
    Ok(u32::from_le_bytes(*bytes))
}

fn size_at(file: &[u8], at: usize) -> Result<usize> {
    let bytes = file.get(at..).and_then(|b| b.first_chunk()).ok_or_else(truncated)?;
    usize::try_from(u64::from_le_bytes(*bytes)).map_err(|_| bad("archive's number is out of range"))
}

struct Directory {
    range: Range<usize>,
    members: usize,
}

/// Where the central directory is, from the record at the end.
fn directory(file: &[u8]) -> Result<Directory> {
    let lowest = file.len().saturating_sub(22 + 0xffff);
    let is_end = |at: &usize| {
        u32_at(file, *at).is_ok_and(|s| s == END)
            && u16_at(file, at + 20).is_ok_and(|comment| at + 22 + usize::from(comment) == file.len())
    };
    let last = file.len().checked_sub(22).ok_or_else(truncated)?;
    let end = (lowest..=last).rev().find(is_end).ok_or_else(truncated)?;
    if u16_at(file, end + 4)? != 0 && u16_at(file, end + 4)? != 0xffff {
        return Err(bad("archive is one of several disks"));
    }
    let mut members = usize::from(u16_at(file, end + 10)?);
    let mut size = u32_at(file, end + 12)? as usize;
    let mut start = u32_at(file, end + 16)? as usize;
    let mut limit = end;
    if let Some(at) = end.checked_sub(20).filter(|at| u32_at(file, *at).is_ok_and(|s| s == LOCATOR64)) {
        let record = size_at(file, at + 8)?;
        if record > at || u32_at(file, record)? != END64 {
            return Err(bad("archive's zip64 record isn't where its locator says"));
        }
        members = size_at(file, record.saturating_add(32))?;
        size = size_at(file, record.saturating_add(40))?;
        start = size_at(file, record.saturating_add(48))?;
        limit = record;
    }
    let stop = start.checked_add(size).filter(|stop| *stop <= limit).ok_or_else(truncated)?;
    // Each member takes 46 bytes at least, so a list can't be longer than the file allows.
    if members > MAX_MEMBERS || members > size / 46 {
        return Err(bad("archive lists too many members")
            .expected(format!("at most {}", (size / 46).min(MAX_MEMBERS)))
            .found(members));
    }
    Ok(Directory { range: start..stop, members })
}

/// One entry of the directory: name, member, start of its local header, start of the next entry.
fn central(file: &[u8], at: usize, end: usize) -> Result<(String, Member, usize, usize)> {
    if at + 46 > end || u32_at(file, at)? != CENTRAL {
        return Err(bad("archive's list of members is damaged"));
    }
    let (flags, method) = (u16_at(file, at + 8)?, u16_at(file, at + 10)?);
    let mut packed = u32_at(file, at + 20)? as usize;
    let mut len = u32_at(file, at + 24)? as usize;
    let [name_len, extra_len, comment_len] =
        [u16_at(file, at + 28)?, u16_at(file, at + 30)?, u16_at(file, at + 32)?].map(usize::from);
    let mut local = u32_at(file, at + 42)? as usize;
    let next = at + 46 + name_len + extra_len + comment_len;
    if next > end {
        return Err(bad("archive's list of members is damaged"));
    }
    let name_bytes = &file[at + 46..at + 46 + name_len];
    let name = plain_name(name_bytes)?;
    let fail = |what: &str| bad(what).at(format!("member {name}"));
    zip64(&file[at + 46 + name_len..at + 46 + name_len + extra_len], [&mut len, &mut packed, &mut local])
        .map_err(|e| e.at(format!("member {name}")))?;
    if flags & 1 != 0 {
        return Err(fail("member is encrypted"));
    }
    let is_deflated = match method {
        0 => false,
        8 => true,
        other => {
            return Err(fail("member is packed in a way that isn't read").expected("stored or deflated").found(other));
        }
    };
    if !is_deflated && packed != len {
        return Err(fail("stored member has two sizes").expected(len).found(packed));
    }
    if is_deflated && len > FREE && len / MAX_RATIO > packed {
        return Err(fail("member unpacks to incredibly much")
            .expected(format!("at most {MAX_RATIO} times its {packed} bytes"))
            .found(format!("{len} bytes"))
            .hint("this is how zip bombs are made; save it uncompressed (numpy.savez, torch.save)"));
    }
    let head = file.get(local..local.saturating_add(30)).ok_or_else(truncated)?;
    let here = usize::from(u16_at(head, 26)?);
    let data = local + 30 + here + usize::from(u16_at(head, 28)?);
    if u32_at(head, 0)? != LOCAL || file.get(local + 30..local + 30 + here) != Some(name_bytes) {
        return Err(fail("member isn't where the archive's list says"));
    }
    let stop =
        data.checked_add(packed).filter(|stop| *stop <= file.len()).ok_or_else(|| fail("member is truncated"))?;
    Ok((name, Member { range: data..stop, len, is_deflated }, local, next))
}

/// A name that stays where it is told to.
fn plain_name(bytes: &[u8]) -> Result<String> {
    let name = std::str::from_utf8(bytes).map_err(|_| bad("member's name is no UTF-8"))?;
    let leads_out =
        name.starts_with('/') || name.contains(['\\', '\0', ':']) || name.split('/').any(|part| part == "..");
    if name.is_empty() || leads_out {
        return Err(bad("member's name leads out of the archive").at(format!("member {name:?}")));
    }
    Ok(name.to_string())
}

/// The 64-bit values of the fields that are too large for the entry, in their order.
fn zip64(extra: &[u8], fields: [&mut usize; 3]) -> Result<()> {
    let mut open: Vec<&mut usize> = fields.into_iter().filter(|v| **v == 0xffff_ffff).collect();
    if open.is_empty() {
        return Ok(());
    }
    let mut at = 0;
    while at + 4 <= extra.len() {
        let (id, len) = (u16_at(extra, at)?, usize::from(u16_at(extra, at + 2)?));
        let body = extra.get(at + 4..at + 4 + len).ok_or_else(truncated)?;
        if id == 1 {
            for (i, field) in open.iter_mut().enumerate() {
                **field = size_at(body, 8 * i)?;
            }
            return Ok(());
        }
        at += 4 + len;
    }
    // 4 GiB less one byte, said in 32 bits.
    Ok(())
}
