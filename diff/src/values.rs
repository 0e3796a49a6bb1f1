//! Where the elements of a pair come from: slices in memory, or the bytes of a file that is mapped. Bytes are decoded a
//! chunk at a time inside the pass; no tensor is copied.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller in simd.rs")]

use std::ops::Range;

use karat_seam::{Data, Error, Result, Tensor};

use crate::Storage;
use crate::quad::{LANES, Quad};

/// Elements that the passes look at together; stays in the first-level cache. A multiple of 8.
pub(crate) const CHUNK: usize = 256;

/// Element types that a file may hold, little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
    /// bfloat16.
    Bf16,
    /// IEEE binary16.
    F16,
    /// E4M3 (OCP: no infinities, 0x7f is NaN, largest value 448), without a scale.
    E4m3,
    /// Powers of two from 2^-127 (code 0) to 2^127 (code 254); 255 is NaN.
    E8m0,
}

impl Code {
    /// The type of this name in the headers of safetensors files; `None` for integers and for what isn't known.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "F32" => Self::F32,
            "F64" => Self::F64,
            "BF16" => Self::Bf16,
            "F16" => Self::F16,
            "F8_E4M3" => Self::E4m3,
            "F8_E8M0" => Self::E8m0,
            _ => return None,
        })
    }

    /// The format by which ulp and saturation of such values are told. Powers of two are bf16 values.
    pub fn storage(self) -> Storage {
        match self {
            Self::F32 => Storage::F32,
            Self::F64 => Storage::F64,
            Self::Bf16 | Self::E8m0 => Storage::Bf16,
            Self::F16 => Storage::F16,
            Self::E4m3 => Storage::E4m3,
        }
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::E4m3 | Self::E8m0 => 1,
        }
    }
}

/// Elements of one tensor, borrowed.
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    /// In memory.
    F32(&'a [f32]),
    /// In memory.
    F64(&'a [f64]),
    /// As a file has them; any alignment. Bytes that make no whole element at the end are not looked at.
    Stored(Code, &'a [u8]),
}

impl Values<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::Stored(code, bytes) => bytes.len() / code.size(),
        }
    }

    /// True when there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Says that elements `range` will be read soon; what of it lies past the end is left out.
    #[inline(always)]
    pub(crate) fn fetch<Q: Quad>(&self, range: Range<usize>) {
        let range = range.start.min(self.len())..range.end.min(self.len());
        match *self {
            Self::F32(v) => Q::fetch(&v[range]),
            Self::F64(v) => Q::fetch(&v[range]),
            Self::Stored(code, bytes) => Q::fetch(&bytes[range.start * code.size()..range.end * code.size()]),
        }
    }

    /// True for elements that f32 can't hold.
    pub(crate) fn is_double(&self) -> bool {
        matches!(self, Self::F64(_) | Self::Stored(Code::F64, _))
    }
}

/// A tensor as the passes read it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Extent of each axis; axis 0 is the row.
    pub shape: &'a [usize],
    /// Row-major.
    pub values: Values<'a>,
}

impl<'a> View<'a> {
    /// Bytes of a file.
    ///
    /// Errors: bytes that don't fit the shape.
    pub fn stored(at: &str, shape: &'a [usize], code: Code, bytes: &'a [u8]) -> Result<Self> {
        let elements = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        if elements.and_then(|n| n.checked_mul(code.size())) != Some(bytes.len()) {
            return Err(Error::Request(format!("{at}: shape {shape:?} doesn't fit {} bytes of {code:?}", bytes.len())));
        }
        Ok(Self { shape, values: Values::Stored(code, bytes) })
    }

    /// A tensor in memory.
    ///
    /// Errors: integers (see [`crate::discrete`]).
    pub fn of(at: &str, tensor: &'a Tensor) -> Result<Self> {
        let values = match &tensor.data {
            Data::F32(v) => Values::F32(v),
            Data::F64(v) => Values::F64(v),
            other => return Err(Error::Dtype { at: at.into(), expected: "f32 or f64", found: other.dtype() }),
        };
        Ok(Self { shape: &tensor.shape, values })
    }

    /// Rows: the extent of axis 0 (1 for a scalar).
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Elements in one row.
    pub fn width(&self) -> usize {
        self.shape.iter().skip(1).product()
    }
}

/// What one look over a chunk tells.
#[derive(Clone, Copy)]
pub(crate) struct Extremes {
    /// No value is NaN or infinite.
    pub(crate) finite: bool,
    /// Largest magnitude; only of finite values.
    pub(crate) most: f64,
    /// Smallest magnitude.
    pub(crate) least: f64,
}

/// The two element types that the passes compute from. Everything else is decoded to f32 first, exactly.
pub(crate) trait Element: Copy + Default + Sync {
    /// The value, exactly.
    fn wide(self) -> f64;

    /// Whether the product of two such values is exact in f64.
    const IS_NARROW: bool;

    /// The lanes of one half, exactly.
    fn quad<Q: Quad>(values: &[Self; LANES], half: usize) -> Q;

