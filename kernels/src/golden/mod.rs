//! Golden on a device: the ops of `karat-reference` as kernels of `cuda/reference/golden_*.cu`, to the same bits.
//!
//! Each op takes values and gives values; a weight stays on the device for as long as the path holds it, so a layer is
//! streamed through the device as it is through memory. Routed experts go there as they are stored and are decoded there, while
//! the rows of the layer and their sums stay there. It is written for bits first. A second tier, of other bits and with a stated
//! bound, has products on the tensor cores ([`Tier::ExactSplit`]).

mod accumulator;
mod capture_evidence;
mod compare;
mod cuda;
mod evidence;
mod experts;
mod formats;
mod ops;
mod run;
mod sketch;
mod split;
mod split_evidence;
mod spread_evidence;
mod tiers;
mod weights;

pub use accumulator::{DECLARED, LONGEST, Model, accumulator, bound, least, stated};
pub use capture_evidence::{CaptureEvidence, Cost, Dump, Look, Phases, SameWords, median};
pub use compare::{Compared, OpBits, compare};
pub use cuda::{Gpu, IMAGES, digests, sketch_digest};
pub use evidence::{GoldenEvidence, Refusal, SameFile, standing};
pub use sketch::Spent;
pub use split::{Taken, Tier};
pub use split_evidence::{CANCELLING, Products, SplitEvidence, Times, split_digest, split_standing};
pub use spread_evidence::SpreadEvidence;
pub use tiers::{TapDistance, Tiers, tiers};

#[cfg(test)]
mod tests;
