//! The lockstep loop over golden and candidates, and what is attributed to whom.
//!
//! For every layer and tap: total C(x') - R(x) = inherited R(x') - R(x) + injected C(x') - R(x'), where x is golden's
//! layer input and x' the candidate's. The injected part is judged; the inherited part is what earlier layers did.

mod align;
mod bisect;
mod by_kernel;
mod cache;
mod candidate;
mod choices;
mod compare;
mod decisions;
mod derive;
mod effects;
mod embed;
mod error;
mod examine;
mod expected;
mod facts;
mod finish;
mod flow;
mod head;
mod head_flips;
mod histories;
mod index_noise;
mod isolate;
mod job;
mod last_place;
mod layer;
mod lockstep;
mod logits;
mod mtp;
mod op;
mod outputs;
mod own_error;
mod own_ops;
mod part;
mod pass;
mod patch_rows;
mod place;
mod plan;
mod predict;
mod progress;
mod recall;
mod record;
mod repro;
mod rerun;
mod rotate;
mod sampled;
mod slots;
mod states;
mod storage;
mod trace;

pub use bisect::{
    Asked, Asking, Bisect, BisectReport, Books, Change, Check, Criterion, Ended, Metric, Over, Stage, VARIABLE, Work,
    bisect, bisect_check, check_names, search,
};
pub use by_kernel::{KernelSide, Sizes, Tally};
pub use cache::{Cache, DEFAULT_LIMIT, Holding};
pub use candidate::{Candidate, Claimed};
pub use derive::Rules;
pub use error::{Error, Result};
pub use expected::{expected_because, expected_verdict};
pub use facts::{Facts, LayerFacts};
pub use histories::{
    Added, Checked, Checker, Difference, FromGolden, Histories, HistoriesReport, HistoryRun, OfSequence, Same,
    histories,
};
pub use isolate::{Isolate, StepRun, Suspect, Synthesis, isolate};
pub use job::{Inputs, Job};
pub use lockstep::{Lockstep, Outcome};
pub use logits::logits;
pub use mtp::next_ids;
pub use op::{
    Answer, Judged, OpJob, OpRow, Operands, Side, Sides as OpSides, first_layer, op_named, op_names, read_answer,
};
pub use patch_rows::Calls;
pub use plan::{Subject, audit, specs};
pub use predict::PatchSpec;
pub use progress::{Progress, Quiet};
pub use recall::{Heard, Kept, recall, recall_of, recall_until};
pub use repro::free as repro_place;
pub use states::States;
pub use storage::storage;
pub use trace::{TraceJob, audit_trace, requests_of};

#[cfg(test)]
mod tests;
