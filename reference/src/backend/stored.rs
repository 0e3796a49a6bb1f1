//! A weight as a backend takes it: decoded, or as the checkpoint stores it.

use std::sync::OnceLock;

use karat_model::Result;

use super::Kept;

/// A weight `[n,k]` as a backend takes it.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    /// Outputs.
    pub n: usize,
    /// Inputs.
    pub k: usize,
    /// Its values.
    pub source: Source<'a>,
    pub(crate) kept: &'a OnceLock<Kept>,
}

/// What the values of a weight follow from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// `[ceil(n / 16)][k][16]`: panels of 16 outputs, missing ones zero.
    Panels(&'a [f32]),
    /// Codes and scales. Whoever hands them over has seen that every value is finite.
    Stored(StoredValues<'a>),
}

/// How a number is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Four bytes, the lowest first.
    F32,
    /// The upper half of an f32.
    Bf16,
    /// One byte: sign, four bits of exponent, three of mantissa; no infinity.
    E4m3,
    /// One byte: a power of two.
    E8m0,
    /// Half a byte: sign, two bits of exponent, one of mantissa. The even input is in the low half, and a row begins at a byte.
    E2m1,
}

/// Rows of a weight where they lie in a checkpoint: `value = code * scale`, and for E2M1 under E4M3 scales `* all` behind it,
/// each product in f32.
#[derive(Debug, Clone, Copy)]
pub struct StoredValues<'a> {
    /// Form of a value.
    pub code: Code,
    /// Rows of codes, one behind the other.
    pub codes: &'a [u8],
    /// None for values that are whole numbers of their own (F32, BF16).
    pub scales: Option<Scales<'a>>,
}

/// Scales of stored values: `[ceil((above + n) / rows)][ceil(k / columns)]`.
#[derive(Debug, Clone, Copy)]
pub struct Scales<'a> {
    /// Form of a scale.
    pub code: Code,
    /// Their bytes.
    pub bytes: &'a [u8],
    /// Rows and columns that share one.
    pub block: [usize; 2],
    /// Rows of the first block that lie above the first row of codes.
    pub above: usize,
    /// Factor of everything: 1 unless the format has one.
    pub all: f32,
}

impl Code {
    /// Bytes of `n` of them.
    pub fn bytes(self, n: usize) -> usize {
        match self {
            Self::F32 => 4 * n,
            Self::Bf16 => 2 * n,
            Self::E4m3 | Self::E8m0 => n,
            Self::E2m1 => n.div_ceil(2),
        }
    }
}

impl<'a> Matrix<'a> {
    /// A weight of whoever tries a backend; `kept` lives as long as the weight.
    pub fn new(n: usize, k: usize, source: Source<'a>, kept: &'a OnceLock<Kept>) -> Self {
        Self { n, k, source, kept }
    }

    /// Whether there are as many values, codes and scales as its sizes ask for.
    pub fn fits(&self) -> bool {
        match &self.source {
            Source::Panels(panels) => panels.len() == self.n.div_ceil(16) * self.k * 16,
            Source::Stored(it) => {
                let scales = it.scales.is_none_or(|s| {
                    let [rows, columns] = s.block;
                    let whole = rows > 0 && columns > 0 && s.above < rows && s.code != Code::E2m1;
                    let count = |n: usize, of: usize| n.div_ceil(of.max(1));
                    whole && s.bytes.len() == s.code.bytes(count(s.above + self.n, rows) * count(self.k, columns))
                });
                it.codes.len() == self.n * it.code.bytes(self.k) && scales
            }
        }
    }

    /// What the backend keeps of this weight, made at its first use.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn kept(&self, make: impl FnOnce() -> Result<Kept>) -> Result<Kept> {
        if let Some(kept) = self.kept.get() {
            return Ok(kept.clone());
        }
        let fresh = make()?;
        Ok(self.kept.get_or_init(|| fresh).clone())
    }
}
