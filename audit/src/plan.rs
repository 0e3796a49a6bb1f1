//! Audit of the optimized path: stock, stock with each patch, stock with all of them.

use std::collections::BTreeMap;
use std::time::Instant;

use karat_bundle::{Bundle, Candidate as RunCandidate, WallParts};
use karat_diff::Claims;
use karat_optimized::{History, Optimized, Patch, PatchSets, Plan, Stock, patches};
use karat_reference::{Golden, Mode};
use karat_seam::{Path as _, Phase, Together};

use crate::by_kernel::Tally;
use crate::effects::Effects;
use crate::job::Job;
use crate::patch_rows::{Calls, row};
use crate::{Candidate, Facts, Lockstep, PatchSpec, Result, Rules, finish, recall, repro};

mod kernels;

/// Which low-precision path to audit.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// Stock profile.
    pub stock: Stock,
    /// Speed patches, `NAME` or `NAME:option=value`.
    pub patches: Vec<String>,
    /// How the requests are served.
    pub history: History,
}

impl Subject {
    /// Patch sets in table order: name, patches.
    pub(crate) fn sets(&self) -> Vec<(String, Vec<String>)> {
        let mut sets = vec![("stock".to_string(), Vec::new())];
        sets.extend(self.patches.iter().map(|p| (format!("stock+{}", bare(p)), vec![p.clone()])));
        if self.patches.len() > 1 {
            sets.push(("stock+all".to_string(), self.patches.clone()));
        }
        sets
    }

    pub(crate) fn claims(&self) -> Claims {
        match self.stock {
            Stock::None => Claims::F32,
            Stock::Official => Claims::Official,
            Stock::Sglang | Stock::SglangSm120 => Claims::Sglang,
            Stock::Vllm => Claims::Vllm,
        }
    }
}

