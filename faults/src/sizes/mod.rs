//! How small each fault can be made until an audit with all taps misses it.

mod added;
mod page;
mod search;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use karat_audit::Result;
use karat_bundle::{Evidence, FirstBad, FlipRow, Policy, TapRow, Verdict, judge};
use karat_optimized::{History, Optimized, Plan, Stock};
use karat_seam::{Recorder, Sequence};
use serde_json::{Value, json};

use crate::bench::{CONTROL, SECOND, STOCK};
use crate::catalogue;
use crate::faulty::Faulty;
use crate::kept::{Kept, digest, number};
use crate::size::spread;
use crate::{Bench, Fault, Outcomes, Size};

pub use added::{Added, Change};
pub use page::page;
pub use search::next;

/// Candidates of one pass of golden.
const BATCH: usize = 12;

/// How much of a fault a trial puts in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// 1: all of it; less: so large a share of each difference.
    Share(f32),
    /// So many of the rows (or ids) that all of it changes.
    Rows(usize),
}

/// What an audit with all taps said about one size of one fault.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// The fault.
    pub id: String,
    /// How much of it.
    pub amount: Amount,
    /// How near the first bad place is to where the fault was put.
    pub outcome: Outcomes,
    /// The first bad place, in words: layer, tap, phase, and gate with value and tolerance.
    pub named: Option<String>,
    /// What the fault added at its own place.
    pub added: Option<Added>,
    /// Rows that it changes there: (sequence, position).
    pub rows: Vec<(u32, u32)>,
    /// Whether it is made smaller by rows: it changes decisions or ids, or makes numbers that are none.
    pub by_rows: bool,
}

impl Tried {
    /// Whether anything was over its tolerance.
    pub fn is_seen(&self) -> bool {
        self.outcome != Outcomes::Missed
    }

    fn to_json(&self) -> Value {
        let amount = match self.amount {
            Amount::Share(share) => json!({ "share": share }),
            Amount::Rows(rows) => json!({ "rows": rows }),
        };
        json!({
            "fault": self.id, "amount": amount, "outcome": self.outcome.name(), "named": self.named,
            "added": self.added.as_ref().map(Added::to_json), "rows": self.rows, "by_rows": self.by_rows,
        })
    }

    fn of_json(v: &Value) -> Option<Self> {
        let amount = match (v["amount"]["share"].as_f64(), v["amount"]["rows"].as_u64()) {
            (Some(share), _) => Amount::Share(share as f32),
            (None, rows) => Amount::Rows(rows? as usize),
        };
        let pair = |v: &Value| Some((v[0].as_u64()? as u32, v[1].as_u64()? as u32));
        Some(Self {
            id: v["fault"].as_str()?.to_string(),
            amount,
            outcome: Outcomes::from_name(v["outcome"].as_str()?)?,
            named: v["named"].as_str().map(str::to_string),
            added: Added::of_json(&v["added"]),
            rows: v["rows"].as_array()?.iter().map(pair).collect::<Option<_>>()?,
            by_rows: v["by_rows"].as_bool()?,
        })
    }
}

/// All that was tried so far.
pub fn tried(kept: &Kept) -> Vec<Tried> {
    kept.lines().iter().filter_map(Tried::of_json).collect()
}

/// Every fault that is none of the controls.
pub fn sized() -> Vec<&'static Fault> {
    let is_control = |f: &Fault| catalogue::report(f.id).is_some_and(|r| r.kind == "control");
    crate::faults().into_iter().filter(|f| !is_control(f)).collect()
}

