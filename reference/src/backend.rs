//! Golden's ops on another processor: what it computes for us, and what became of it.
//!
//! A backend takes values in and gives values back, op by op; which op comes next, what a visitor sees and what a
//! sequence carries stay here. It follows the normative text of [`crate::linalg`] to the bit, so that where it computes
//! is no part of what golden says. Angles (their cosines and sines) and lists of indices are made here for it, and a stored
//! weight is checked here: a code or scale that is no number is refused before a backend sees it. What it decodes are the
//! routed experts, whose codes and scales it is given as they lie in the checkpoint; other weights come decoded. The rows of a
//! layer's experts may stay there while the experts pass ([`Experts`]). The f64 mode never leaves this processor.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use karat_model::{Error, Result};
use karat_seam::Later;

use crate::made::Lying;

mod stored;

pub use stored::{Code, Matrix, Scales, Source, StoredValues};

/// What a backend keeps of a weight for as long as the weight lives.
pub type Kept = Arc<dyn Any + Send + Sync>;

/// Coefficients of a mixing as a backend gives them: pre `[S,hc]`, post `[S,hc]`, comb `[S,hc,hc]`.
pub type Mixing = (Vec<f32>, Vec<f32>, Vec<f32>);

/// Sizes of a mixing.
#[derive(Debug, Clone, Copy)]
pub struct Sinkhorn {
    /// Streams.
    pub hc: usize,
    /// Iterations.
    pub iters: usize,
    /// Added to sums and probabilities.
    pub eps: f32,
}

/// Rows that a compressor pools (spec 2.7).
#[derive(Debug, Clone, Copy)]
pub struct Windows<'a> {
    /// `[windows * r, columns]`, and their scores without ape.
    pub kvp: &'a [f32],
    /// See `kvp`.
    pub score: &'a [f32],
    /// `[r, columns]`
    pub ape: &'a [f32],
    /// `[r, width]` Ca rows of the window before the first, and their scores with ape: none, or both.
    pub before: Option<[&'a [f32]; 2]>,
    /// Tokens a window.
    pub ratio: usize,
    /// Width of an entry.
    pub width: usize,
}

/// Queries of an indexer (spec 2.8).
#[derive(Debug, Clone, Copy)]
pub struct Scoring<'a> {
    /// `[S,Hi,di]`
    pub q: &'a [f32],
    /// `[T,di]`
    pub k: &'a [f32],
    /// `[S,Hi]`
    pub w: &'a [f32],
    /// Hi.
    pub heads: usize,
    /// Position of the first row.
    pub first: usize,
    /// Tokens an entry.
    pub ratio: usize,
}

/// Which entries some rows may choose from (spec 2.8).
#[derive(Debug, Clone, Copy)]
pub struct Choosing<'a> {
    /// `[S,T]`; none where all visible entries are taken.
    pub scores: Option<&'a [f32]>,
    /// Most entries of a row with scores.
    pub topk: usize,
    /// Rows.
    pub rows: usize,
    /// T.
    pub total: usize,
    /// Position of the first row.
    pub first: usize,
    /// Tokens an entry.
    pub ratio: usize,
}

/// Queries with the keys that each attends to (spec 2.9).
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// `[S,H,hd]`
    pub q: &'a [f32],
    /// `[n,hd]`: window rows, then entries.
    pub keys: &'a [f32],
    /// Rows of `keys`, query by query, in key order.
    pub list: &'a [u32],
    /// `[S+1]`: where each query's keys begin in `list`.
    pub from: &'a [u32],
    /// `[H]`
    pub sink: &'a [f32],
    /// hd.
    pub width: usize,
    /// Factor of every score.
    pub scale: f32,
}

/// Where a backend has a result, until its memory is needed for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which of its memories, one after the other.
    pub memory: u64,
    /// Bytes of all results and operands before it.
    pub start: u64,
}

