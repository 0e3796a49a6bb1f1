//! Picks the instruction set at run time. All run the same code and give the same bits.

use super::{SplitSums, kernel};
use crate::quad::Plain;
use crate::values::Element;

/// One pass over a run of triples of the same length.
pub(super) fn pass<E: Element>(a: &[E], b: &[E], c: &[E]) -> SplitSums {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx512f") && has!("avx2") && has!("fma") {
            // SAFETY: the processor has just said that it has the features.
            return unsafe { avx512(a, b, c) };
        }
        if has!("avx2") && has!("fma") {
            // SAFETY: as above.
            return unsafe { avx2(a, b, c) };
        }
    }
    plain(a, b, c)
}

/// The same without vector instructions.
pub(super) fn plain<E: Element>(a: &[E], b: &[E], c: &[E]) -> SplitSums {
    kernel::pass::<Plain, E>(a, b, c)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<E: Element>(a: &[E], b: &[E], c: &[E]) -> SplitSums {
    kernel::pass::<crate::quad::Avx2, E>(a, b, c)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
fn avx512<E: Element>(a: &[E], b: &[E], c: &[E]) -> SplitSums {
    kernel::pass::<crate::quad::Avx512, E>(a, b, c)
}
