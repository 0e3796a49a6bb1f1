//! Facts about a model that both paths share: its config, its bytes, its names, its prompts.
//!
//! No arithmetic of the forward pass lives here. Number formats (`formats/`) serve the candidate path and the tools;
//! `reference` decodes for itself and never imports them.

pub mod checkpoint;
pub mod config;
pub mod diff;
mod error;
pub mod files;
pub mod formats;
pub mod inspect;
mod json;
pub mod new;
pub mod prompt;
#[cfg(test)]
mod testing;
pub mod verify;

pub use checkpoint::Checkpoint;
pub use config::Config;
pub use error::{Error, ErrorKind, Plain, Result};
pub use new::{Experts, Geometry, new_model, new_model_with, words_json, write_model};
