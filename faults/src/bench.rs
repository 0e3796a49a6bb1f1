//! Runs the audit on candidates with faults in them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Candidate, Facts, Lockstep, Outcome, Quiet, Result, Rules, expected_verdict, specs};
use karat_bundle::{Evidence, FirstBad, FlipRow, Policy, Report, TapRow, Verdict, judge};
use karat_diff::Claims;
use karat_model::{Checkpoint, Geometry, new_model};
use karat_optimized::{History, Optimized, Plan, Stock, patches};
use karat_reference::{Golden, Mode};
use karat_seam::{Block, Op, OpSpec, Path, Phase, Requests, Sequence, Span, SpanKind, Tap, Turn};

use crate::catalogue::{self, Expected};
use crate::faulty::Faulty;
use crate::outputs::Outputs;
use crate::{Fault, Levels, Load, Size, load};

/// Name of the candidate without a fault.
pub const CONTROL: &str = "control";
/// The same in a batch of two requests.
pub const CONTROL_OF_TWO: &str = "control of two";
/// The first candidate of every audit, which the head's flips are counted against.
pub(crate) const STOCK: &str = "stock";
const SEED: u64 = 3;
/// Where the second turn's prompt begins: not at the end of a window of any ratio.
pub(crate) const SEAM: u32 = 203;
/// Where the first answer begins.
pub(crate) const ANSWER: u32 = 161;
/// Where the second turn's answer begins, which is decoded row by row.
pub(crate) const LAST_ANSWER: u32 = 262;
/// The second sequence of a batch of two, and where its answer begins: as long as the first's last one.
pub(crate) const SECOND: u32 = 1;
pub(crate) const SECOND_ANSWER: u32 = 80;

/// The right model and requests in the mini geometry, and what a candidate is before a fault is put into it: stock with
/// the accepted patches.
pub struct Bench {
    pub(crate) files: BTreeMap<String, Arc<[u8]>>,
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) requests: Requests,
    plan: Plan,
    threads: usize,
}

/// What one audit said about one fault.
#[derive(Debug, Clone)]
pub struct Found {
    /// Id of the fault, or [`CONTROL`].
    pub id: &'static str,
    /// What the run would end with.
    pub report: Report,
    /// The first bad row, with all its metrics.
    pub row: Option<TapRow>,
    /// Rows of `taps.csv`.
    pub taps: Vec<TapRow>,
    /// How near the place is to where the fault was put.
    pub outcome: Outcomes,
    /// Whether phase and position of the first bad row are among those that the fault changes; `None` without a position.
    pub is_in_rows: Option<bool>,
    /// Of the rows that the fault changes at the taps where it must show: that nearest to its tolerance (or furthest over
    /// it), with the control's value there. `None` for ids and the control.
    pub at_place: Option<(TapRow, Option<f64>)>,
    /// The first bad place with nothing shown but what leaves each layer; `None` for ids.
    pub outputs: Option<FirstBad>,
    /// Whether it is seen with less evidence than all taps.
    pub levels: Levels,
    /// What the load audit says of its files, where it changes any.
    pub load: Option<Load>,
}

/// How near an audit came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcomes {
    /// Layer and tap, or the op that encloses it, are named.
    Named,
    /// The layer is, the tap is another one.
    Layer,
    /// Something is over its tolerance elsewhere.
    Elsewhere,
    /// Nothing is.
    Missed,
    /// Nothing is, as it should be: a control.
    Silent,
    /// Something is over its tolerance though nothing is wrong: a control.
    FalseAlarm,
}

impl Outcomes {
    /// How near a first bad place is to where a fault that is no control was put.
    pub(crate) fn of(fault: &Fault, bad: Option<&FirstBad>) -> Self {
        match bad {
            None => Self::Missed,
            Some(bad) if bad.layer != fault.layer() => Self::Elsewhere,
            Some(bad) if is_expected(fault, &bad.tap) => Self::Named,
            Some(_) => Self::Layer,
        }
    }

    /// What [`Self::name`] calls so.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Named, Self::Layer, Self::Elsewhere, Self::Missed, Self::Silent, Self::FalseAlarm];
        all.into_iter().find(|o| o.name() == name)
    }

    /// The word in the matrix.
    pub fn name(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::Layer => "layer only",
            Self::Elsewhere => "elsewhere",
            Self::Missed => "missed",
            Self::Silent => "silent",
            Self::FalseAlarm => "FALSE ALARM",
        }
    }
}

