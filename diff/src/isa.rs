//! Which instruction set the passes take, chosen at run time. All of them give the same bits.

use std::sync::atomic::{AtomicU8, Ordering};

/// Instruction sets that the passes are compiled for, slowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Whatever the target has.
    Plain,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512F.
    Avx512,
}

/// What [`Isa::hold_to`] asked for.
static MOST: AtomicU8 = AtomicU8::new(Isa::Avx512 as u8);

impl Isa {
    /// The fastest one that this machine has.
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("avx2") && has!("fma") {
                return if has!("avx512f") { Self::Avx512 } else { Self::Avx2 };
            }
        }
        Self::Plain
    }

    /// The one that passes take from now on: no faster than [`Isa::hold_to`] allows, and one that this machine has.
    pub fn used() -> Self {
        let most = match MOST.load(Ordering::Relaxed) {
            0 => Self::Plain,
            1 => Self::Avx2,
            _ => Self::Avx512,
        };
        Self::best().min(most)
    }

    /// For measurements: every pass of this process that starts later takes no faster one than this.
    pub fn hold_to(self) {
        MOST.store(self as u8, Ordering::Relaxed);
    }
}
