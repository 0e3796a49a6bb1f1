//! Kernels against their contracts and against golden, op by op, on the kernels' own operands.
//!
//! The contract runs the layer once more on x', and so does golden. Behind every op both go on with what the candidate's op
//! gave, so that each op is given the same operands on all three sides, and the codes that a kernel chose (activations,
//! probabilities that it stored) are what the next op of the contract reads. What no kernel computes must be the contract's,
//! bit by bit.

mod flips;
mod found;
mod judged;
mod rule;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use karat_bundle::TapRow;
use karat_seam::{Lane, Layer, Op, OpSpec, Phase, RowId, Site, Tap, Together};

use crate::Result;
use crate::compare::Context;
use crate::flow::Flow;
use crate::lockstep::Walk;
use crate::pass::input;
use found::Found;
use judged::{All, Judged};
pub use rule::Sizes;

/// A candidate whose patches run as kernels.
pub struct KernelSide<'a> {
    /// The same plans by their contracts, which share each weight pass, and which of them this one is.
    pub contract: (&'a dyn Together, usize),
    /// Whether a kernel computes an op in a phase.
    pub runs: &'a (dyn Fn(Op, Phase) -> bool + Sync),
    /// Lengths of the sums.
    pub sizes: Sizes,
    /// What was counted.
    pub tally: &'a Tally,
}

/// Counts over all layers, sequences and patch sets.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// By op: values stored as codes, those that are another code than the contract's, the farthest in units of the last place.
    codes: BTreeMap<&'static str, (u64, u64, f64)>,
    /// Values of ops that no kernel computes, and those that differ from the contract's.
    others: (u64, u64),
}

impl Tally {
    /// Sentences for people.
    pub fn notes(&self) -> Vec<String> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out: Vec<String> = Vec::new();
        for (op, (all, flipped, worst)) in &counts.codes {
            out.push(format!(
                "kernel against contract: {op}: {flipped} of {all} stored values are another code, {worst:.0} apart at most"
            ));
        }
        let (all, differ) = counts.others;
        if all > 0 {
            out.push(format!("ops without a kernel: {differ} of {all} values differ from the contract's"));
        }
        out
    }
}

/// Rows of layer `l` for all sequences: part `kernel`, gated, the kernel against its contract; part `kernel.golden`, the kernel
/// against golden. The caller keeps those of `seq`.
pub(crate) struct Sides {
    contract: All,
    golden: All,
}