    /// Elements `range` of `values`: where they lie, or decoded into `buffer`. `range` is no longer than the buffer.
    fn chunk<'a>(values: &Values<'a>, range: Range<usize>, buffer: &'a mut [Self; CHUNK]) -> &'a [Self];

    /// One look over them.
    fn extremes(values: &[Self]) -> Extremes;
}

impl Element for f32 {
    const IS_NARROW: bool = true;

    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn quad<Q: Quad>(values: &[Self; LANES], half: usize) -> Q {
        Q::widen(values, half)
    }

    #[inline(always)]
    fn chunk<'a>(values: &Values<'a>, range: Range<usize>, buffer: &'a mut [Self; CHUNK]) -> &'a [Self] {
        let to = &mut buffer[..range.len()];
        match *values {
            Values::F32(v) => return &v[range],
            Values::Stored(Code::F32, b) => decode(b, range, to, Self::from_le_bytes),
            Values::Stored(Code::Bf16, b) => {
                decode(b, range, to, |b| Self::from_bits(u32::from(u16::from_le_bytes(b)) << 16));
            }
            Values::Stored(Code::F16, b) => decode(b, range, to, |b| f16(u16::from_le_bytes(b))),
            Values::Stored(Code::E4m3, b) => decode(b, range, to, |[b]| e4m3(b)),
            Values::Stored(Code::E8m0, b) => decode(b, range, to, |[b]| e8m0(b)),
            Values::F64(_) | Values::Stored(Code::F64, _) => unreachable!("f64 values are read as f64"),
        }
        to
    }

    #[inline(always)]
    fn extremes(values: &[Self]) -> Extremes {
        // The bits of magnitudes are ordered as the magnitudes are, with NaN above infinity.
        let (mut most, mut least) = (0, u32::MAX >> 1);
        for v in values {
            let bits = v.to_bits() & (u32::MAX >> 1);
            most = most.max(bits);
            least = least.min(bits);
        }
        let wide = |bits| f64::from(Self::from_bits(bits));
        Extremes { finite: most < Self::INFINITY.to_bits(), most: wide(most), least: wide(least) }
    }
}

impl Element for f64 {
    const IS_NARROW: bool = false;

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }

    #[inline(always)]
    fn quad<Q: Quad>(values: &[Self; LANES], half: usize) -> Q {
        Q::load(values, half)
    }

    #[inline(always)]
    fn chunk<'a>(values: &Values<'a>, range: Range<usize>, buffer: &'a mut [Self; CHUNK]) -> &'a [Self] {
        let to = &mut buffer[..range.len()];
        match *values {
            Values::F64(v) => return &v[range],
            Values::Stored(Code::F64, b) => decode(b, range, to, Self::from_le_bytes),
            _ => unreachable!("only f64 values are read as f64"),
        }
        to
    }

    #[inline(always)]
    fn extremes(values: &[Self]) -> Extremes {
        let (mut most, mut least) = (0, u64::MAX >> 1);
        for v in values {
            let bits = v.to_bits() & (u64::MAX >> 1);
            most = most.max(bits);
            least = least.min(bits);
        }
        let finite = most < Self::INFINITY.to_bits();
        Extremes { finite, most: Self::from_bits(most), least: Self::from_bits(least) }
    }
}

#[inline(always)]
fn decode<const N: usize, T>(bytes: &[u8], range: Range<usize>, to: &mut [T], one: impl Fn([u8; N]) -> T) {
    for (to, from) in to.iter_mut().zip(&bytes.as_chunks::<N>().0[range]) {
        *to = one(*from);
    }
}

/// binary16: its bits lie as f32's do, 13 places lower and with a bias that is 112 less. Small numbers are taken as
/// integers: as f32 bits they would be subnormal, which some processors multiply a hundred times slower.
#[inline(always)]
fn f16(code: u16) -> f32 {
    let magnitude = u32::from(code & 0x7fff);
    let small = (magnitude as f32 * f32::from_bits((127 - 24) << 23)).to_bits();
    let bias = if magnitude >= 31 << 10 { 224 << 23 } else { 112 << 23 };
    let large = (magnitude << 13) + bias;
    f32::from_bits(if magnitude < 1 << 10 { small } else { large } | (u32::from(code & 0x8000) << 16))
}

/// E4M3: bits 20 places lower, with a bias that is 120 less; one code is NaN. Small numbers as in [`f16`].
#[inline(always)]
fn e4m3(code: u8) -> f32 {
    let magnitude = u32::from(code & 0x7f);
    let small = (magnitude as f32 * f32::from_bits((127 - 9) << 23)).to_bits();
    let large = (magnitude << 20) + (120 << 23);
    let beyond = if magnitude == 0x7f { f32::NAN.to_bits() } else { 0 };
    f32::from_bits(if magnitude < 8 { small } else { large } | beyond | (u32::from(code & 0x80) << 24))
}

/// E8M0: the exponent of an f32. 2^-127 is not a normal one.
#[inline(always)]
fn e8m0(code: u8) -> f32 {
    match code {
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        code => f32::from_bits(u32::from(code) << 23),
    }
}

#[cfg(test)]
mod tests;