/// Runs the audit. The verdict stands in the bundle; an error means that there is none.
pub fn audit(job: &Job<'_>, subject: &Subject) -> Result<Bundle> {
    let start = Instant::now();
    let pool = job.pool()?;
    let (checkpoint, requests) = (&job.checkpoint, &job.inputs.requests);
    let golden = job.golden(requests.clone())?;
    let open = start.elapsed().as_secs_f64();
    let claims = subject.claims();
    // A path that claims f32 is judged at 1e-5: golden's own noise must be known there.
    let floor = match job.floor || claims == Claims::F32 {
        true => Some(Golden::new(checkpoint.clone(), requests.clone(), Mode::F64, job.threads)?),
        false => None,
    };
    let plan =
        |patches: &Vec<String>| Plan { stock: subject.stock, patches: patches.clone(), history: subject.history };
    let (names, sets): (Vec<String>, Vec<Vec<String>>) = subject.sets().into_iter().unzip();
    let made = || {
        let sets = PatchSets::new(checkpoint, requests, sets.iter().map(plan).collect(), job.threads);
        sets.map(|sets| sets.reduced_by(job.reduce.as_ref()))
    };
    let together = made()?.computed_by(job.kernels.as_ref());
    let contracts = job.kernels.as_ref().map(|_| made()).transpose()?;
    let sides = kernels::sides(together.sets(), contracts.as_ref());
    kernels::check(job, &together)?;
    let tally = Tally::default();
    let accumulation = job.kernels.as_ref().map(|kernels| kernels.accumulation()).unwrap_or_default();
    let config = checkpoint.config();
    let runs = sets.len() * requests.seqs.len() * (config.layers.len() + config.mtp.len());
    let paths: Vec<(String, Vec<PatchSpec>, &Optimized)> =
        names.into_iter().zip(&sets).zip(together.sets()).map(|((name, set), path)| (name, specs(set), path)).collect();
    let second = match job.rerun {
        true => Some(made()?.computed_by(job.kernels.as_ref())),
        false => None,
    };
    let probing = Instant::now();
    let effects = Effects::of(job, subject)?;
    let probes = probing.elapsed().as_secs_f64();
    let counts: Vec<_> = paths.iter().map(|p| || calls(p.2)).collect();
    let candidates = paths
        .iter()
        .zip(&counts)
        .enumerate()
        .map(|(i, (p, count))| {
            let rotates = [Phase::Prefill, Phase::Decode].map(|phase| p.2.numerics(phase).index.hadamard);
            let (patches, history) = (p.1.clone(), subject.history.to_string());
            let together: Option<(&dyn Together, usize)> = Some((&together, i));
            let calls: Option<&(dyn Fn() -> _ + Sync)> = Some(count);
            let rules = (claims != Claims::F32).then(|| Rules::of(p.2, checkpoint));
            let rerun = second.as_ref().map(|second| &second.sets()[i] as &dyn karat_seam::Path);
            let new = Candidate::new(p.0.clone(), p.2, claims);
            let kernels = sides[i].as_ref().map(|side| side.of(p.2, checkpoint, &tally, runs, &accumulation));
            let backend = if kernels.is_some() { "cuda".to_string() } else { new.backend.clone() };
            Candidate { patches, backend, history, rotates, calls, together, rules, rerun, kernels, ..new }
        })
        .collect();
    let states = job.states();
    let lockstep = Lockstep {
        golden: &golden,
        floor: floor.as_ref().map(|f| f as &dyn karat_seam::Path),
        candidates,
        scenarios: job.inputs.scenarios.clone(),
        asks: &job.inputs.asks,
        facts: Facts::of(checkpoint)?,
        taps: &|site| job.wants(site),
        layers: job.layers,
        // What an earlier run left is no second run.
        cache: job.cache.filter(|_| !job.rerun && job.kernels.is_none()),
        states: states.clone(),
    };
    let mut outcome = pool.install(|| lockstep.run(job.progress, job.stop))?;
    finish::added_to_stock(&mut outcome.taps);
    let parts = WallParts {
        open,
        probes,
        golden: outcome.wall[0] - outcome.noise_s,
        noise: outcome.noise_s,
        weights: together.weight_time().as_secs_f64(),
        contracts: outcome.wall[1] - together.weight_time().as_secs_f64(),
        comparing: outcome.wall[2],
        ..WallParts::default()
    };
    let profile = subject.stock.name();
    let mut rows = Vec::new();
    for (set, specs, _) in &paths {
        let [spec] = specs.as_slice() else { continue };
        let calls = outcome.calls.get(&(set.clone(), spec.name.clone())).copied().unwrap_or_default();
        let probed = effects.states.get(&spec.name).map(String::as_str);
        rows.push(row(spec, profile, set, calls, probed, &outcome));
    }
    let plans = paths.iter().map(|(name, _, path)| (name.clone(), path.plan().clone())).collect();
    let key = |set: &str| paths.iter().find(|(name, ..)| name == set).map(|(.., path)| path.identity());
    outcome.recall = recall::rows_cached(job, &outcome.asked, &key, &recall::searcher(job, plans))?;
    outcome.notes.extend(effects.notes);
    outcome.notes.extend(finish::limits(job, !subject.patches.is_empty(), Some(subject.stock)));
    outcome.notes.extend(kernels::notes(&together, &tally));
    outcome.notes.extend(Some(accumulation.note.clone()).filter(|note| !note.is_empty()));
    outcome.findings.extend(kernels::finding(&accumulation));
    let candidate = RunCandidate {
        name: "optimized".to_string(),
        claims: profile.to_string(),
        patch_sets: paths.iter().map(|(name, ..)| name.clone()).collect(),
    };
    let mut bundle = finish::bundle(job, outcome, candidate, rows, start.elapsed().as_secs_f64());
    let looking = Instant::now();
    if job.second_look {
        let failing = pool.install(|| lockstep.find(&mut bundle))?;
        repro::leave(job, failing.as_ref())?;
    }
    let (second_look, total) = (looking.elapsed().as_secs_f64(), start.elapsed().as_secs_f64());
    let told: f64 = parts.named().iter().map(|(_, seconds)| seconds).sum();
    bundle.run.wall_s.total = total;
    bundle.run.wall_s.parts = Some(WallParts { second_look, rest: total - told - second_look, ..parts });
    bundle.run.spilled_bytes = states.map_or(0, |states| states.spilled());
    Ok(bundle)
}

/// A patch's name without its options.
fn bare(patch: &str) -> &str {
    patch.split(':').next().unwrap_or(patch).trim()
}

/// Descriptors of patches, as they are asked for (`NAME:option=value`). One that is not known is left out: it is refused
/// when its path is made.
pub fn specs(requests: &[String]) -> Vec<PatchSpec> {
    let find = |request: &String| patches().iter().find(|p| p.name == bare(request)).map(|p| spec(p, request));
    requests.iter().filter_map(find).collect()
}

fn spec(patch: &Patch, request: &str) -> PatchSpec {
    PatchSpec {
        name: patch.name.to_string(),
        ops: patch.ops.to_vec(),
        phases: patch.phases.to_vec(),
        claimed_error: patch.claimed_error(request),
        risk: patch.risk.name().to_string(),
        exact: patch.exact,
    }
}

/// Executions of each patch so far.
fn calls(path: &Optimized) -> BTreeMap<String, Calls> {
    let coverage = path.coverage();
    let one = |p: &karat_optimized::PatchCoverage| {
        let calls = Calls { prefill: p.prefill, decode: p.decode, largest_prefill: p.largest_prefill };
        (p.name.to_string(), calls)
    };
    coverage.patches.iter().map(one).collect()
}
