//! Histories: however the engine came to a final context, its logits and the content of its pages must be those of its
//! own cold run, bit for bit: no op's bits depend on which rows come with it, so that any difference is the cache's.

mod checker;
mod compare;
mod drafts;
mod flips;
mod golden;
mod pass;
mod report;
mod rows;
mod yardstick;

use std::collections::BTreeMap;
use std::time::Instant;

use karat_bundle::{Bundle, Candidate, PatchUse, Walls, history_verdict, judge};
use karat_optimized::serving::{Facts, Geometry, Served};
use karat_optimized::{Plan, Stock};

pub use checker::{Checked, Checker, OfSequence};
pub use compare::{Difference, Same};
pub use flips::Added;
pub use golden::FromGolden;
pub use report::{HistoriesReport, HistoryRun};

use crate::job::peak_memory;
use crate::progress::Steps;
use crate::{Job, Result, finish};

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
    /// Seed of page orders, and of drafts where the model has no MTP block.
    pub seed: u64,
}

impl Histories {
    /// The patch set's name in the tables.
    fn patch_set(&self) -> String {
        match self.patches.as_slice() {
            [] => "stock".into(),
            [one] => format!("stock+{one}"),
            _ => "stock+all".into(),
        }
    }
}

/// Forward calls of the smallest failing history are looked for by trying at most so many.
const SHRINK: usize = 60;

/// Runs every history and compares it with the path's own cold run and with golden.
///
/// # Errors
/// As [`crate::audit`]. A history that differs is no error: the report says so.
pub fn histories(job: &Job<'_>, ask: &Histories) -> Result<HistoriesReport> {
    let start = Instant::now();
    let (checkpoint, requests) = (&job.checkpoint, &job.inputs.requests);
    let geometry = Geometry::of(checkpoint.config(), ask.page)?;
    let plan = Plan { stock: ask.stock, patches: ask.patches.clone(), history: karat_optimized::History::Cold };
    let mut checker = Checker::new(checkpoint.clone(), requests.clone(), plan, geometry, job.threads)?;
    let mut steps = Steps::new(job.progress, job.stop, ask.histories.len() as u64 + 1);
    steps.next("golden")?;
    checker.run_golden()?;
    let golden_s = start.elapsed().as_secs_f64();
    let drafts = match ask.histories.contains(&Served::Speculative) {
        true => checker.drafts()?,
        false => None,
    };
    let mut bundle = Bundle { run: job.provenance(), ..Bundle::default() };
    let mut runs = Vec::new();
    // Why the MTP block's drafts would not do.
    let mut guessed = None;
    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    for history in &ask.histories {
        steps.next(&format!("history {history}"))?;
        let mut script = history.script(requests, geometry, ask.seed);
        if let (Served::Speculative, Some(drafts)) = (history, &drafts) {
            let drafted = script.clone().with_guesses(drafts);
            guessed = Facts::of(&drafted.program()?).lacks(*history);
            // Without a right draft, or without a wrong one, only half of the machinery would run.
            if guessed.is_none() {
                script = drafted;
            }
        }
        let checked = checker.check(history.name(), &script)?;
        let minimal = match checked.is_same() {
            true => None,
            false => Some(script.shrink(SHRINK, |smaller| {
                checker.check(history.name(), smaller).is_ok_and(|checked| !checked.is_same())
            })),
        };
        let of = rows::Of {
            job,
            history: history.name(),
            checked: &checked,
            missing: checked.facts.lacks(*history).map(str::to_string).unwrap_or_default(),
            minimal: minimal.as_ref(),
            is_control: checker.is_control(),
            layers: checkpoint.config().layers.len(),
        };
        let mut rows = of.rows();
        rows.iter_mut().for_each(|row| row.verdict = history_verdict(row, &bundle.run.policy));
        let verdict = rows::worst(&rows);
        bundle.tokens.extend(of.tokens(&ask.patch_set()));
        bundle.histories.extend(rows);
        checked.calls.iter().for_each(|(patch, n)| *calls.entry(patch).or_default() += n);
        runs.push(HistoryRun { history: *history, checked, minimal, verdict });
    }
    let run = &mut bundle.run;
    let (claims, patch_sets) = (ask.stock.to_string(), vec![ask.patch_set()]);
    run.candidate = Candidate { name: "optimized".into(), claims, patch_sets };
    run.patches = ask.patches.iter().map(|patch| used(patch, &calls)).collect();
    run.seeds = BTreeMap::from([("pages".to_string(), ask.seed)]);
    run.notes = finish::limits(job, !ask.patches.is_empty(), Some(ask.stock));
    run.notes.extend(notes(&checker, drafts.is_some(), guessed, ask));
    let total = start.elapsed().as_secs_f64();
    run.wall_s = Walls { total, golden: golden_s, candidate: total - golden_s, diff: 0.0, parts: None };
    run.peak_memory_bytes = peak_memory();
    bundle.verdict = judge(&bundle.evidence(), &bundle.run.policy);
    Ok(HistoriesReport {
        sequences: requests.seqs.len(),
        tokens: requests.seqs.iter().map(|s| s.ids.len()).sum(),
        patches: ask.patches.clone(),
        geometry,
        runs,
        bundle,
    })
}

/// A patch as it was observed: probes of its effect are an audit's.
fn used(patch: &str, calls: &BTreeMap<&str, u64>) -> PatchUse {
    let name = patch.split(':').next().unwrap_or(patch).trim();
    let observed_calls = calls.get(name).copied().unwrap_or(0);
    PatchUse { patch: patch.to_string(), requested: true, observed_calls, state: "unknown".into() }
}

/// What the comparisons rest on.
fn notes(checker: &Checker, drafted: bool, lacks: Option<&str>, ask: &Histories) -> Vec<String> {
    let mut out = Vec::new();
    if checker.rounds_state() {
        out.push(
            "compressor rows are rounded where a forward call ends: the cold run is cut where each history's calls end, \
             and what the cuts cost is in the distance from golden"
                .to_string(),
        );
    }
    if ask.histories.contains(&Served::Speculative) {
        out.push(match (drafted, lacks) {
            (false, _) => "drafts are made up by the seed: the model has no MTP block".to_string(),
            (true, Some(lacks)) => format!("drafts are made up by the seed: with the path's own MTP block's, {lacks}"),
            (true, None) => {
                "drafts: the path's own MTP block; from the second on with the model's streams, not the block's own"
                    .to_string()
            }
        });
    }
    if !checker.is_control() {
        out.push(
            "distances of logits and content from golden are reported; judged are most likely ids, against stock's own \
             changes, as in an audit"
                .to_string(),
        );
    }
    out
}
