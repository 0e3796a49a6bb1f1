//! What a run really executed.

use std::sync::atomic::{AtomicU64, Ordering};

use karat_seam::{Op, Phase};

use crate::plan::Resolved;

/// Executions of a run so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// Prefill steps in the schedule.
    pub prefill_steps: usize,
    /// Decode steps in the schedule.
    pub decode_steps: usize,
    /// Rows of the largest prefill step in the schedule.
    pub largest_prefill: usize,
    /// One entry a patch, in registry order.
    pub patches: Vec<PatchCoverage>,
}

/// Executions of one patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchCoverage {
    /// Name of the patch.
    pub name: &'static str,
    /// Ops that ran under the patch's rules in a prefill step (a layer, a step, a lane each count).
    pub prefill: u64,
    /// The same in decode steps.
    pub decode: u64,
    /// Rows of the largest prefill step that exercised it; 0 when none did.
    pub largest_prefill: u64,
}

/// Live counters behind [`Coverage`].
#[derive(Debug)]
pub(crate) struct Counters {
    patches: Vec<(&'static str, AtomicU64, AtomicU64, AtomicU64)>,
}

impl Counters {
    pub(crate) fn new(plan: &Resolved) -> Self {
        let zero = || AtomicU64::new(0);
        Self { patches: plan.patches.iter().map(|p| (p.name, zero(), zero(), zero())).collect() }
    }

    /// One op ran over the steps of a segment.
    pub(crate) fn ran(&self, plan: &Resolved, op: Op, segment: &super::Segment) {
        for patch in plan.patches_on(op, segment.phase) {
            let Some((_, prefill, decode, largest)) = self.patches.iter().find(|(name, ..)| *name == patch.name) else {
                continue;
            };
            // A patch that only cuts prompts is exercised where it did.
            if patch.exact && segment.steps.len() < 2 {
                continue;
            }
            let count = segment.steps.len() as u64;
            if segment.phase == Phase::Prefill {
                prefill.fetch_add(count, Ordering::Relaxed);
                let rows = segment.steps.iter().map(|s| u64::from(s.end - s.start)).max().unwrap_or(0);
                largest.fetch_max(rows, Ordering::Relaxed);
            } else {
                decode.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn patches(&self) -> Vec<PatchCoverage> {
        let read = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let row = |(name, prefill, decode, largest): &(&'static str, AtomicU64, AtomicU64, AtomicU64)| PatchCoverage {
            name,
            prefill: read(prefill),
            decode: read(decode),
            largest_prefill: read(largest),
        };
        self.patches.iter().map(row).collect()
    }
}
