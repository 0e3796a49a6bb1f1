//! `karat isolate`: the whole isolation plan unattended, and what follows from it.
//!
//! The plan is the one that people follow by hand: is anything lost, do the decode kernels do it, how far are the logits from
//! golden's, does decode differ from prefill, which patch takes the most with it when it is reverted, does the cache change a
//! bit, which layer and op bring it. A step that fails is told, and the others go on.

mod broken;
mod evidence;
mod steps;
mod synthesis;

use std::time::Instant;

use karat_optimized::Plan;
use serde::Serialize;

use self::evidence::Evidence;
use crate::bisect::{Books, Change, Criterion, Metric, Rig, layer_and_op, smallest_set};
use crate::job::{Inputs, Job};
use crate::progress::Progress;
use crate::{Error, Result, Subject, finish};

pub use synthesis::{Suspect, Synthesis};

/// What to isolate.
pub struct Isolate<'a> {
    /// The path, with all of its patches on.
    pub subject: Subject,
    /// Conversations of the recall step, or why there are none.
    pub quick: std::result::Result<Inputs, String>,
    /// Arguments that name model and conversations, for the commands of the next step.
    pub arguments: String,
    /// Changes numbers of patch sets under way, where a step runs them by itself (not in the audit, recall and histories).
    pub change: Option<&'a Change<'a>>,
    /// Changes the programs of histories: a scheduler with a fault.
    pub books: Option<&'a Books<'a>>,
}

/// One step as it went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepRun {
    /// Its name.
    pub name: &'static str,
    /// Wall time.
    pub seconds: f64,
    /// Passes of all rows through all layers of one path; 0 where the step does not count them.
    pub forward_equivalents: f64,
    /// Why it has no result, if it has none.
    pub failed: Option<String>,
}

/// Says which step is running.
struct Named<'a> {
    inner: &'a dyn Progress,
    step: &'static str,
}

impl Progress for Named<'_> {
    fn step(&self, done: u64, total: u64, what: &str) {
        self.inner.step(done, total, &format!("{}: {what}", self.step));
    }
}

/// Books of the steps.
#[derive(Default)]
struct Book {
    runs: Vec<StepRun>,
}

impl Book {
    /// Runs a step. Its failure is written down; an interruption ends everything.
    fn step<T>(&mut self, name: &'static str, run: impl FnOnce() -> Result<(T, f64)>) -> Result<Option<T>> {
        let start = Instant::now();
        let (value, work, failed) = match run() {
            Ok((value, work)) => (Some(value), work, None),
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => (None, 0.0, Some(error.to_string())),
        };
        self.runs.push(StepRun { name, seconds: start.elapsed().as_secs_f64(), forward_equivalents: work, failed });
        Ok(value)
    }
}

/// Runs the plan.
///
/// # Errors
/// Usage: patches that don't exist or conflict. Interrupted. What fails in a step stands in the result.
pub fn isolate(job: &Job<'_>, ask: &Isolate<'_>) -> Result<Synthesis> {
    let start = Instant::now();
    let Subject { stock, patches, history } = &ask.subject;
    Plan { stock: *stock, patches: patches.clone(), history: *history }.check()?;
    let mut book = Book::default();
    let mut found = Evidence::default();
    let named = |step| Named { inner: job.progress, step };
    // The steps in the order of the plan. Those on logits share a rig: no layer runs twice on the same streams.
    let (recall, audit, logits) = (named("recall"), named("audit"), named("logits"));
    let at = |progress| Job { inputs: job.inputs.clone(), progress, ..job.again() };
    let recalled = Job { inputs: Inputs::default(), progress: &recall, ..job.again() };
    found.recall = book.step("recall", || Ok((steps::recalled(&recalled, ask)?, 0.0)))?;
    let on = at(&logits);
    let mut rig = Rig::new(&on, *stock, *history, ask.change);
    let mut done = 0.0;
    let mut taken = |rig: &Rig<'_>| rig.work() - std::mem::replace(&mut done, rig.work());
    found.decode = book.step("decode kernels", || Ok((steps::decode(&mut rig, patches)?, taken(&rig))))?;
    found.logits = book.step("golden logits", || Ok((steps::logits(&mut rig, patches)?, taken(&rig))))?;
    let apart = at(&logits);
    let other = Rig::new(&apart, *stock, *history, ask.change);
    found.phases = book.step("prefill against decode", || Ok((steps::phases(&other, patches)?, 4.0)))?;
    found.reverts = book.step("one-line reverts", || Ok((steps::reverts(&mut rig, patches)?, taken(&rig))))?;
    let served = named("histories");
    let apart = at(&served);
    let other = Rig::new(&apart, *stock, *history, None);
    found.histories = book.step("histories", || steps::histories(&other, &mut rig, patches, ask.books))?;
    let audited = at(&audit);
    found.audit = book.step("audit", || steps::audited(&audited, ask))?;
    let pair = book.step("layers and ops", || Ok((layer_and_op(&mut rig, patches)?, taken(&rig))))?;
    if let Some((layer, op)) = pair {
        (found.layer, found.op) = (Some(layer), op);
    }
    if let Some(criterion) = criterion(&found).filter(|_| !patches.is_empty()) {
        let searched =
            book.step("smallest patch set", || Ok((smallest_set(&mut rig, &ask.subject, criterion)?, taken(&rig))))?;
        found.smallest = searched;
    }
    let limits = finish::limits(job, !patches.is_empty(), Some(*stock));
    let mut out = synthesis::of(job, ask, &found, book.runs, limits);
    out.seconds = start.elapsed().as_secs_f64();
    Ok(out)
}

/// The patches together have so many times stock's mean KL: worth a search, though nothing is broken.
const MULTIPLIED: f64 = 3.0;

/// By what the smallest patch set is searched: lost answers, then a failed audit, then a mean KL far over stock's (the limit
/// is their geometric mean); nothing where none of these is there.
fn criterion(found: &Evidence) -> Option<Criterion> {
    if found.logits.as_ref().is_some_and(|(all, _)| !all.lost.is_empty()) {
        return Some(Criterion::Over(Metric::Recall, Some(0.0)));
    }
    let fails = found.audit.as_ref().is_some_and(|a| a.verdict == karat_bundle::Verdict::Fail);
    if fails {
        return Some(Criterion::Verdict);
    }
    let (all, stock) = found.logits.as_ref()?;
    (stock.kl > 0.0 && all.kl > MULTIPLIED * stock.kl)
        .then(|| Criterion::Over(Metric::Kl, Some((all.kl * stock.kl).sqrt())))
}
