//! The pass over a row, compiled once an instruction set; nothing in it is fused, so that all give the same bits.

use super::row::RowSketch;

/// A row's sketch by the fastest instruction set of this machine that it is compiled for.
pub(super) fn of(row: &[f32]) -> RowSketch {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: only what the processor says that it has is used.
        return unsafe { avx2(row) };
    }
    RowSketch::with_own_instructions(row)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(row: &[f32]) -> RowSketch {
    RowSketch::with_own_instructions(row)
}
