//! Picks the instruction set at run time. All run the same code and give the same bits.

use super::{SplitSums, kernel};
use crate::Isa;
use crate::quad::Plain;
use crate::values::Element;

/// One pass over a run of triples of the same length.
pub(super) fn pass<E: Element>(a: &[E], b: &[E], c: &[E]) -> SplitSums {
    #[cfg(target_arch = "x86_64")]
    match Isa::used() {
        // SAFETY: only what the processor says that it has is used.
        Isa::Avx512 => return unsafe { avx512(a, b, c) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { avx2(a, b, c) },
        Isa::Plain => {}
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
