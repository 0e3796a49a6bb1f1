//! Picks the widest instruction set at run time. All of them run the same code and give the same bits.

use super::{Format, Sums, Tally, Value, kernel};

/// One pass over a run of pairs of the same length.
pub(super) fn pass<X: Value, Y: Value>(x: &[X], y: &[Y], format: Format, tally: &mut Tally) -> Sums {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512dq") {
            // SAFETY: the processor has just said that it has both features.
            return unsafe { avx512(x, y, format, tally) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has just said that it has the feature.
            return unsafe { avx2(x, y, format, tally) };
        }
    }
    plain(x, y, format, tally)
}

pub(super) fn plain<X: Value, Y: Value>(x: &[X], y: &[Y], format: Format, tally: &mut Tally) -> Sums {
    kernel::pass(x, y, format, tally)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<X: Value, Y: Value>(x: &[X], y: &[Y], format: Format, tally: &mut Tally) -> Sums {
    kernel::pass(x, y, format, tally)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn avx512<X: Value, Y: Value>(x: &[X], y: &[Y], format: Format, tally: &mut Tally) -> Sums {
    kernel::pass(x, y, format, tally)
}
