//! The seam: the one trait that the golden path and the candidate path both implement, and its types.
//!
//! There is no arithmetic here. `reference`, `optimized` and imported traces are each a [`Path`]; the audit drives any
//! two of them layer by layer and never learns how they compute. One writable [`Visitor`] serves taps, faults, causal
//! swaps, forced operands and noise.

mod copy;
mod error;
mod graph;
mod lane;
mod path;
mod record;
mod reduce;
mod request;
mod site;
mod tensor;
mod there;
mod visit;

pub use copy::{copied, copy, extend};
pub use error::{Error, Result};
pub use graph::{Op, OpSpec, Part};
pub use lane::{Choices, Kv, KvPart, KvRows, KvView, Lane, LayerChoices, LayerOut, Routing, Streams};
pub use path::{Blocks, Layer, Path, Together};
pub use record::{Recorded, Recorder};
pub use reduce::AllReduce;
pub use request::{Phase, Requests, RowId, Sequence, Span, SpanKind, Turn};
pub use site::{Block, Site, Tap};
pub use tensor::{Data, DataMut, Tensor, TensorMut};
pub use there::{Later, SketchLine, There};
pub use visit::{NoTaps, Visitor, Want};

#[cfg(test)]
mod tests;
