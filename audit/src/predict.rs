//! What a tap may differ by in one phase of one patch set.

use std::collections::BTreeSet;

use karat_diff::tolerance::{Measure, ROUNDINGS};
use karat_diff::{Claims, Tolerance};
use karat_seam::{Op, OpSpec, Phase, Tap};

use crate::facts::LayerFacts;

/// What the audit must know about a speed patch.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchSpec {
    /// Name.
    pub name: String,
    /// Ops whose results it changes by itself.
    pub ops: Vec<Op>,
    /// Phases in which it acts.
    pub phases: Vec<Phase>,
    /// Largest error that is claimed for it, as a relative one.
    pub claimed_error: f64,
    /// low, medium or high.
    pub risk: String,
    /// It cuts prompts and changes no bit.
    pub exact: bool,
}

impl PatchSpec {
    /// Taps that its error can reach inside one layer: those that its ops write and all that is computed from them.
    /// Decisions stop it: both sides are compared with the same decisions.
    pub fn reach(&self) -> BTreeSet<Tap> {
        Tap::ALL.iter().copied().filter(|tap| self.reaches(*tap)).collect()
    }

    /// True when its error can reach the tap.
    fn reaches(&self, tap: Tap) -> bool {
        reaches(&self.ops, tap)
    }

    /// True when it can change a number of such a layer: one of its ops is there, or a tap that its error reaches.
    pub(crate) fn bears_on(&self, layer: &LayerFacts) -> bool {
        let has = |op: Op| layer.has_op(op);
        let reaches = |tap: &Tap| OpSpec::writer_of(*tap).is_some_and(|spec| has(spec.op));
        self.ops.is_empty() || self.ops.iter().any(|op| has(*op)) || self.reach().iter().any(reaches)
    }

    /// Taps that its ops write.
    pub fn own_taps(&self) -> BTreeSet<Tap> {
        self.ops.iter().flat_map(|op| op.spec().writes.iter().copied()).collect()
    }
}

/// True when an error of these ops can reach the tap. Asked once a flip, so without a set.
pub(crate) fn reaches(ops: &[Op], tap: Tap) -> bool {
    let bit = |tap: &Tap| 1u128 << (*tap as u32);
    let mut reached = 0;
    for spec in OpSpec::graph() {
        // `out` as an operand is the stream that enters the block, before any op of it.
        let reads = spec.reads.iter().any(|t| *t != Tap::Out && reached & bit(t) != 0);
        if reads || ops.contains(&spec.op) {
            reached |= spec.writes.iter().filter(|t| !t.is_discrete()).map(bit).fold(0, |a, b| a | b);
        }
    }
    reached & bit(&tap) != 0
}

/// True when a patch that acts in the phase can change the tap: the stock plan's roundings don't tell its error.
pub(crate) fn is_reached(tap: Tap, phase: Phase, patches: &[PatchSpec]) -> bool {
    patches.iter().any(|p| p.phases.contains(&phase) && p.reaches(tap))
}

/// Values of a row of so many that are free to err: routing weights sum to a constant.
pub(crate) fn free_values(tap: Tap, width: u64) -> usize {
    (width as usize).saturating_sub(usize::from(tap == Tap::FfnWt))
}

/// Errors that are claimed for the patches that act in the phase and reach the tap.
pub(crate) fn claimed(tap: Tap, phase: Phase, patches: &[PatchSpec]) -> impl Iterator<Item = f64> {
    patches.iter().filter(move |p| p.phases.contains(&phase) && p.reaches(tap)).map(|p| p.claimed_error)
}

/// The tolerance of a tap: that of the claimed formats, widened where a patch with a larger claimed error reaches it.
/// `floor` maps a measure to golden's own noise in it.
pub(crate) fn tolerance(
    claims: Claims,
    tap: Tap,
    phase: Phase,
    patches: &[PatchSpec],
    floor: impl Fn(Measure) -> Option<f64>,
) -> Tolerance {
    let stock = Tolerance::provisional(claims, tap, floor(Measure::MaxOverMax));
    let acts = |p: &&PatchSpec| p.phases.contains(&phase) && p.reaches(tap);
    let claimed = patches.iter().filter(acts).map(|p| p.claimed_error).fold(0.0, f64::max);
    if claimed <= stock.predicted {
        return stock;
    }
    Tolerance { measure: Measure::RelL2, value: ROUNDINGS * claimed, predicted: claimed, ..stock }
}
