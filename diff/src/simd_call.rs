//! Compiles a loop once an instruction set, and picks one at run time. All run the same code, in which nothing is fused, and
//! give the same bits.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller")]

use crate::Isa;

/// A loop. Its `run` is marked `inline(always)`, and so is all that it calls in a loop.
pub(crate) trait Work {
    /// What it gives.
    type Out;

    /// Runs it.
    fn run(self) -> Self::Out;
}

/// Runs a loop with the fastest instruction set of this machine that it is compiled for.
#[inline(always)]
pub(crate) fn call<W: Work>(work: W) -> W::Out {
    #[cfg(target_arch = "x86_64")]
    if Isa::used() >= Isa::Avx2 {
        // SAFETY: only what the processor says that it has is used.
        return unsafe { avx2(work) };
    }
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<W: Work>(work: W) -> W::Out {
    work.run()
}
