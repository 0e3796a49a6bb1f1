//! The candidate path on CPU: stock profiles and speed patches as contracts, and the serving schedule.
//!
//! A *contract* rounds exactly where a kernel rounds: storage points, operand formats, split and merge. Which rules hold
//! in which phase is data (`plan/`); a stock profile is one set of rules and a speed patch (`patches/`) edits it.
//! Nothing here is shared with the golden path: own decoders, own quantisers, own dot product.

mod arith;
mod identity;
mod kernels;
mod layer;
mod linear;
mod mtp;
mod ops;
mod optimized;
mod patch_sets;
mod patches;
mod plan;
mod probe;
pub mod quant;
pub mod serving;

pub use kernels::{
    Accumulation, Attending, Grouped, Held, Kernel, Kernels, Mix, Projecting, Routed, Scoring, Standing,
};
pub use ops::rope::{Rope, Turn};
pub use optimized::Optimized;
pub use patch_sets::PatchSets;
pub use patches::{Claim, DEFAULT_PATCHES, Given, Patch, PatchOption, Risk, patches};
pub use plan::{
    ActCodes, Attend, Basis, Coded, Exponential, IndexFormat, IndexRule, IndexScore, KvFormat, Numerics, Order, Parts,
    Plan, Product, Profile, QueryNorm, RouteWeight, Row, Scaling, SplitK, Stock, Store, Swiglu, WeightCodes,
};
pub use probe::{Effect, Open, Probe, probes};
pub use serving::{Coverage, History, PatchCoverage};
