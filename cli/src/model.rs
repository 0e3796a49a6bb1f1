//! Which model: a folder, or the one that is made in memory.

use std::path::Path;
use std::sync::Arc;

use karat_model::{Checkpoint, Geometry, new_model};

use crate::failure::Result;

/// Seed of the default model.
pub(crate) const SEED: u64 = 0;

/// Label of the default model.
const LABEL: &str = "made in memory";

/// A model and whether it is one of ours with random weights.
pub(crate) struct Source {
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) random_weights: bool,
}

/// Files of the default model.
pub(crate) fn default_files() -> std::collections::BTreeMap<String, Arc<[u8]>> {
    new_model(Geometry::Default, SEED)
}

/// Opens a folder, or makes the default model.
pub(crate) fn open(dir: Option<&Path>) -> Result<Source> {
    match dir {
        Some(dir) => Ok(Source { checkpoint: Arc::new(Checkpoint::open(dir)?), random_weights: false }),
        None => {
            let label = format!("{LABEL} (seed {SEED})");
            let checkpoint = Arc::new(Checkpoint::from_memory(&label, default_files())?);
            Ok(Source { checkpoint, random_weights: true })
        }
    }
}
