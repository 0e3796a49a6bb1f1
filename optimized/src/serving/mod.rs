//! Serving: how requests become steps, and the KV state that steps carry. Made from the requests alone, so that a layer
//! can run the whole schedule before the next layer starts.

mod coverage;
mod schedule;
mod state;

pub use coverage::{Coverage, PatchCoverage};
pub use schedule::History;

pub(crate) use coverage::Counters;
pub(crate) use schedule::{Schedule, Segment, Step};
pub(crate) use state::{Compressor, Window};

#[cfg(test)]
mod tests;
