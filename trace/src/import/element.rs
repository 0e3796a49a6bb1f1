//! Element types of other engines' dumps, and what becomes of those that karat-trace/1 doesn't have.

use std::borrow::Cow;

use crate::Dtype;

/// An element type as a dump has it, little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// One that traces have.
    Stored(Dtype),
    /// 16-bit integers: read as I32.
    I16,
    /// 16-bit unsigned integers: read as I32.
    U16,
    /// 32-bit unsigned integers: read as I64.
    U32,
    /// E5M2 codes, which are the upper halves of binary16 codes: read as F16.
    F8E5M2,
}

impl Element {
    /// Bytes of one element in the dump.
    pub fn size(self) -> usize {
        match self {
            Self::Stored(dtype) => dtype.size(),
            Self::I16 | Self::U16 => 2,
            Self::U32 => 4,
            Self::F8E5M2 => 1,
        }
    }

    /// Element type of what is read; every value is kept.
    pub fn dtype(self) -> Dtype {
        match self {
            Self::Stored(dtype) => dtype,
            Self::I16 | Self::U16 => Dtype::I32,
            Self::U32 => Dtype::I64,
            Self::F8E5M2 => Dtype::F16,
        }
    }

    /// Bytes in the wider type; the same bytes where the type is one of traces.
    pub(crate) fn widen(self, bytes: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
        let two = |f: fn([u8; 2]) -> [u8; 4]| bytes.as_chunks::<2>().0.iter().flat_map(|b| f(*b)).collect::<Vec<u8>>();
        match self {
            Self::Stored(_) => bytes,
            Self::I16 => Cow::Owned(two(|b| i32::from(i16::from_le_bytes(b)).to_le_bytes())),
            Self::U16 => Cow::Owned(two(|b| i32::from(u16::from_le_bytes(b)).to_le_bytes())),
            Self::U32 => {
                let wide = |b: &[u8; 4]| i64::from(u32::from_le_bytes(*b)).to_le_bytes();
                Cow::Owned(bytes.as_chunks::<4>().0.iter().flat_map(wide).collect())
            }
            Self::F8E5M2 => Cow::Owned(bytes.iter().flat_map(|b| [0, *b]).collect()),
        }
    }
}