/// Two turns of 300 ids in all, the model's answers decoded; no turn ends at the end of a compressor's window.
fn requests() -> Requests {
    let span = |kind, start, end| Span { kind, start, end };
    let ids: Vec<u32> = (0..300u32).map(|i| (i * 37 + i * i * 3 + 11) % 500).collect();
    let mut sequence = Sequence::prompt("made", ids);
    let turn = |a, b, c, interrupted| Turn {
        spans: vec![span(SpanKind::Prompt, a, b), span(SpanKind::Generated, b, c)],
        interrupted,
    };
    sequence.turns = vec![turn(0, ANSWER, SEAM, true), turn(SEAM, LAST_ANSWER, 300, false)];
    Requests { seqs: vec![sequence] }
}

/// One turn of another conversation.
fn second() -> Sequence {
    let end = SECOND_ANSWER + 300 - LAST_ANSWER;
    let ids: Vec<u32> = (0..end).map(|i| (i * 53 + i * i * 7 + 29) % 500).collect();
    let mut sequence = Sequence::prompt("second", ids);
    let span = |kind, start, end| Span { kind, start, end };
    let spans = vec![span(SpanKind::Prompt, 0, SECOND_ANSWER), span(SpanKind::Generated, SECOND_ANSWER, end)];
    sequence.turns = vec![Turn { spans, interrupted: false }];
    sequence
}

/// The patches that the committed table of verdicts expects to pass on the official profile, in registry order, as far
/// as they don't conflict with an earlier one.
pub fn accepted_patches() -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for patch in patches() {
        let with: Vec<String> = out.iter().cloned().chain([patch.name.to_string()]).collect();
        let fits = Plan { stock: Stock::Official, patches: with, history: History::Cold }.check().is_ok();
        if fits && expected_verdict(patch.name, Stock::Official.name()) == Some(Verdict::Pass) {
            out.push(patch.name.to_string());
        }
    }
    out
}

impl Bench {
    /// The made model of the mini geometry, and stock with the accepted patches.
    ///
    /// # Errors
    /// None that a made model can give.
    pub fn new(threads: usize) -> Result<Self> {
        Self::with_patches(threads, accepted_patches())
    }

    /// As [`Bench::new`], with other patches.
    ///
    /// # Errors
    /// As those of a path: unknown or conflicting patches.
    pub fn with_patches(threads: usize, patches: Vec<String>) -> Result<Self> {
        let plan = Plan { stock: Stock::Official, patches, history: History::Cold };
        Self::on(new_model(Geometry::Mini, SEED), requests(), plan, threads)
    }

    /// Another model, other conversations and another plan without a fault. Not every fault of the list can be put into every model: [`Placed`] are
    /// those that stand in the golden one.
    ///
    /// # Errors
    /// The files are no model.
    ///
    /// [`Placed`]: crate::Placed
    pub fn on(files: BTreeMap<String, Arc<[u8]>>, requests: Requests, plan: Plan, threads: usize) -> Result<Self> {
        let checkpoint = Arc::new(Checkpoint::from_memory("mini", files.clone())?);
        Ok(Self { files, checkpoint, requests, plan, threads })
    }

    /// What `with` makes of the path with a fault of ops or files in it.
    ///
    /// # Errors
    /// A path can't run; those of `with`.
    pub fn with_fault<T>(&self, fault: &'static Fault, with: impl FnOnce(&dyn Path) -> Result<T>) -> Result<T> {
        let (base, seeded) = (self.path(&self.checkpoint, &[])?, self.seeded(&[(fault, Size::Whole)])?);
        with(&seeded.faulty(&base))
    }

    /// The same with a second request in the batch.
    pub(crate) fn of_two(&self) -> Self {
        let mut requests = requests();
        requests.seqs.push(second());
        let (files, checkpoint) = (self.files.clone(), self.checkpoint.clone());
        Self { files, checkpoint, requests, plan: self.plan.clone(), threads: self.threads }
    }

    pub(crate) fn path(&self, checkpoint: &Arc<Checkpoint>, without: &[&str]) -> Result<Optimized> {
        self.of_plan(checkpoint, self.plan.patches.iter().filter(|p| !without.contains(&p.as_str())).cloned().collect())
    }

    /// The profile without patches.
    pub(crate) fn stock(&self) -> Result<Optimized> {
        self.of_plan(&self.checkpoint, Vec::new())
    }

    fn of_plan(&self, checkpoint: &Arc<Checkpoint>, patches: Vec<String>) -> Result<Optimized> {
        let plan = Plan { patches, ..self.plan.clone() };
        Ok(Optimized::new(checkpoint.clone(), self.requests.clone(), plan, self.threads)?)
    }

