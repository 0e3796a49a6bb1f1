//! Kernels against their contracts and against golden, op by op, on the kernels' own operands.
//!
//! The contract runs the layer once more on x', and so does golden. Behind every op both go on with what the candidate's op
//! gave, so that each op is given the same operands on all three sides, and the codes that a kernel chose (activations,
//! probabilities that it stored) are what the next op of the contract reads. What no kernel computes must be the contract's,
//! bit by bit.

mod forced;
mod rule;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use karat_bundle::TapRow;
use karat_seam::{Data, Lane, Layer, Op, OpSpec, Path, Phase, Recorder, Site, Streams, Tap};

use crate::compare::Context;
use crate::lockstep::not_state;
use crate::{Result, align};
use forced::Forced;
pub use rule::Sizes;

/// A candidate whose patches run as kernels.
pub struct KernelSide<'a> {
    /// The same plan by its contracts.
    pub contract: &'a dyn Path,
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
    contract: Recorder,
    golden: Option<Recorder>,
}

impl Sides {
    /// Runs the contract on the candidate's streams, and golden where these are known in its own order.
    pub(crate) fn run(
        side: &KernelSide<'_>,
        golden: &dyn Layer,
        l: u16,
        (own, in_golden_order): (&Streams, Option<&Streams>),
        seen: &Recorder,
    ) -> Result<Self> {
        let forced = |layer: &dyn Layer, x: &Streams| -> Result<Recorder> {
            let mut see = Forced::new(seen, l, not_state());
            layer.run(&mut [Lane::new(x, &mut see)])?;
            Ok(see.made)
        };
        let contract = forced(&*side.contract.layer(l)?, own)?;
        Ok(Self { contract, golden: in_golden_order.map(|x| forced(golden, x)).transpose()? })
    }

    /// Rows of one sequence.
    pub(crate) fn rows(
        &self,
        at: &Context<'_>,
        side: &KernelSide<'_>,
        (l, seq): (u16, u32),
        seen: &Recorder,
    ) -> Vec<TapRow> {
        let mut out = Vec::new();
        for spec in OpSpec::graph() {
            for tap in spec.writes {
                let site = Site::layer(l, *tap);
                let (Some(theirs), Some(contract)) = (seen.get(site, seq), self.contract.get(site, seq)) else {
                    continue;
                };
                if theirs.rows != contract.rows || theirs.tensor.shape != contract.tensor.shape {
                    continue;
                }
                let golden = self.golden.as_ref().and_then(|g| g.get(site, seq));
                let width = theirs.tensor.width();
                let golden = golden.and_then(|g| align::take(*tap, g, &theirs.rows, width));
                for phase in [Phase::Prefill, Phase::Decode] {
                    let of_phase: Vec<usize> =
                        (0..theirs.rows.len()).filter(|i| at.phase(*tap, theirs.rows[*i]) == phase).collect();
                    if of_phase.is_empty() {
                        continue;
                    }
                    // The streams that a kernel's coefficients collapse are collapsed here.
                    let by_kernel = (side.runs)(spec.op, phase) && !is_made_here(*tap);
                    let found = Found::of(&contract.tensor.data, &theirs.tensor.data, width, &of_phase);
                    let new = |part: &str, found: &Found| {
                        let worst = found.worst.and_then(|i| theirs.rows.get(i));
                        TapRow {
                            part: part.to_string(),
                            n: (of_phase.len() * width) as u64,
                            rows: of_phase.len() as u64,
                            rel_l2: found.rel_l2(),
                            max_abs: Some(found.max_abs),
                            max_abs_position: worst.map(|row| u64::from(row.pos)),
                            nonfinite: found.nonfinite,
                            ..at.place.row(site, phase)
                        }
                    };
                    if !by_kernel {
                        side.tally.other(found.compared, found.differing);
                        if found.differing == 0 {
                            continue;
                        }
                    }
                    let mut row = new("kernel", &found);
                    if by_kernel && rule::is_stored(*tap, &side.sizes, phase) {
                        side.tally.codes(spec.name, &found);
                    }
                    let tolerance = if by_kernel { side.sizes.tolerance(*tap, phase) } else { 0.0 };
                    row.gate = if tap.is_discrete() { "unexplained_flips" } else { "rel_l2" }.to_string();
                    row.value = if tap.is_discrete() { Some(found.differing as f64) } else { found.rel_l2() };
                    row.predicted = Some(tolerance);
                    row.tolerance = Some(tolerance);
                    row.ratio_to_predicted = row.value.filter(|_| tolerance > 0.0).map(|v| v / tolerance);
                    row.basis = "contract".to_string();
                    out.push(row);
                    if let Some(golden) = golden.as_ref().filter(|g| by_kernel && g.shape == theirs.tensor.shape) {
                        let found = Found::of(&golden.data, &theirs.tensor.data, width, &of_phase);
                        out.push(new("kernel.golden", &found));
                    }
                }
            }
        }
        out
    }
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

/// How far one result is off another.
#[derive(Debug, Default)]
struct Found {
    compared: u64,
    differing: u64,
    error: f64,
    size: f64,
    max_abs: f64,
    worst: Option<usize>,
    nonfinite: u64,
    /// In units of bf16's last place.
    worst_ulps: f64,
}

impl Found {
    /// Over some rows; what both have as the same infinity (a masked score) is equal.
    fn of(right: &Data, theirs: &Data, width: usize, rows: &[usize]) -> Self {
        let mut out = Self::default();
        for &i in rows {
            match (right, theirs) {
                (Data::F32(r), Data::F32(t)) => {
                    let pairs = r[i * width..(i + 1) * width].iter().zip(&t[i * width..(i + 1) * width]);
                    pairs.for_each(|(r, t)| out.add(i, *r, *t));
                }
                (Data::I64(r), Data::I64(t)) => out.discrete(i, &r[i * width..], &t[i * width..], width),
                (Data::U8(r), Data::U8(t)) => out.discrete(i, &r[i * width..], &t[i * width..], width),
                _ => out.nonfinite += width as u64,
            }
        }
        out
    }

    fn add(&mut self, i: usize, right: f32, theirs: f32) {
        self.compared += 1;
        if right.to_bits() == theirs.to_bits() || (right == 0.0 && theirs == 0.0) {
            if right.is_finite() {
                self.size += f64::from(right).powi(2);
            } else if right.is_nan() {
                self.nonfinite += 1;
            }
            return;
        }
        self.differing += 1;
        let d = f64::from(theirs) - f64::from(right);
        if !d.is_finite() {
            self.nonfinite += 1;
            self.worst = Some(i);
            return;
        }
        self.error += d * d;
        self.size += f64::from(right).powi(2);
        if d.abs() > self.max_abs {
            (self.max_abs, self.worst) = (d.abs(), Some(i));
        }
        let unit = f64::exp2(f64::from(right.abs().max(f32::MIN_POSITIVE)).log2().floor() - 7.0);
        self.worst_ulps = self.worst_ulps.max(d.abs() / unit);
    }

    fn discrete<T: PartialEq>(&mut self, i: usize, right: &[T], theirs: &[T], width: usize) {
        let differing = right.iter().zip(theirs).take(width).filter(|(r, t)| r != t).count() as u64;
        self.compared += width as u64;
        self.differing += differing;
        if differing > 0 {
            self.worst.get_or_insert(i);
        }
    }

    fn rel_l2(&self) -> Option<f64> {
        match (self.compared, self.error, self.size) {
            (0, ..) => None,
            (_, 0.0, _) => Some(0.0),
            (_, error, size) => Some((error / size).sqrt()),
        }
    }
}

#[cfg(test)]
mod tests;
