//! The golden forward pass of DeepSeek-V4-Flash on CPU, in f32 and f64: readable above all, because it is what people
//! trust. One op is one file with its formula; [`linalg`] fixes the arithmetic and is the only place that sums.
//!
//! [`Golden`] is a cold run of every sequence behind the seam; [`Session`] runs the same layer code with carried state.
//! A [`backend`] computes the ops elsewhere, to the same bits.

pub mod backend;
mod block;
pub mod decode;
mod eye;
mod golden;
mod layer;
mod layer_op;
mod lent;
pub mod linalg;
mod linear;
mod made;
mod ops;
mod session;
mod state;
mod weights;
#[doc(hidden)]
pub mod workloads;

pub use golden::{Golden, Mode};
pub use linalg::NUMERICS_VERSION;
pub use ops::rope::{Angles, Rope};
pub use session::Session;
