//! Values that use fewer bits than their dtype has: what a rounding on the way left behind.

use std::collections::BTreeSet;

use crate::Error;
use crate::checkpoint::{Dtype, RawTensor};

/// So many different values must be there: a handful may be round numbers by choice.
const DIFFERENT: usize = 8;

/// BF16 values with 3 bits of mantissa are E4M3 values; F32 values with 7 are BF16 values. `None` for other dtypes, for
/// tensors with few different values, and for those that use their bits.
pub(super) fn coarse(t: &RawTensor<'_>) -> Option<Error> {
    let (bits, low, narrower, hint) = match t.dtype {
        Dtype::F32 => {
            (32, 16, "BF16", "mHC, sinks, position biases and router bias are kept in F32: who rounded them?")
        }
        Dtype::Bf16 => (16, 4, "E4M3", "was the matrix quantised on the way, with or without a scale?"),
        _ => return None,
    };
    let values: Box<dyn Iterator<Item = u32>> = if bits == 32 {
        Box::new(t.bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)))
    } else {
        Box::new(t.bytes.as_chunks::<2>().0.iter().map(|b| u32::from(u16::from_le_bytes(*b))))
    };
    let mut different = BTreeSet::new();
    let mut count = 0usize;
    for v in values {
        if v.trailing_zeros() < low {
            return None;
        }
        count += 1;
        if different.len() < DIFFERENT {
            different.insert(v);
        }
    }
    (different.len() >= DIFFERENT).then(|| {
        Error::input(format!("all values are {narrower} values"))
            .expected(format!("{} that use their bits", t.dtype.name()))
            .found(format!("{count} values whose last {low} bits are zero"))
            .hint(hint)
    })
}
