//! Instruction sets. A hot loop is written once in plain Rust and compiled for each of them; the path is chosen at run
//! time. All paths give the same bits because lanes are outputs and every lane's chain of operations is the same.

#[cfg(target_arch = "x86_64")]
use super::simd_vector::{Avx2, Avx512};
use super::simd_vector::{Machine, Plain};

/// Length of a block of K: one f32 accumulator inside, f64 across.
pub const K_BLOCK: usize = 128;
/// Outputs of one packed panel.
pub const LANES: usize = 16;

/// An instruction set that the loops are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    /// Whatever the target has; `mul_add` may be a library call.
    Scalar,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512F.
    Avx512,
}

impl Isa {
    /// The fastest one of this machine.
    pub fn best() -> Self {
        *Self::available().last().expect("the scalar path is always there")
    }

    /// All that this machine can run, slowest first.
    pub fn available() -> &'static [Isa] {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                if is_x86_feature_detected!("avx512f") {
                    return &[Isa::Scalar, Isa::Avx2, Isa::Avx512];
                }
                return &[Isa::Scalar, Isa::Avx2];
            }
        }
        &[Isa::Scalar]
    }
}

/// A loop to compile for every instruction set. `run` and all that it calls must be `#[inline(always)]`.
pub(crate) trait Job {
    /// The loop. A tile of R rows by P times LANES outputs, or of H rows by half of LANES, fills the registers.
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(self);
}

/// Runs a job on the instruction set.
#[inline]
pub(crate) fn dispatch(isa: Isa, job: impl Job) {
    match isa {
        Isa::Scalar => job.run::<Plain, 4, 8, 1>(),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => {
            debug_assert!(Isa::available().contains(&isa));
            // SAFETY: an `Isa` other than Scalar comes from `Isa::available`, which asked the processor.
            unsafe { avx2(job) }
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => {
            debug_assert!(Isa::available().contains(&isa));
            // SAFETY: as above.
            unsafe { avx512(job) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        _ => job.run::<Plain, 4, 8, 1>(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(job: impl Job) {
    job.run::<Avx2, 6, 8, 1>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
fn avx512(job: impl Job) {
    job.run::<Avx512, 12, 8, 2>();
}
