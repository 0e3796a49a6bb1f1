//! Audit of another engine's trace: ids come from the trace, golden runs them.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use karat_bundle::{Bundle, Candidate as RunCandidate, Finding, Verdict};
use karat_diff::Claims;
use karat_model::Error as ModelError;
use karat_optimized::{History, Optimized, Plan, Stock};
use karat_reference::{Golden, Mode};
use karat_seam::{Path as _, Requests};
use karat_trace::{SameModel, Trace, TracePath};

use crate::job::{Inputs, Job};
use crate::lockstep::Outcome;
use crate::{Candidate, Claimed, Error, Facts, Lockstep, Result, Rules, finish, recall, repro};

/// A trace and what it claims.
pub struct TraceJob {
    /// The trace.
    pub trace: Arc<Trace>,
    /// Number formats that it claims.
    pub claims: Claims,
    /// The same engine once more.
    pub rerun: Option<Arc<Trace>>,
    /// Speed patches that it ran with, when the caller knows: what they round counts where layer outputs are all that it
    /// shows.
    pub patches: Option<Vec<String>>,
    /// Ids that it should have, when the caller knows.
    pub expected: Option<Requests>,
    /// Of a query-sampled trace, golden runs the whole conversation as well, and all rows of its pages are judged.
    pub cold: bool,
}

/// Opens a trace and gives the conversations that golden must run for it.
pub fn requests_of(dir: &Path) -> Result<(Arc<Trace>, Inputs)> {
    let trace = Arc::new(Trace::open(dir)?);
    let requests = trace.requests().clone();
    let name = dir.file_name().map_or_else(|| "trace".to_string(), |n| n.to_string_lossy().into_owned());
    let scenarios = vec![name; requests.seqs.len()];
    Ok((trace, Inputs { requests, scenarios, ..Inputs::default() }))
}

/// Runs the audit. `job.inputs` are those of [`requests_of`].
pub fn audit_trace(job: &Job<'_>, subject: &TraceJob) -> Result<Bundle> {
    let start = Instant::now();
    match not_comparable(job, subject) {
        Some(finding) => Ok(whole(job, subject, Outcome { findings: vec![finding], ..Outcome::default() }, start)),
        None => compare(job, subject, start).map_err(|e| blame(e, &subject.trace)),
    }
}

/// The bundle of what was found.
fn whole(job: &Job<'_>, subject: &TraceJob, mut outcome: Outcome, start: Instant) -> Bundle {
    let known = subject.trace.same_model(job.checkpoint.config_sha256(), job.checkpoint.weights_sha256());
    if known == SameModel::Unknown {
        outcome.notes.push("the trace does not say which weights it is of: taken on trust".to_string());
    }
    if known == SameModel::SameWeights {
        outcome.notes.push("the trace's weights are the model's, its config.json is another file".to_string());
    }
    outcome.notes.extend(finish::limits(job, false, subject.claims.name().parse().ok()));
    let candidate = RunCandidate {
        name: format!("trace {}", subject.trace.label()),
        claims: subject.claims.name().to_string(),
        patch_sets: vec!["trace".to_string()],
    };
    finish::bundle(job, outcome, candidate, Vec::new(), start.elapsed().as_secs_f64())
}

/// Why the trace and golden are not of the same thing, if so.
fn not_comparable(job: &Job<'_>, subject: &TraceJob) -> Option<Finding> {
    let trace = &subject.trace;
    let unproven = |reason: String| Some(Finding::new(Verdict::Unproven, reason));
    let (config, weights) = (job.checkpoint.config_sha256(), job.checkpoint.weights_sha256());
    if trace.same_model(config, weights) == SameModel::Different {
        let model = job.checkpoint.label();
        return unproven(format!("the trace is of other weights than {model} (sha256 differs): nothing was compared"));
    }
    if let Some(again) = &subject.rerun {
        if again.same_model(config, weights) == SameModel::Different {
            return unproven(
                "the rerun is of other weights than the trace (sha256 differs): nothing was compared".into(),
            );
        }
        if let Some(place) = other_ids(again, trace.requests()) {
            return unproven(format!("the rerun's ids differ: {place}: nothing was compared"));
        }
    }
    let place = other_ids(trace, subject.expected.as_ref()?)?;
    unproven(format!("ids differ: {place}: nothing was compared"))
}

/// Where a trace holds other ids than these, if so.
fn other_ids(trace: &Trace, expected: &Requests) -> Option<String> {
    let differs = trace.id_differences(expected).into_iter().next()?;
    Some(match differs.position {
        Some(position) => format!("sequence {}, position {position}", differs.sequence),
        None => format!("sequence {} is on one side only", differs.sequence),
    })
}

