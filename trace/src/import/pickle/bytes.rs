//! The bytes of a pickle, taken one piece after the other.

use karat_model::{Error, Result};

/// Longest line: the name of a global.
const MAX_LINE: usize = 1024;

pub(super) struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0 }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(n).filter(|end| *end <= self.data.len());
        let end = end.ok_or_else(|| Error::input("pickle ends early").hint("the file is truncated or damaged"))?;
        let out = &self.data[self.at..end];
        self.at = end;
        Ok(out)
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// Bytes after their own count, of one, four or eight bytes.
    pub(super) fn counted(&mut self, op: u8) -> Result<&'a [u8]> {
        let n = match op {
            0x8c | b'C' => u64::from(self.byte()?),
            b'X' | b'B' => u64::from(u32::from_le_bytes(self.array()?)),
            _ => u64::from_le_bytes(self.array()?),
        };
        self.take(usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// A text up to a line end.
    pub(super) fn line(&mut self) -> Result<&'a str> {
        let rest = &self.data[self.at..];
        let end = rest.iter().take(MAX_LINE).position(|b| *b == b'\n');
        let end = end.ok_or_else(|| Error::input("name in the pickle has no end"))?;
        self.at += end + 1;
        std::str::from_utf8(&rest[..end]).map_err(|_| Error::input("name in the pickle is no UTF-8"))
    }
}
