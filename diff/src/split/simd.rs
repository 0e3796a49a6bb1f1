//! Picks the widest instruction set at run time. All of them run the same code and give the same bits.

use super::{SplitSums, kernel};
use crate::moments::Value;

/// One pass over a run of triples of the same length.
pub(super) fn pass<V: Value>(a: &[V], b: &[V], c: &[V]) -> SplitSums {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512dq") {
            // SAFETY: the processor has just said that it has both features.
            return unsafe { avx512(a, b, c) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has just said that it has the feature.
            return unsafe { avx2(a, b, c) };
        }
    }
    plain(a, b, c)
}

pub(super) fn plain<V: Value>(a: &[V], b: &[V], c: &[V]) -> SplitSums {
    kernel::pass(a, b, c)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<V: Value>(a: &[V], b: &[V], c: &[V]) -> SplitSums {
    kernel::pass(a, b, c)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn avx512<V: Value>(a: &[V], b: &[V], c: &[V]) -> SplitSums {
    kernel::pass(a, b, c)
}