    /// Audits the candidate without a fault, and with each of these, in one pass of golden. The control comes first.
    ///
    /// # Errors
    /// A path can't run.
    pub fn audit(&self, faults: &[&'static Fault]) -> Result<Vec<Found>> {
        let (ids, numeric): (Vec<&'static Fault>, Vec<&'static Fault>) = faults.iter().partition(|f| f.ids.is_some());
        let (together, alone): (Vec<&'static Fault>, Vec<&'static Fault>) = numeric.iter().partition(|f| f.together);
        let mut found = self.audit_numeric(CONTROL, &alone)?;
        if !together.is_empty() {
            found.extend(self.of_two().audit_numeric(CONTROL_OF_TWO, &together)?);
        }
        for fault in ids {
            found.push(self.audit_ids(fault)?);
        }
        Ok(found)
    }

    /// Those of one batch; the candidate without a fault comes first, under this name.
    fn audit_numeric(&self, control: &'static str, numeric: &[&'static Fault]) -> Result<Vec<Found>> {
        let base = self.path(&self.checkpoint, &[])?;
        let seeded = numeric.iter().map(|f| self.seeded(&[(*f, Size::Whole)])).collect::<Result<Vec<_>>>()?;
        let faulty: Vec<Faulty<'_>> = seeded.iter().map(|s| s.faulty(&base)).collect();
        let stock = self.stock()?;
        let mut candidates = vec![self.candidate(STOCK, &stock, &stock), self.candidate(control, &base, &base)];
        candidates.extend(numeric.iter().zip(&faulty).map(|(fault, f)| self.candidate(fault.id, f, f.inner)));
        let outcome = self.run(candidates)?;
        // Once more, with nothing shown but what leaves each layer.
        let paths = numeric.iter().zip(&faulty).map(|(fault, f)| (fault.id, f as &dyn Path, f.inner));
        let shown: Vec<(&str, Outputs<'_>, &Optimized)> = std::iter::once((control, &base as &dyn Path, &base))
            .chain(paths)
            .map(|(id, path, numbers)| (id, Outputs(path), numbers))
            .collect();
        let mut candidates = vec![self.candidate(STOCK, &stock, &stock)];
        candidates.extend(shown.iter().map(|(id, path, numbers)| self.candidate(id, path, numbers)));
        let outputs = self.run(candidates)?;
        let mut found = vec![self.found(control, (control, None), &outcome, &outputs)];
        for fault in numeric {
            found.push(Found {
                load: load::of(fault, &self.files)?,
                ..self.found(control, (fault.id, Some(fault)), &outcome, &outputs)
            });
        }
        Ok(found)
    }

    pub(crate) fn run(&self, candidates: Vec<Candidate<'_>>) -> Result<Outcome> {
        let golden = Golden::new(self.checkpoint.clone(), self.requests.clone(), Mode::F32, self.threads)?;
        let lockstep = Lockstep {
            golden: &golden,
            floor: None,
            candidates,
            scenarios: self.requests.seqs.iter().map(|_| "made".into()).collect(),
            asks: &[],
            facts: Facts::of(&self.checkpoint)?,
            taps: &|_| true,
            layers: None,
            cache: None,
            states: None,
        };
        lockstep.run(&Quiet, &AtomicBool::new(false))
    }

    fn audit_ids(&self, fault: &'static Fault) -> Result<Found> {
        let mut requests = self.requests.clone();
        let mut ids = requests.seqs[0].ids.to_vec();
        fault.ids.iter().for_each(|edit| edit(&mut ids));
        let position = self.requests.seqs[0].ids.iter().zip(&ids).position(|(a, b)| a != b).unwrap_or(ids.len());
        requests.seqs[0] = Sequence::prompt("made", ids);
        let path = Optimized::new(self.checkpoint.clone(), requests, self.plan.clone(), self.threads)?;
        let outcome = self.run(vec![self.candidate(fault.id, &path, &path)])?;
        let report = judge(&Evidence { findings: &outcome.findings, ..Evidence::default() }, &Policy::default());
        let said =
            report.reasons.iter().any(|r| r.contains(&format!("ids differ: sequence made, position {position}:")));
        let outcome = match (said, report.verdict) {
            (true, _) => Outcomes::Named,
            (false, Verdict::Pass) => Outcomes::Missed,
            (false, _) => Outcomes::Elsewhere,
        };
        // Ids are in every record of a conversation, its text included.
        let levels = Levels { layers: said, logits: said, text: said };
        let is_in_rows = Some(said);
        Ok(Found {
            id: fault.id,
            report,
            row: None,
            taps: Vec::new(),
            outcome,
            is_in_rows,
            at_place: None,
            outputs: None,
            levels,
            load: None,
        })
    }

    fn found(
        &self,
        control: &str,
        (id, fault): (&'static str, Option<&'static Fault>),
        all: &Outcome,
        outputs: &Outcome,
    ) -> Found {
        let taps: Vec<TapRow> = all.taps.iter().filter(|r| r.patch_set == id).cloned().collect();
        let flips: Vec<FlipRow> = all.flips.iter().filter(|r| r.patch_set == id).cloned().collect();
        let report = judge(&Evidence { taps: &taps, flips: &flips, ..Evidence::default() }, &Policy::default());
        let bad = report.first_bad.as_ref();
        let same = |r: &TapRow, bad: &FirstBad| {
            (&r.sequence, &r.layer, &r.tap, &r.phase, &r.part, &r.gate)
                == (&bad.sequence, &bad.layer, &bad.tap, &bad.phase, &bad.part, &bad.gate)
        };
        let row = bad.and_then(|bad| taps.iter().find(|r| same(r, bad)).cloned());
        let is_control = fault.is_none_or(|f| catalogue::report(f.id).is_some_and(|r| r.kind == "control"));
        let outcome = match (bad, fault) {
            (None, _) if is_control => Outcomes::Silent,
            (Some(_), _) if is_control => Outcomes::FalseAlarm,
            (_, Some(fault)) => Outcomes::of(fault, bad),
            (_, None) => Outcomes::Missed,
        };
        let is_in_rows = bad.zip(fault).and_then(|(bad, fault)| self.is_in_rows(fault, bad));
        let at_place = fault.and_then(|fault| at_place(fault, control, &taps, all));
        let shown: Vec<TapRow> = outputs.taps.iter().filter(|r| r.patch_set == id).cloned().collect();
        let outputs_bad = judge(&Evidence { taps: &shown, ..Evidence::default() }, &Policy::default()).first_bad;
        let levels = Levels::of((id, control), &taps, all, outputs);
        Found { id, report, row, taps, outcome, is_in_rows, at_place, outputs: outputs_bad, levels, load: None }
    }

    /// As an audit has it: tolerances follow from the plan's own roundings on the right model.
    pub(crate) fn candidate<'a>(&'a self, name: &str, path: &'a dyn Path, numbers: &'a Optimized) -> Candidate<'a> {
        let rotates = [Phase::Prefill, Phase::Decode].map(|p| numbers.numerics(p).index.hadamard);
        let rules = Some(Rules::of(numbers, &self.checkpoint));
        Candidate {
            rotates,
            rules,
            patches: specs(&numbers.plan().patches),
            ..Candidate::new(name, path, Claims::Official)
        }
    }

    fn is_in_rows(&self, fault: &Fault, bad: &FirstBad) -> Option<bool> {
        let phase = [Phase::Prefill, Phase::Decode].into_iter().find(|p| p.name() == bad.phase)?;
        let position = bad.position?;
        let is_there = !fault.together || self.requests.seqs.get(SECOND as usize).is_some_and(|s| s.id == bad.sequence);
        let per_entry = Tap::from_name(&bad.tap).is_some_and(Tap::is_per_entry);
        let ratio = match (fault.block, per_entry) {
            (Block::Layer(l), true) => self.checkpoint.config().layers[usize::from(l)].ratio().unwrap_or(1) as u32,
            _ => 1,
        };
        Some(is_there && (fault.rows)((position as u32 + 1) * ratio - 1, phase))
    }
}

