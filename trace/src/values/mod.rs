//! Element types on disk and their values.

#[cfg(test)]
mod tests;

use karat_model::formats::{e4m3, e8m0};
use karat_model::{Error, Result};
use karat_seam::{Data, Tensor};
use safetensors::Dtype as Stored;

/// Element types of karat-trace/1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dtype {
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE binary16.
    F16,
    /// E4M3 codes, values without a scale.
    F8E4M3,
    /// Powers of two.
    F8E8M0,
    /// 64-bit integers.
    I64,
    /// 32-bit integers.
    I32,
    /// 8-bit integers.
    I8,
    /// Bytes.
    U8,
    /// Bytes that are 0 or 1.
    Bool,
}

impl Dtype {
    /// From the dtype of a safetensors header; `None` for what the format doesn't allow.
    pub fn of(stored: Stored) -> Option<Self> {
        Some(match stored {
            Stored::F64 => Self::F64,
            Stored::F32 => Self::F32,
            Stored::BF16 => Self::Bf16,
            Stored::F16 => Self::F16,
            Stored::F8_E4M3 => Self::F8E4M3,
            Stored::F8_E8M0 => Self::F8E8M0,
            Stored::I64 => Self::I64,
            Stored::I32 => Self::I32,
            Stored::I8 => Self::I8,
            Stored::U8 => Self::U8,
            Stored::BOOL => Self::Bool,
            _ => return None,
        })
    }

    /// Name in safetensors headers and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "F64",
            Self::F32 => "F32",
            Self::Bf16 => "BF16",
            Self::F16 => "F16",
            Self::F8E4M3 => "F8_E4M3",
            Self::F8E8M0 => "F8_E8M0",
            Self::I64 => "I64",
            Self::I32 => "I32",
            Self::I8 => "I8",
            Self::U8 => "U8",
            Self::Bool => "BOOL",
        }
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::F8E4M3 | Self::F8E8M0 | Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// True for numbers that are compared as numbers.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::Bf16 | Self::F16 | Self::F8E4M3 | Self::F8E8M0)
    }
}

/// Decodes little-endian bytes, exactly: floats up to 32 bits to f32, F64 to f64, integers to i64, U8 and BOOL to u8.
///
/// Errors: bytes that don't fit the shape, a BOOL that is neither 0 nor 1.
pub(crate) fn decode(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Result<Tensor> {
    let elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if elements.and_then(|n| n.checked_mul(dtype.size())) != Some(bytes.len()) {
        return Err(Error::input("shape and bytes don't fit").found(format!("{shape:?} in {} bytes", bytes.len())));
    }
    let data = match dtype {
        Dtype::F64 => Data::F64(each(bytes, f64::from_le_bytes)),
        Dtype::F32 => Data::F32(each(bytes, f32::from_le_bytes)),
        Dtype::Bf16 => Data::F32(each(bytes, |b| half::bf16::from_le_bytes(b).to_f32())),
        Dtype::F16 => Data::F32(each(bytes, |b| half::f16::from_le_bytes(b).to_f32())),
        Dtype::F8E4M3 => Data::F32(bytes.iter().map(|&b| e4m3::decode(b)).collect()),
        Dtype::F8E8M0 => Data::F32(bytes.iter().map(|&b| e8m0::decode(b)).collect()),
        Dtype::I64 => Data::I64(each(bytes, i64::from_le_bytes)),
        Dtype::I32 => Data::I64(each(bytes, |b| i64::from(i32::from_le_bytes(b)))),
        Dtype::I8 => Data::I64(bytes.iter().map(|&b| i64::from(b.cast_signed())).collect()),
        Dtype::U8 => Data::U8(bytes.to_vec()),
        Dtype::Bool => match bytes.iter().find(|b| **b > 1) {
            Some(other) => return Err(Error::input("BOOL is neither 0 nor 1").found(other)),
            None => Data::U8(bytes.to_vec()),
        },
    };
    Ok(Tensor::new(shape.to_vec(), data))
}

fn each<const N: usize, T>(bytes: &[u8], f: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|b| f(*b)).collect()
}

/// The same values as I64 (experts, positions). Errors: floats.
pub(crate) fn to_indices(tensor: Tensor) -> Result<Tensor> {
    let Tensor { shape, data } = tensor;
    match data {
        Data::I64(v) => Ok(Tensor::new(shape, Data::I64(v))),
        Data::U8(v) => Ok(Tensor::new(shape, Data::I64(v.into_iter().map(i64::from).collect()))),
        other => {
            Err(Error::input("tap holds decisions, not numbers").expected("I64, I32, I8 or U8").found(other.dtype()))
        }
    }
}

/// The same values as a U8 mask. Errors: floats, values other than 0 and 1.
pub(crate) fn to_mask(tensor: Tensor) -> Result<Tensor> {
    let Tensor { shape, data } = tensor;
    let v = match data {
        Data::U8(v) => v,
        Data::I64(v) => v.into_iter().map(|v| u8::try_from(v).unwrap_or(2)).collect(),
        other => return Err(Error::input("tap is a mask, not numbers").expected("BOOL or U8").found(other.dtype())),
    };
    if v.iter().any(|v| *v > 1) {
        return Err(Error::input("mask holds another value than 0 and 1"));
    }
    Ok(Tensor::new(shape, Data::U8(v)))
}

/// The same values, which must be numbers.
pub(crate) fn to_numbers(tensor: Tensor) -> Result<Tensor> {
    match tensor.data {
        Data::F32(_) | Data::F64(_) => Ok(tensor),
        other => Err(Error::input("tap holds numbers").expected("a float dtype").found(other.dtype())),
    }
}
