//! Histories: however the engine came to a final context, its logits and the content of its pages must be those of its
//! own cold run, bit for bit: no op's bits depend on which rows come with it, so that any difference is the cache's.

mod checker;
mod compare;
mod golden;
mod report;
mod yardstick;

use karat_optimized::serving::{Geometry, Served};
use karat_optimized::{Plan, Stock};

pub use checker::{Checked, Checker};
pub use compare::Difference;
pub use golden::FromGolden;
pub use report::{HistoriesReport, HistoryRow};

use crate::progress::Steps;
use crate::{Job, Result};

/// Which low-precision path, and which histories of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Histories {
    /// Stock profile.
    pub stock: Stock,
    /// Speed patches, all at once.
    pub patches: Vec<String>,
    /// Histories, in order.
    pub histories: Vec<Served>,
    /// Tokens a page; what suits the model when `None`.
    pub page: Option<usize>,
    /// Seed of page orders and drafts.
    pub seed: u64,
}

/// Forward calls of the smallest failing history are looked for by trying at most so many.
const SHRINK: usize = 60;

/// Runs every history and compares it with the path's own cold run and with golden.
///
/// # Errors
/// As [`crate::audit`]. A history that differs is no error: the report says so.
pub fn histories(job: &Job<'_>, ask: &Histories) -> Result<HistoriesReport> {
    let start = std::time::Instant::now();
    let checkpoint = &job.checkpoint;
    let geometry = Geometry::of(checkpoint.config(), ask.page)?;
    let plan = Plan { stock: ask.stock, patches: ask.patches.clone(), history: karat_optimized::History::Cold };
    let mut checker = Checker::new(checkpoint.clone(), job.inputs.requests.clone(), plan, geometry, job.threads)?;
    let mut steps = Steps::new(job.progress, job.stop, ask.histories.len() as u64 + 1);
    steps.next("golden")?;
    checker.run_golden()?;
    let mut rows = Vec::new();
    for history in &ask.histories {
        steps.next(&format!("history {history}"))?;
        let script = history.script(&job.inputs.requests, geometry, ask.seed);
        let checked = checker.check(history.name(), &script)?;
        let minimal = match checked.is_same() {
            true => None,
            false => Some(script.shrink(SHRINK, |smaller| {
                checker.check(history.name(), smaller).is_ok_and(|checked| !checked.is_same())
            })),
        };
        rows.push(HistoryRow { history: *history, checked, minimal });
    }
    Ok(HistoriesReport {
        model: checkpoint.label().to_string(),
        sequences: job.inputs.requests.seqs.len(),
        tokens: job.inputs.requests.seqs.iter().map(|s| s.ids.len()).sum(),
        stock: ask.stock.to_string(),
        patches: ask.patches.clone(),
        geometry,
        rows,
        seconds: start.elapsed().as_secs_f64(),
    })
}
