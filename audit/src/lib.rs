//! The lockstep loop over golden and candidates, and what is attributed to whom.
//!
//! For every layer and tap: total C(x') - R(x) = inherited R(x') - R(x) + injected C(x') - R(x'), where x is golden's
//! layer input and x' the candidate's. The injected part is judged; the inherited part is what earlier layers did.

mod align;
mod candidate;
mod choices;
mod compare;
mod decisions;
mod error;
mod facts;
mod head;
mod layer;
mod lockstep;
mod place;
mod predict;
mod progress;
mod storage;

pub use candidate::Candidate;
pub use error::{Error, Result};
pub use facts::{Facts, LayerFacts};
pub use lockstep::{Lockstep, Outcome};
pub use predict::PatchSpec;
pub use progress::{Progress, Quiet};
pub use storage::storage;

#[cfg(test)]
mod tests;
