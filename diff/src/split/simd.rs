//! Picks the instruction set at run time. Both run the same code and give the same bits.

use super::{SplitSums, kernel};
use crate::quad::Plain;
use crate::values::Element;

/// One pass over a run of triples of the same length.
pub(super) fn pass<E: Element>(a: &[E], b: &[E], c: &[E]) -> SplitSums {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has just said that it has the feature.
        return unsafe { avx2(a, b, c) };
    }
    plain(a, b, c)
}

/// The same without vector instructions.
pub(super) fn plain<E: Element>(a: &[E], b: &[E], c: &[E]) -> SplitSums {
    kernel::pass::<Plain, E>(a, b, c)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<E: Element>(a: &[E], b: &[E], c: &[E]) -> SplitSums {
    kernel::pass::<crate::quad::Avx2, E>(a, b, c)
}