/// See [`Found::at_place`].
fn at_place(fault: &Fault, without: &str, taps: &[TapRow], all: &Outcome) -> Option<(TapRow, Option<f64>)> {
    let report = catalogue::report(fault.id)?;
    let Some(Expected::Taps(expected)) = catalogue::expected(&report) else { return None };
    let is_here = |r: &&TapRow| r.layer == fault.layer() && expected.iter().any(|t| t.name() == r.tap);
    let ratio = |r: &TapRow| r.value.zip(r.tolerance).map(|(v, t)| if v.is_nan() { f64::INFINITY } else { v / t });
    let control = |row: &TapRow| {
        let key = |r: &TapRow| [&r.sequence, &r.layer, &r.tap, &r.phase, &r.part, &r.gate].map(Clone::clone);
        all.taps.iter().find(|r| r.patch_set == without && key(r) == key(row)).and_then(|r| r.value)
    };
    let changed = taps.iter().filter(is_here).map(|r| (r, control(r))).filter(|(r, control)| r.value != *control);
    let judged = changed.filter(|(r, _)| ratio(r).is_some_and(|x| !x.is_nan()));
    let (row, control) = judged.max_by(|a, b| ratio(a.0).unwrap_or(0.0).total_cmp(&ratio(b.0).unwrap_or(0.0)))?;
    Some((row.clone(), control))
}

/// True for a tap that the catalogue's table names, and for those that the same op writes.
pub(crate) fn is_expected(fault: &Fault, tap: &str) -> bool {
    let report = catalogue::report(fault.id);
    let Some(Expected::Taps(expected)) = report.as_ref().and_then(catalogue::expected) else { return false };
    let op = |tap: Tap| OpSpec::writer_of(tap).map(|spec| spec.op);
    let found: Option<Op> = Tap::from_name(tap).and_then(op);
    expected.iter().any(|t| t.name() == tap || (found.is_some() && op(*t) == found))
}

#[cfg(test)]
mod tests;