/// What comes to w2 of an expert.
#[derive(Debug, Clone, Copy)]
pub enum Act<'a> {
    /// Values of its own: `[rows, I]`.
    Given(&'a [f32]),
    /// What [`Experts::act`] would give.
    Made(Up<'a>),
}

/// The first half of an expert.
#[derive(Debug, Clone, Copy)]
pub struct Up<'a> {
    /// `[I,D]` gate and up.
    pub weights: [Matrix<'a>; 2],
    /// Weight of each row.
    pub wt: &'a [f32],
    /// L of swiglu.
    pub limit: f32,
    /// Where each row's activations are kept for [`Experts::sketch`], ascending; empty: nowhere.
    pub kept: &'a [u32],
}

/// The rows of a layer's routed experts, on a backend until this is dropped. Experts come one after the other; `rows` are
/// those that chose one, ascending; a row may come twice, one behind the other.
///
/// # Errors
/// All ops: as for [`Backend`].
pub trait Experts: Debug + Send + Sync {
    /// `wt * swiglu(x w1^T, x w3^T)` of some rows of x: `[rows, I]`.
    fn act(&self, rows: &[u32], up: Up<'_>) -> Result<Vec<f32>>;
    /// `act w2^T`: `[rows, D]`, or, where sums are kept, nothing: it is added to the rows' sums in f64, row by row in the order in
    /// which this is called.
    fn down(&self, rows: &[u32], act: Act<'_>, w2: Matrix<'_>) -> Result<Vec<f32>>;
    /// The sums of some rows, rounded once: `[rows, D]`.
    fn sums(&self, rows: Range<usize>) -> Result<Vec<f32>>;
    /// Makes room for so many activations of `inner` values, which [`Experts::down`] keeps where [`Up::kept`] says. False: it has none.
    fn keep(&mut self, _acts: usize, _inner: usize) -> Result<bool> {
        Ok(false)
    }
    /// Begins to sketch rows of `each` activations that were kept, one behind the other. `None`: none were.
    fn sketch(&self, _rows: Range<usize>, _each: usize) -> Result<Option<Box<dyn Later>>> {
        Ok(None)
    }
}

/// Computes golden's ops in f32. Every slice is row-major; results have the bits of this crate's own loops, but for products
/// where a floor is stated.
///
/// # Errors
/// All ops: the device failed, or its memory is full.
pub trait Backend: Debug + Send + Sync {
    /// Where it runs, for people: the device's name.
    fn name(&self) -> String;
    /// What its results follow from: which code, compiled for what. Enters a path's identity.
    fn identity(&self) -> String;
    /// How far its products may be from exact, in parts of the sum of |x| |w|: its stated floor. 0: they have golden's bits, and
    /// golden in f64 says how far those are.
    fn floor(&self) -> f64 {
        0.0
    }
    /// `y = x w^T`: `[S,k]` to `[S,n]`.
    fn linear(&self, x: &[f32], w: Matrix<'_>) -> Result<Vec<f32>>;
    /// `1 / rms` of each row of `n` values: `[S]`.
    fn inverse_rms(&self, x: &[f32], n: usize, eps: f64) -> Result<Vec<f32>>;
    /// `(x * r) * w`, r = 1 / rms of each row of `n`; without `w` `x * r`.
    fn rms_norm(&self, x: &[f32], n: usize, w: Option<&[f32]>, eps: f64) -> Result<Vec<f32>>;
    /// Turns the last `2 * half` of every `width` values; `turns` `[S,half]` pairs (cos, sin), each row's heads alike.
    fn rotate(&self, x: &[f32], width: usize, turns: &[f32], half: usize, back: bool) -> Result<Vec<f32>>;
    /// `x * factor`.
    fn scale(&self, x: &[f32], factor: f32) -> Result<Vec<f32>>;
    /// Coefficients from products `m [S,(2+hc)*hc]` and r `[S]`.
    fn coefficients(&self, m: &[f32], r: &[f32], base: &[f32], scale: &[f32], size: Sinkhorn) -> Result<Mixing>;
    /// The head's weights of the streams from products `m [S,hc]` and r `[S]`: `[S,hc]`.
    fn head_weights(&self, m: &[f32], r: &[f32], base: &[f32], scale: f32, eps: f32) -> Result<Vec<f32>>;
    /// `sum_j pre[t,j] h[t,j,:]`: `[S,D]`.
    fn collapse(&self, pre: &[f32], h: &[f32], hc: usize) -> Result<Vec<f32>>;
    /// `sum_j comb[t,j,k] h[t,j,:] + post[t,k] y[t,:]`: `[S,hc,D]`.
    fn combine(&self, comb: &[f32], post: &[f32], h: &[f32], y: &[f32], hc: usize) -> Result<Vec<f32>>;
    /// Entries before their norm `[windows,width]`, and all scores with ape `[windows*r, columns]`.
    fn pool(&self, windows: Windows<'_>) -> Result<(Vec<f32>, Vec<f32>)>;
    /// `[S,T]`; -inf where an entry is not visible.
    fn index_scores(&self, scoring: Scoring<'_>) -> Result<Vec<f32>>;
    /// `[S,T]`, 1 where a row takes the entry.
    fn select(&self, choosing: Choosing<'_>) -> Result<Vec<u8>>;
    /// (o `[S,H,hd]`, lse `[S,H]`).
    fn attend(&self, attention: Attention<'_>) -> Result<(Vec<f32>, Vec<f32>)>;
    /// The `k` best of `sqrt(softplus(logits)) + bias` of each row, best first: `[S,k]`.
    fn choose(&self, logits: &[f32], bias: &[f32], k: usize) -> Result<Vec<u32>>;
    /// Routing weights `[S,K]` of the chosen experts.
    fn route_weights(&self, logits: &[f32], experts: usize, idx: &[u32], k: usize, factor: f64) -> Result<Vec<f32>>;
    /// `wt[row] * swiglu(g, u)` of rows of `inner` values; without `wt` unweighted.
    fn swiglu(&self, g: &[f32], u: &[f32], limit: f32, wt: Option<(&[f32], usize)>) -> Result<Vec<f32>>;
    /// `sum over i of out[t, order[t,i], :]` in f64, rounded once: `[S,K,D]` to `[S,D]`; order `[S,K]`.
    fn sum_experts(&self, out: &[f32], order: &[u32], k: usize, d: usize) -> Result<Vec<f32>>;
    /// `a + b`, where b's rows of `d` values stand for `repeat` rows of a each.
    fn add(&self, a: &[f32], b: &[f32], d: usize, repeat: usize) -> Result<Vec<f32>>;
    /// Begins a layer's routed experts: lays the rows `x` (pieces of rows of `d` values, none if no op takes them) there, and as
    /// many sums as are asked for. `None`: it has no such memory, and the experts go op by op.
    fn experts(&self, _x: &[&[f32]], _d: usize, _sums: usize) -> Result<Option<Box<dyn Experts>>> {
        Ok(None)
    }
    /// Processors over which the routed experts are spread, in equal ranges of ids.
    fn ranks(&self) -> usize {
        1
    }
    /// The processor of a rank; `None`: this one.
    fn rank(&self, _: usize) -> Option<&dyn Backend> {
        None
    }
    /// Where the result of an op that just ended still lies: `values` are those that it gave, as it gave them.
    fn place(&self, _: &[f32]) -> Option<Place> {
        None
    }
    /// Begins to sketch `rows` rows of equal length, these values of a place, without the minus infinities at their ends if
    /// they are ragged. `None`: they lie there no more, or nothing here can do it.
    fn sketch(&self, _: Place, _: Range<usize>, _rows: usize, _ragged: bool) -> Result<Option<Box<dyn Later>>> {
        Ok(None)
    }
    /// What each rank computed, brought together here. Nothing is added on the way: the sum over experts is golden's own.
    fn gather(&self, shares: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        Ok(shares)
    }
}

/// A path's backend, and the first error that it had: from then on everything is computed here, so that values stay
/// values, and the path refuses its result.
#[derive(Debug)]
pub(crate) struct Slot {
    backend: Arc<dyn Backend>,
    failed: Mutex<Option<Error>>,
}

impl Slot {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, failed: Mutex::default() }
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Where the result of the op that just ended lies.
    pub(crate) fn lying(&self, values: &[f32]) -> Option<Lying> {
        Some(Lying::new(self.backend.clone(), self.backend.place(values)?, values.len()))
    }

    /// One op there, by the processor of a rank; `None` once it has failed.
    pub(crate) fn run<R>(&self, rank: usize, op: impl FnOnce(&dyn Backend) -> Result<R>) -> Option<R> {
        if self.failed.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return None;
        }
        match op(self.backend.rank(rank).unwrap_or(&*self.backend)) {
            Ok(done) => Some(done),
            Err(error) => {
                self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                None
            }
        }
    }

    /// The error that it had.
    pub(crate) fn check(&self) -> Result<()> {
        match &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
