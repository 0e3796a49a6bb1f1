//! Golden on a device: the ops of `karat-reference` as kernels of `cuda/reference/golden_*.cu`, to the same bits.
//!
//! Each op takes values and gives values; a weight stays on the device for as long as the path holds it, so a layer is
//! streamed through the device as it is through memory. Routed experts go there as they are stored and are decoded there, while
//! the rows of the layer and their sums stay there. It is written for bits first: one thread an output.

mod capture_evidence;
mod compare;
mod cuda;
mod evidence;
mod experts;
mod formats;
mod ops;
mod run;
mod sketch;
mod spread_evidence;
mod weights;

pub use capture_evidence::{CaptureEvidence, Cost, Dump, SameWords, median};
pub use compare::{Compared, OpBits, compare};
pub use cuda::{Gpu, IMAGES, digests, sketch_digest};
pub use evidence::{GoldenEvidence, Refusal, SameFile, standing};
pub use spread_evidence::SpreadEvidence;

#[cfg(test)]
mod tests;