impl Sides {
    /// Runs the contracts of all candidates of `missing` whose patches run as kernels on these candidates' streams, and golden where
    /// the streams are known in its own order: each weight pass once for all of them. By candidate.
    pub(crate) fn all(
        walk: &Walk<'_, '_>,
        l: u16,
        golden: &dyn Layer,
        ratio: Option<u32>,
        missing: &[usize],
    ) -> Result<BTreeMap<usize, Self>> {
        let candidates = &walk.setup.candidates;
        let see = |(i, _): &(usize, &KernelSide<'_>), all| judged(walk, (l, ratio), *i, all);
        let of: Vec<(usize, &KernelSide<'_>)> =
            missing.iter().filter_map(|i| Some((*i, candidates[*i].kernels.as_ref()?))).collect();
        let Some((_, first)) = of.first() else { return Ok(BTreeMap::new()) };
        let mut inputs = Vec::new();
        for (i, _) in &of {
            let own = walk.runners[*i].x.as_ref().map(Flow::values).transpose()?;
            inputs.push(input(&candidates[*i], own, walk.x.values()?));
        }
        let mut contracts: Vec<Judged<'_>> = of.iter().filter_map(|one| see(one, true)).collect();
        let mut lanes: Vec<Lane<'_>> = inputs.iter().zip(&mut contracts).map(|(x, see)| Lane::new(x, see)).collect();
        let members: Vec<usize> = of.iter().map(|(_, side)| side.contract.1).collect();
        first.contract.0.layer(l, &members, &mut lanes)?;
        drop(lanes);
        let known: Vec<&(usize, &KernelSide<'_>)> =
            of.iter().filter(|(i, _)| walk.runners[*i].x_golden_rows.is_some()).collect();
        let mut goldens: Vec<Judged<'_>> = known.iter().filter_map(|one| see(one, false)).collect();
        let mut lanes = Vec::new();
        for ((i, _), see) in known.iter().zip(&mut goldens) {
            lanes.extend(walk.runners[*i].x_golden_rows.as_ref().map(|x| Lane::new(x, see)));
        }
        if !lanes.is_empty() {
            golden.run(&mut lanes)?;
        }
        drop(lanes);
        let mut goldens: BTreeMap<usize, All> =
            known.iter().map(|(i, _)| *i).zip(goldens.into_iter().map(|see| see.found)).collect();
        let pair = |((i, _), see): (&(usize, &KernelSide<'_>), Judged<'_>)| {
            (*i, Self { contract: see.found, golden: goldens.remove(i).unwrap_or_default() })
        };
        Ok(of.iter().zip(contracts).map(pair).collect())
    }

    /// Rows of one sequence.
    pub(crate) fn rows(&self, at: &Context<'_>, side: &KernelSide<'_>, (l, seq): (u16, u32)) -> Vec<TapRow> {
        let mut out = Vec::new();
        for spec in OpSpec::graph() {
            for tap in spec.writes {
                for phase in [Phase::Prefill, Phase::Decode] {
                    let key = (*tap, seq, phase as u8);
                    let Some(compared) = self.contract.get(&key) else { continue };
                    // The streams that a kernel's coefficients collapse are collapsed here.
                    let by_kernel = (side.runs)(spec.op, phase) && !is_made_here(*tap);
                    let found = &compared.found;
                    let new = |part: &str, found: &Found, rows: u64| TapRow {
                        part: part.to_string(),
                        n: found.compared,
                        rows,
                        rel_l2: found.rel_l2(),
                        max_abs: Some(found.max_abs),
                        max_abs_position: found.worst.map(u64::from),
                        nonfinite: found.nonfinite,
                        ..at.place.row(Site::layer(l, *tap), phase)
                    };
                    if !by_kernel {
                        side.tally.other(found.compared, found.differing);
                        if found.differing == 0 {
                            continue;
                        }
                    }
                    let mut row = new("kernel", found, compared.rows);
                    if by_kernel && rule::is_stored(*tap, &side.sizes, phase) {
                        side.tally.codes(spec.name, found);
                    }
                    let tolerance = if by_kernel { side.sizes.tolerance(*tap, phase, &compared.budget) } else { 0.0 };
                    row.gate = if tap.is_discrete() { "unexplained_flips" } else { "rel_l2" }.to_string();
                    row.value = if tap.is_discrete() { Some(found.differing as f64) } else { found.rel_l2() };
                    row.predicted = Some(tolerance);
                    row.tolerance = Some(tolerance);
                    row.ratio_to_predicted = row.value.filter(|_| tolerance > 0.0).map(|v| v / tolerance);
                    row.basis = "contract".to_string();
                    out.push(row);
                    if let Some(golden) = self.golden.get(&key).filter(|_| by_kernel) {
                        out.push(new("kernel.golden", &golden.found, golden.rows));
                    }
                }
            }
        }
        out
    }
}

/// What looks at the contract's lane of candidate `i`, or at golden's; `None` where none of its patches is a kernel.
fn judged<'w>(walk: &'w Walk<'_, '_>, (l, ratio): (u16, Option<u32>), i: usize, all: bool) -> Option<Judged<'w>> {
    let candidate = &walk.setup.candidates[i];
    let phase_of = move |tap: Tap, row: RowId| {
        let pos = match ratio {
            Some(ratio) if tap.is_per_entry() => row.pos * ratio + ratio - 1,
            _ => row.pos,
        };
        candidate.path.phase_of(RowId { pos, ..row })
    };
    Some(Judged::new(&walk.runners[i].seen, l, candidate.kernels.as_ref()?, Box::new(phase_of), all))
}

/// Taps of a kernel's op that the path computes itself from what the kernel gave.
fn is_made_here(tap: Tap) -> bool {
    matches!(tap, Tap::HcAttnCollapsed | Tap::HcFfnCollapsed)
}

impl Tally {
    fn other(&self, compared: u64, differing: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.others.0 += compared;
        counts.others.1 += differing;
    }

    fn codes(&self, op: &'static str, found: &Found) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = counts.codes.entry(op).or_default();
        of.0 += found.compared;
        of.1 += found.differing;
        of.2 = of.2.max(found.worst_ulps);
    }
}

#[cfg(test)]
mod tests;
