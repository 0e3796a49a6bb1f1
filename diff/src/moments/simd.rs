//! Picks the instruction set at run time. All run the same code and give the same bits.

use std::ops::Range;

use super::tally::Tally;
use super::{Pair, Sums, kernel};
use crate::Isa;
use crate::quad::Plain;
use crate::values::Element;

/// One pass over the elements `range` of a pair; `FULL` or the core set only.
pub(super) fn pass<const FULL: bool>(pair: &Pair<'_>, range: Range<usize>, tally: &mut Tally) -> Sums {
    #[cfg(target_arch = "x86_64")]
    {
        let isa = Isa::used();
        if isa == Isa::Avx512 {
            return match (pair.x.is_double(), pair.y.is_double()) {
                // SAFETY: only what the processor says that it has is used.
                (false, false) => unsafe { avx512::<f32, f32, FULL>(pair, range, tally) },
                // SAFETY: as above.
                (false, true) => unsafe { avx512::<f32, f64, FULL>(pair, range, tally) },
                // SAFETY: as above.
                (true, false) => unsafe { avx512::<f64, f32, FULL>(pair, range, tally) },
                // SAFETY: as above.
                (true, true) => unsafe { avx512::<f64, f64, FULL>(pair, range, tally) },
            };
        }
        if isa == Isa::Avx2 {
            return match (pair.x.is_double(), pair.y.is_double()) {
                // SAFETY: only what the processor says that it has is used.
                (false, false) => unsafe { avx2::<f32, f32, FULL>(pair, range, tally) },
                // SAFETY: as above.
                (false, true) => unsafe { avx2::<f32, f64, FULL>(pair, range, tally) },
                // SAFETY: as above.
                (true, false) => unsafe { avx2::<f64, f32, FULL>(pair, range, tally) },
                // SAFETY: as above.
                (true, true) => unsafe { avx2::<f64, f64, FULL>(pair, range, tally) },
            };
        }
    }
    plain::<FULL>(pair, range, tally)
}

/// The same without vector instructions.
pub(super) fn plain<const FULL: bool>(pair: &Pair<'_>, range: Range<usize>, tally: &mut Tally) -> Sums {
    match (pair.x.is_double(), pair.y.is_double()) {
        (false, false) => kernel::pass::<Plain, f32, f32, FULL>(pair, range, tally),
        (false, true) => kernel::pass::<Plain, f32, f64, FULL>(pair, range, tally),
        (true, false) => kernel::pass::<Plain, f64, f32, FULL>(pair, range, tally),
        (true, true) => kernel::pass::<Plain, f64, f64, FULL>(pair, range, tally),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<X: Element, Y: Element, const FULL: bool>(pair: &Pair<'_>, range: Range<usize>, tally: &mut Tally) -> Sums {
    kernel::pass::<crate::quad::Avx2, X, Y, FULL>(pair, range, tally)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
fn avx512<X: Element, Y: Element, const FULL: bool>(pair: &Pair<'_>, range: Range<usize>, tally: &mut Tally) -> Sums {
    kernel::pass::<crate::quad::Avx512, X, Y, FULL>(pair, range, tally)
}
