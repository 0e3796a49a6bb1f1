//! Measures how far a candidate's tensors are from golden's. It never decides what is a speed patch's fault: `audit`
//! does that with these numbers.
//!
//! | module | what it gives |
//! |---|---|
//! | [`moments`] | one pass over a pair of tensors: sums, extremes, counts and histograms, per tensor, row, class and part; or the core set alone |
//! | [`View`] | a tensor in memory or in a mapped file, of any float type: decoded inside the pass |
//! | [`metrics`] | every printed metric, from moments alone |
//! | [`split()`] | total = inherited + injected in one pass over three tensors |
//! | [`discrete`] | experts and entries: flips with golden's margin, recall, ties |
//! | [`logits`] | KL, JS, ranks and margins per position, and their summaries |
//! | [`change`] | where along depth an error begins |
//! | [`rows`] | how far some rows of an op's result are off, and in units of the last place |
//! | [`signature`] | what an error looks like |
//! | [`storage`] | storage formats: ulp, largest value, RMS of one rounding |
//! | [`tolerance`] | what a tap may differ by, and the verdict of one row of `taps.csv` |
//!
//! All sums are f64, in an order that the shapes alone fix: the same bits for every thread count and instruction set.
//! Work is spread over the rayon pool that the caller runs in (`pool.install(..)`).

pub mod change;
pub mod discrete;
mod grid;
mod isa;
pub mod logits;
pub mod metrics;
pub mod moments;
mod quad;
pub mod rows;
pub mod signature;
mod simd_call;
pub mod split;
pub mod storage;
mod sweep;
pub mod tolerance;
mod values;

pub use grid::Grid;
pub use isa::Isa;
pub use metrics::{Metrics, RowMetrics};
pub use moments::{
    Cell, CoreMeasured, CoreSums, Histogram, Measured, Moments, Offender, Sums, measure, measure_core, measure_views,
};
pub use split::{Split, SplitSums, split};
pub use storage::{Rounding, Storage};
pub use tolerance::{Claims, Tolerance, Verdict};
pub use values::{Code, Values, View};

#[cfg(test)]
mod support;
