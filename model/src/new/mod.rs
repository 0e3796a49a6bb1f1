//! Makes a model of the released format out of a seed: random weights, real structure, real special tokens.
//!
//! The same seed gives the same bytes on every machine: integers come from `Pcg64`, floats follow from them by an
//! integer formula and exact powers of two, and every tensor has a random stream of its own (named after the tensor),
//! so that adding a tensor moves no other.

mod geometry;
mod quantise;
mod random;
mod tensors;
mod texts;
mod vocabulary;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use geometry::{Experts, Geometry};
pub use vocabulary::{BOS, EOS, FIRST_BYTE, PAD, words_json};
pub use write::write_model;

/// The files of a made model by name: `config.json`, `model.safetensors`, `tokenizer.json`, `encoding.json`.
///
/// Shapes obey spec section 4's rules for tiny configs; naming and number formats are those of the released
/// checkpoints (F8_E4M3 and I8-packed FP4 with E8M0 scales, BF16, F32, I64). Byte-identical for a seed.
pub fn new_model(geometry: Geometry, seed: u64) -> BTreeMap<String, Arc<[u8]>> {
    new_model_with(geometry, seed, Experts::Mxfp4)
}

/// As [`new_model`], with the routed experts in this format. The values that are quantised are the same for a seed.
pub fn new_model_with(geometry: Geometry, seed: u64, experts: Experts) -> BTreeMap<String, Arc<[u8]>> {
    let shape = geometry.shape();
    let files = [
        ("config.json", geometry::config_json(&shape)),
        ("model.safetensors", tensors::safetensors(&shape, geometry, seed, experts)),
        ("tokenizer.json", vocabulary::tokenizer_json(shape.vocab)),
        ("encoding.json", texts::encoding_json()),
    ];
    files.into_iter().map(|(name, bytes)| (name.to_owned(), Arc::from(bytes))).collect()
}

#[cfg(test)]
mod tests;
