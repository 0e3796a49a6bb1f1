//! Number decoding of this path: bytes of a checkpoint to f32 (spec section 4). `reference` has its own.

use karat_model::checkpoint::{Dtype, RawTensor};
use karat_model::{Error, Result};
use rayon::prelude::*;

/// E2M1 code table; bit 3 is the sign.
const E2M1: [f32; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Value of an E4M3FN code: 1-4-3, bias 7, no infinity, 0x7f and 0xff NaN.
pub(super) const fn e4m3_value(code: u8) -> f32 {
    let (exponent, mantissa) = ((code >> 3) & 15, (code & 7) as f32);
    let magnitude = if code & 0x7f == 0x7f {
        f32::NAN
    } else if exponent == 0 {
        mantissa / 512.0
    } else {
        (1.0 + mantissa / 8.0) * f32::from_bits((exponent as u32 + 120) << 23)
    };
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

static E4M3: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        table[code] = e4m3_value(code as u8);
        code += 1;
    }
    table
};

/// Value of an E8M0 scale: 2^(byte-127); 255 is NaN, 0 is 2^-127 (subnormal, not flushed).
pub(super) fn e8m0_value(byte: u8) -> f32 {
    match byte {
        255 => f32::NAN,
        0 => f32::from_bits(1 << 22),
        b => f32::from_bits(u32::from(b) << 23),
    }
}

/// Elements that one task decodes: a band of an expert's rows is decoded by the thread that multiplies by it.
pub(super) const TASK: usize = 1 << 19;

/// A value for each element, by all threads where there are many.
pub(super) fn each<T: Copy + Sync, V: Send>(of: &[T], value: impl Fn(T) -> V + Sync + Send) -> Vec<V> {
    if of.len() < 2 * TASK {
        return of.iter().map(|v| value(*v)).collect();
    }
    of.par_iter().with_min_len(TASK).map(|v| value(*v)).collect()
}

/// Values of a tensor with one value an element (everything but packed codes and integers).
pub(crate) fn values(raw: &RawTensor<'_>) -> Result<Vec<f32>> {
    let b = raw.bytes;
    Ok(match raw.dtype {
        Dtype::F32 => each(b.as_chunks::<4>().0, f32::from_le_bytes),
        Dtype::Bf16 => each(b.as_chunks::<2>().0, |c| f32::from_bits(u32::from(u16::from_le_bytes(c)) << 16)),
        Dtype::F8E4M3 => each(b, |c| E4M3[c as usize]),
        Dtype::F8E8M0 => each(b, e8m0_value),
        Dtype::Packed4 | Dtype::I64 | Dtype::I32 => {
            return Err(Error::input("tensor does not hold numbers of the expected kind")
                .at(&raw.name)
                .expected("BF16, F32, F8_E4M3 or F8_E8M0")
                .found(format!("{:?}", raw.dtype)));
        }
    })
}

/// Both values of a byte of E2M1 codes: low nibble first.
static PAIRS: [[f32; 2]; 256] = {
    let mut table = [[0.0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [E2M1[byte & 15], E2M1[byte >> 4]];
        byte += 1;
    }
    table
};

/// Values of packed E2M1 codes.
pub(super) fn packed(bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; 2 * bytes.len()];
    let pairs = out.as_chunks_mut::<2>().0.par_iter_mut().zip(bytes).with_min_len(TASK);
    pairs.for_each(|(pair, b)| *pair = PAIRS[usize::from(*b)]);
    out
}

/// Non-negative integers of a tensor (I64 or I32).
pub(crate) fn indices(raw: &RawTensor<'_>) -> Result<Vec<u32>> {
    let out = match raw.dtype {
        Dtype::I64 => raw.bytes.as_chunks::<8>().0.iter().map(|c| u32::try_from(i64::from_le_bytes(*c)).ok()).collect(),
        Dtype::I32 => raw.bytes.as_chunks::<4>().0.iter().map(|c| u32::try_from(i32::from_le_bytes(*c)).ok()).collect(),
        _ => None,
    };
    out.ok_or_else(|| Error::input("expected a table of non-negative integers (I64 or I32)").at(&raw.name))
}
