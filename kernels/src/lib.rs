//! The CUDA kernels: their sources with the numerics knobs ([`list`]), what the compiler made of them ([`pack`], [`check`]),
//! what was measured where ([`evidence`]) and what the error bought ([`bench`]), and, with the feature `cuda`, the compiler (NVRTC) and the driver, both loaded
//! at run time. Nothing is compiled or linked when this crate is built, and without the feature it holds no CUDA at all.
//!
//! `cuda/reference/` holds the naive counterparts (one thread an output), `cuda/optimized/` the kernels, `cuda/diff/` the comparison
//! of two tensors. No file of one includes one of another.

pub mod audits;
pub mod bench;
#[cfg(feature = "cuda")]
pub mod candidate;
pub mod check;
pub mod choice;
pub mod compare_evidence;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod evidence;
#[cfg(feature = "cuda")]
pub mod golden;
pub mod list;
pub mod mma;
pub mod pack;
mod probe;
mod source;
#[cfg(feature = "cuda")]
pub mod suite;

pub use probe::probe;
pub use source::{digest, sources};
