//! Patch sets whose patches run as kernels.

use karat_bundle::{Finding, Verdict};
use karat_model::{Checkpoint, Error as ModelError};
use karat_optimized::{Accumulation, Kernel, Optimized, PatchSets};
use karat_seam::{Op, OpSpec, Phase, Together};

use crate::Result;
use crate::by_kernel::{KernelSide, Sizes, Tally};
use crate::job::Job;

/// A patch set with the same by its contracts.
pub(super) struct Side<'a> {
    contract: (&'a PatchSets, usize),
    runs: Box<dyn Fn(Op, Phase) -> bool + Sync + 'a>,
}

/// One a patch set; none where nothing of it runs as a kernel.
pub(super) fn sides<'a>(sets: &'a [Optimized], contracts: Option<&'a PatchSets>) -> Vec<Option<Side<'a>>> {
    let side = |(i, path): (usize, &'a Optimized)| {
        let any = OpSpec::graph()
            .iter()
            .any(|spec| [Phase::Prefill, Phase::Decode].iter().any(|phase| path.runs_kernel(spec.op, *phase)));
        let contract = (contracts?, i);
        any.then(|| Side { contract, runs: Box::new(move |op, phase| path.runs_kernel(op, phase)) })
    };
    sets.iter().enumerate().map(side).collect()
}

impl Side<'_> {
    /// `runs`, `accumulation`: see [`Sizes::new`].
    pub(super) fn of<'b>(
        &'b self,
        path: &Optimized,
        checkpoint: &Checkpoint,
        tally: &'b Tally,
        runs: usize,
        accumulation: &Accumulation,
    ) -> KernelSide<'b> {
        let rules = [Phase::Prefill, Phase::Decode].map(|phase| path.numerics(phase));
        let contract: (&dyn Together, usize) = (self.contract.0, self.contract.1);
        let sizes = Sizes::new(checkpoint.config(), rules, runs, accumulation);
        KernelSide { contract, runs: &*self.runs, sizes, tally }
    }
}

/// Refuses a run in which no patch would run as a kernel: it would look like one that judged some.
pub(super) fn check(job: &Job<'_>, sets: &PatchSets) -> Result<()> {
    if job.kernels.is_none() || sets.sets().iter().flat_map(Optimized::standings).any(|s| s.kernel.is_ok()) {
        return Ok(());
    }
    let error = ModelError::usage("no patch of this run has a kernel on this device").at("--candidate-backend cuda");
    let why: Vec<String> = reasons(sets);
    let found = if why.is_empty() { "no patches".to_string() } else { why.join("; ") };
    Err(error.expected("at least one patch that runs as a kernel").found(found).into())
}

fn reasons(sets: &PatchSets) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for standing in sets.sets().iter().flat_map(Optimized::standings) {
        if let Err(why) = &standing.kernel {
            let line = format!("{}: {why}", standing.patch);
            if !out.contains(&line) {
                out.push(line);
            }
        }
    }
    out
}

/// What keeps rows of part `kernel` from proving anything, if something does.
pub(super) fn finding(accumulation: &Accumulation) -> Option<Finding> {
    let why = &accumulation.unproven;
    (!why.is_empty()).then(|| Finding::new(Verdict::Unproven, format!("rows of part kernel prove nothing: {why}")))
}

/// Which patches ran as kernels, which as contracts and why, and what was counted.
pub(super) fn notes(sets: &PatchSets, tally: &Tally) -> Vec<String> {
    let mut by_kernel: Vec<String> = Vec::new();
    for standing in sets.sets().iter().flat_map(Optimized::standings) {
        if let Ok(kernel) = &standing.kernel {
            let line = format!("{} ({})", standing.patch, named(*kernel));
            if !by_kernel.contains(&line) {
                by_kernel.push(line);
            }
        }
    }
    let mut out = Vec::new();
    if !by_kernel.is_empty() {
        out.push(format!("patches that ran as kernels: {}", by_kernel.join(", ")));
    }
    out.extend(reasons(sets).into_iter().map(|line| format!("ran as its contract, not as a kernel: {line}")));
    out.extend(tally.notes());
    out
}

fn named(kernel: Kernel) -> String {
    match kernel {
        Kernel::Mix { terms } => format!("mHC coefficients, fn in {terms} bf16 terms"),
        Kernel::Attend(split) => format!("split-K attention, tiles of {} keys", split.tile),
        Kernel::Index { bf16_product: true } => "index scores with products in bf16, exact selection".to_string(),
        Kernel::Index { .. } => "index scores, exact selection".to_string(),
        Kernel::Experts(grouped) => {
            let format = if grouped.nvfp4 { "NVFP4" } else { "MXFP4" };
            let clamp = if grouped.fused_clamp { ", clamp of the sums" } else { "" };
            format!("grouped experts, {format}{clamp}")
        }
        Kernel::Project { .. } => "compressor products".to_string(),
    }
}
