//! Which model: a folder, or the one that comes with the program.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use karat_model::Checkpoint;

use crate::failure::Result;

/// Seed of `karat model new`.
pub(crate) const SEED: u64 = 0;

/// Label of the default model.
pub(crate) const LABEL: &str = "mini golden model";

/// The longest conversations that the default model was trained on (its card's recipe).
pub(crate) const TRAINED_TOKENS: usize = 16384;

/// A model and whether it is one with random weights.
pub(crate) struct Source {
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) random_weights: bool,
}

/// Files of the default model.
#[cfg(feature = "golden")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature there is none")]
pub(crate) fn default_files() -> Result<BTreeMap<String, Arc<[u8]>>> {
    Ok(karat_golden::files())
}

/// This program was built without a default model.
#[cfg(not(feature = "golden"))]
pub(crate) fn default_files() -> Result<BTreeMap<String, Arc<[u8]>>> {
    Err(crate::failure::Failure::usage(
        "this karat was built without its default model (feature `golden`): pass --model DIR",
    ))
}

/// Opens a folder, or the default model.
pub(crate) fn open(dir: Option<&Path>) -> Result<Source> {
    let checkpoint = match dir {
        Some(dir) => Checkpoint::open(dir)?,
        None => Checkpoint::from_memory(LABEL, default_files()?)?,
    };
    // Nothing in a folder tells weights that were drawn from weights that were trained.
    Ok(Source { checkpoint: Arc::new(checkpoint), random_weights: false })
}