fn compare(job: &Job<'_>, subject: &TraceJob, start: Instant) -> Result<Bundle> {
    let checkpoint = &job.checkpoint;
    let config = checkpoint.config();
    let requests = &job.inputs.requests;
    let golden = job.golden(requests.clone())?;
    let floor = match job.floor || subject.claims == Claims::F32 {
        true => Some(Golden::new(checkpoint.clone(), requests.clone(), Mode::F64, job.threads)?),
        false => None,
    };
    let path = TracePath::new(subject.trace.clone(), golden.blocks(), config.hc_mult, config.hidden_size)?;
    let recorded = !subject.trace.manifest().history.is_empty();
    let (backend, history) = ("trace".to_string(), if recorded { "recorded" } else { "cold" }.to_string());
    // The engines that quantise index vectors rotate them first, except vLLM (spec 2.8).
    let rotates = [matches!(subject.claims, Claims::Official | Claims::Sglang); 2];
    let new = |trace: &Arc<Trace>| TracePath::new(trace.clone(), golden.blocks(), config.hc_mult, config.hidden_size);
    let again = subject.rerun.as_ref().map(new).transpose()?;
    if let Some(again) = again.as_ref().filter(|again| again.rows() != path.rows()) {
        let error = ModelError::input("the rerun holds other rows than the trace").at(again.trace().label());
        return Err(error.hint("record both with the same taps and positions").into());
    }
    let rerun = again.as_ref().map(|again| again as &dyn karat_seam::Path);
    let (wide, sampled) = (floor.as_ref(), crate::sampled::is_sampled(&subject.trace));
    let rows = match sampled {
        true => Some(crate::sampled::rows(&golden, &subject.trace, (subject.claims, rotates[0]), subject.cold)?),
        false => None,
    };
    let at_rows = rows.as_ref().map(|rows| &rows.path);
    let floor_at_rows = wide.zip(at_rows).map(|(wide, at)| crate::sampled::floor(wide, at));
    // Golden with this plan's noise is what its layers' outputs are held against where it shows nothing else.
    let stock: Option<Stock> = subject.claims.name().parse().ok().filter(|_| !sampled);
    let plan =
        stock.map(|stock| Plan { stock, patches: subject.patches.clone().unwrap_or_default(), history: History::Cold });
    let contract =
        plan.map(|plan| Optimized::new(checkpoint.clone(), requests.clone(), plan, job.threads)).transpose()?;
    let is_whole = subject.patches.is_some();
    let claimed = contract.as_ref().map(|path| Claimed { rules: Rules::of(path, checkpoint), is_whole });
    let holds = Some(at_rows.map_or_else(|| path.rows().into(), |at| at.rows.clone()));
    let new = Candidate::new("trace", &path, subject.claims);
    let candidate = Candidate { backend, history, rotates, claimed, rerun, holds, ..new };
    let lockstep = Lockstep {
        golden: at_rows.map_or(&golden as &dyn karat_seam::Path, |at| at),
        floor: match &floor_at_rows {
            Some(floor) => Some(floor as &dyn karat_seam::Path),
            None => floor.as_ref().map(|f| f as &dyn karat_seam::Path),
        },
        candidates: vec![candidate],
        scenarios: job.inputs.scenarios.clone(),
        asks: &job.inputs.asks,
        facts: Facts::of(checkpoint)?,
        taps: &|site| job.wants(site),
        layers: job.layers,
        cache: job.cache.filter(|_| rerun.is_none() && !sampled),
        states: job.states(),
    };
    let pool = job.pool()?;
    let mut outcome = pool.install(|| lockstep.run(job.progress, job.stop))?;
    outcome.recall = recall::rows(job, &outcome.asked, &|_, _, _| Ok(Vec::new()))?;
    if let Some(rows) = &rows {
        let (pages, notes) = rows.path.page_rows(&lockstep.candidates[0], &lockstep.scenarios);
        outcome.taps.extend(pages.into_iter().filter(|row| wanted(job, row)));
        outcome.notes.extend(rows.notes.iter().cloned().chain(notes));
    }
    let mut bundle = whole(job, subject, outcome, start);
    if let Some(at) = at_rows {
        crate::sampled::examine(&mut bundle, at);
    } else if job.second_look {
        let failing = pool.install(|| lockstep.find(&mut bundle))?;
        repro::leave(job, failing.as_ref())?;
    }
    bundle.run.wall_s.total = start.elapsed().as_secs_f64();
    Ok(bundle)
}

/// Whether pages are to be judged.
fn wanted(job: &Job<'_>, row: &karat_bundle::TapRow) -> bool {
    let site = row.layer.parse().ok().zip(karat_seam::Tap::from_name(&row.tap));
    site.is_none_or(|(l, tap)| job.wants(karat_seam::Site::layer(l, tap)))
}

/// A tensor of the trace that does not fit golden's is the trace's fault.
fn blame(error: Error, trace: &Trace) -> Error {
    match error {
        Error::Seam(error) => {
            let model = ModelError::input(error.to_string()).at(trace.label());
            Error::Model(model.hint("is it a trace of this model?"))
        }
        other => other,
    }
}
