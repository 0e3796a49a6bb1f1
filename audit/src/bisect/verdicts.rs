//! The audit's verdict as the criterion of a patch set: every judged row of the lockstep, for several sets in one pass.

use karat_bundle::{Evidence, FlipRow, Policy, TapRow, Verdict, judge};
use karat_optimized::PatchSets;
use karat_reference::{Golden, Mode};
use karat_seam::{Path, Phase, Together};

use super::check::set_name;
use super::replay::{Measured, Seen};
use super::rig::Rig;
use super::search::Answer;
use crate::plan::specs;
use crate::{Candidate, Facts, Lockstep, Result, Subject};

/// One measurement a set: bad where the audit fails. What no row can judge is skipped.
///
/// Stock runs along, since changed ids are judged against its own; with a cache it runs once for the whole search.
pub(super) fn measure(rig: &Rig<'_>, subject: &Subject, sets: &[Vec<String>]) -> Result<Vec<Measured>> {
    let job = rig.job;
    let golden = job.golden(job.inputs.requests.clone())?;
    let claims = subject.claims();
    let floor = match claims {
        karat_diff::Claims::F32 => {
            Some(Golden::new(job.checkpoint.clone(), job.inputs.requests.clone(), Mode::F64, job.threads)?)
        }
        _ => None,
    };
    let mut all = vec![Vec::new()];
    all.extend(sets.iter().filter(|set| !set.is_empty()).cloned());
    let plans = all.iter().map(|set| rig.plan(set)).collect();
    let together = PatchSets::new(&job.checkpoint, &job.inputs.requests, plans, job.threads)?;
    let candidates = all.iter().zip(together.sets()).enumerate().map(|(i, (set, path))| {
        let rotates = [Phase::Prefill, Phase::Decode].map(|phase| path.numerics(phase).index.hadamard);
        let shared: Option<(&dyn Together, usize)> = Some((&together, i));
        let (patches, history) = (specs(set), subject.history.to_string());
        Candidate { patches, history, rotates, together: shared, ..Candidate::new(name(set), path, claims) }
    });
    let lockstep = Lockstep {
        golden: &golden,
        floor: floor.as_ref().map(|f| f as &dyn Path),
        candidates: candidates.collect(),
        scenarios: job.inputs.scenarios.clone(),
        asks: &job.inputs.asks,
        facts: Facts::of(&job.checkpoint)?,
        taps: &|_| true,
        layers: None,
        cache: job.cache,
        states: job.states(),
    };
    let outcome = job.pool()?.install(|| lockstep.run(job.progress, job.stop))?;
    let mut cost = outcome.forward_equivalents;
    let one = |set: &Vec<String>| {
        let name = name(set);
        let taps: Vec<TapRow> = outcome.taps.iter().filter(|r| r.patch_set == name).cloned().collect();
        let flips: Vec<FlipRow> = outcome.flips.iter().filter(|r| r.patch_set == name).cloned().collect();
        let evidence = Evidence { taps: &taps, flips: &flips, findings: &outcome.findings, ..Evidence::default() };
        let report = judge(&evidence, &Policy::default());
        let answer = match report.verdict {
            Verdict::Fail => Answer::Bad,
            Verdict::Pass => Answer::Good,
            _ => Answer::Skip,
        };
        let note = report.reasons.into_iter().next().unwrap_or_default();
        // The pass was one: its work stands with the first set.
        Measured { seen: Seen::Answer(answer), note, cost: std::mem::take(&mut cost) }
    };
    Ok(sets.iter().map(one).collect())
}

/// A set's name in the tables.
fn name(set: &[String]) -> String {
    if set.is_empty() { "stock".to_string() } else { format!("stock+{}", set_name(set)) }
}