/// Tries sizes until no fault has a next one (then true), or `goes_on` says no. What was tried is kept after every pass of
/// golden. `say` hears how far it is.
///
/// # Errors
/// A path can't run, what was kept is of other numbers, or nothing can be kept.
pub fn search(
    bench: &Bench,
    faults: &[&'static Fault],
    kept: &mut Kept,
    goes_on: &dyn Fn() -> bool,
    say: &dyn Fn(&str),
) -> std::result::Result<bool, Box<dyn std::error::Error>> {
    loop {
        let so_far = tried(kept);
        let of = |fault: &Fault| so_far.iter().filter(|t| t.id == fault.id).cloned().collect::<Vec<_>>();
        let open: Vec<(&'static Fault, Amount, Size)> = faults
            .iter()
            .filter_map(|fault| {
                let before = of(fault);
                let amount = next(&before)?;
                Some((*fault, amount, size(amount, &before)))
            })
            .collect();
        say(&format!("{} sizes tried, {} of {} faults done", so_far.len(), faults.len() - open.len(), faults.len()));
        if open.is_empty() {
            return Ok(true);
        }
        if !goes_on() {
            return Ok(false);
        }
        // Those of one batch of requests share a pass of golden.
        let together = open[0].0.together;
        let batch: Vec<_> = open.into_iter().filter(|t| t.0.together == together).take(BATCH).collect();
        let two = together.then(|| bench.of_two());
        let (made, control) = two.as_ref().unwrap_or(bench).try_sizes(&batch)?;
        kept.add(control, made.iter().map(Tried::to_json))?;
    }
}

/// The rows of a size are spread over those that the whole fault changes.
fn size(amount: Amount, before: &[Tried]) -> Size {
    let whole = before.first().map_or(&[][..], |t| &t.rows);
    match amount {
        Amount::Share(1.0) => Size::Whole,
        Amount::Share(share) => Size::Share(share),
        Amount::Rows(n) => Size::Rows(Arc::new(spread(whole.len(), n).into_iter().map(|i| whole[i]).collect())),
    }
}

impl Bench {
    /// Audits these sizes with all taps in one pass of golden. Gives the digest of the candidate without a fault too.
    ///
    /// # Errors
    /// A path can't run.
    pub fn try_sizes(&self, trials: &[(&'static Fault, Amount, Size)]) -> Result<(Vec<Tried>, u64)> {
        let base = self.path(&self.checkpoint, &[])?;
        let (ids, numeric): (Vec<_>, Vec<_>) = trials.iter().partition(|t| t.0.ids.is_some());
        let shows = || Some(Mutex::new(Recorder::new(|site| !site.tap.is_state())));
        // The right path of each set of patches, which shows what it computes.
        let mut sets: Vec<&[&str]> = numeric.iter().map(|t| t.0.without).filter(|w| !w.is_empty()).collect();
        sets.sort_unstable();
        sets.dedup();
        let fewer = sets.iter().map(|w| self.path(&self.checkpoint, w)).collect::<Result<Vec<_>>>()?;
        let right = |inner| Faulty { inner, checkpoint: self.checkpoint.clone(), faults: Vec::new(), shows: shows() };
        let rights: Vec<Faulty<'_>> = std::iter::once(&base).chain(&fewer).map(right).collect();
        let seeded = numeric.iter().map(|t| self.seeded(&[(t.0, t.2.clone())])).collect::<Result<Vec<_>>>()?;
        let faulty: Vec<Faulty<'_>> = numeric
            .iter()
            .zip(&seeded)
            .map(|(t, s)| {
                let block = t.0.block;
                let recorder = Recorder::new(move |site| site.block == block && !site.tap.is_state());
                Faulty { shows: Some(Mutex::new(recorder)), ..s.faulty(&base) }
            })
            .collect();
        let stock = self.stock()?;
        let names: Vec<String> = (0..numeric.len()).map(|i| format!("trial {i}")).collect();
        let right_names: Vec<String> = (0..rights.len()).map(|i| format!("{CONTROL} {i}")).collect();
        let mut candidates = vec![self.candidate(STOCK, &stock, &stock)];
        candidates.extend(rights.iter().zip(&right_names).map(|(r, name)| self.candidate(name, r, r.inner)));
        candidates.extend(faulty.iter().zip(&names).map(|(f, name)| self.candidate(name, f, f.inner)));
        let run = self.run(candidates)?;
        let rows_of = |name: &str| run.taps.iter().filter(|r| r.patch_set == name).cloned().collect::<Vec<TapRow>>();
        let shown: Vec<Recorder> = rights.iter().map(Faulty::shown).collect();
        let mut out = Vec::new();
        for ((t, f), name) in numeric.iter().zip(&faulty).zip(&names) {
            let which = sets.iter().position(|w| *w == t.0.without).map_or(0, |i| i + 1);
            let taps = rows_of(name);
            let flips: Vec<FlipRow> = run.flips.iter().filter(|r| r.patch_set == *name).cloned().collect();
            let report = judge(&Evidence { taps: &taps, flips: &flips, ..Evidence::default() }, &Policy::default());
            let changes = self.changes(t.0, &shown[which], &f.shown(), f.inner);
            let sequence = &self.requests.seqs[if t.0.together { SECOND as usize } else { 0 }].id;
            let own: Vec<&TapRow> = taps.iter().filter(|r| r.sequence == *sequence).collect();
            out.push(told(t.0, t.1, report.first_bad.as_ref(), &changes, &own));
        }
        for (fault, amount, size) in ids {
            out.push(self.try_ids(fault, *amount, size)?);
        }
        Ok((out, digest(&rows_of(&right_names[0]), &self.requests.seqs[0].id)))
    }

    /// Other ids at some of the positions at which the fault's ids are others.
    fn try_ids(&self, fault: &'static Fault, amount: Amount, size: &Size) -> Result<Tried> {
        let right = self.requests.seqs[0].ids.to_vec();
        let mut wrong = right.clone();
        fault.ids.iter().for_each(|edit| edit(&mut wrong));
        let differs = |i: &usize| right.get(*i) != wrong.get(*i);
        let all: Vec<(u32, u32)> = (0..right.len()).filter(differs).map(|i| (0, i as u32)).collect();
        let (rows, ids) = match size {
            Size::Rows(rows) => {
                let mut ids = right.clone();
                // Past the end of a shorter list any other id will do.
                let at = |i: usize| wrong.get(i).copied().unwrap_or(right[i] ^ 1);
                rows.iter().for_each(|(_, pos)| ids[*pos as usize] = at(*pos as usize));
                (rows.iter().copied().collect(), ids)
            }
            _ => (all, wrong),
        };
        let mut requests = self.requests.clone();
        requests.seqs[0] = Sequence::prompt("made", ids);
        let plan = Plan { stock: Stock::Official, patches: Vec::new(), history: History::Cold };
        let path = Optimized::new(self.checkpoint.clone(), requests, plan, 1)?;
        let run = self.run(vec![self.candidate("ids", &path, &path)])?;
        let report = judge(&Evidence { findings: &run.findings, ..Evidence::default() }, &Policy::default());
        let said = report.reasons.iter().find(|r| r.contains("ids differ")).cloned();
        let outcome = match (&said, report.verdict) {
            (Some(_), _) => Outcomes::Named,
            (None, Verdict::Pass) => Outcomes::Missed,
            (None, _) => Outcomes::Elsewhere,
        };
        let named = said.map(|_| "ids".to_string());
        Ok(Tried { id: fault.id.to_string(), amount, outcome, named, added: None, rows, by_rows: true })
    }
}

fn told(fault: &Fault, amount: Amount, bad: Option<&FirstBad>, changes: &[Change], taps: &[&TapRow]) -> Tried {
    let edited = |c: &&Change| fault.taps.contains(&c.tap);
    let rows: BTreeSet<(u32, u32)> = changes.iter().filter(edited).flat_map(|c| c.rows.iter().copied()).collect();
    let is_discrete = fault.taps.iter().any(|tap| tap.is_discrete());
    let by_rows = fault.files.is_none() && (is_discrete || changes.iter().filter(edited).any(|c| c.is_no_number));
    let named = bad.map(|b| {
        let part = if b.part.is_empty() { String::new() } else { format!(" ({})", b.part) };
        let (value, tolerance) = (number(b.injected), number(b.tolerance));
        format!("{}: {} {}{part}, {} {value} / {tolerance}", b.layer, b.tap, b.phase, b.gate)
    });
    let added = Added::of(fault, changes, taps);
    let outcome = Outcomes::of(fault, bad);
    Tried { id: fault.id.to_string(), amount, outcome, named, added, rows: rows.into_iter().collect(), by_rows }
}

#[cfg(test)]
mod tests;
