//! Audit of another engine's trace: ids come from the trace, golden runs them.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use karat_bundle::{Bundle, Candidate as RunCandidate, Finding, Verdict};
use karat_diff::Claims;
use karat_model::Error as ModelError;
use karat_reference::{Golden, Mode};
use karat_seam::{Path as _, Requests};
use karat_trace::{SameModel, Trace, TracePath};

use crate::job::{Inputs, Job};
use crate::lockstep::Outcome;
use crate::{Candidate, Error, Facts, Lockstep, Result, finish, recall};

/// A trace and what it claims.
pub struct TraceJob {
    /// The trace.
    pub trace: Arc<Trace>,
    /// Number formats that it claims.
    pub claims: Claims,
    /// Ids that it should have, when the caller knows.
    pub expected: Option<Requests>,
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
    let mut outcome = match not_comparable(job, subject) {
        Some(finding) => Outcome { findings: vec![finding], ..Outcome::default() },
        None => compare(job, subject).map_err(|e| blame(e, &subject.trace))?,
    };
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
    Ok(finish::bundle(job, outcome, candidate, Vec::new(), start.elapsed().as_secs_f64()))
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
    let expected = subject.expected.as_ref()?;
    let differs = trace.id_differences(expected).into_iter().next()?;
    let place = match differs.position {
        Some(position) => format!("sequence {}, position {position}", differs.sequence),
        None => format!("sequence {} is on one side only", differs.sequence),
    };
    unproven(format!("ids differ: {place}: nothing was compared"))
}

fn compare(job: &Job<'_>, subject: &TraceJob) -> Result<Outcome> {
    let checkpoint = &job.checkpoint;
    let config = checkpoint.config();
    let requests = &job.inputs.requests;
    let golden = Golden::new(checkpoint.clone(), requests.clone(), Mode::F32, job.threads)?;
    let floor = match job.floor || subject.claims == Claims::F32 {
        true => Some(Golden::new(checkpoint.clone(), requests.clone(), Mode::F64, job.threads)?),
        false => None,
    };
    let path = TracePath::new(subject.trace.clone(), golden.blocks(), config.hc_mult, config.hidden_size)?;
    let recorded = !subject.trace.manifest().history.is_empty();
    let (backend, history) = ("trace".to_string(), if recorded { "recorded" } else { "cold" }.to_string());
    // The engines that quantise index vectors rotate them first, except vLLM (spec 2.8).
    let rotates = [matches!(subject.claims, Claims::Official | Claims::Sglang); 2];
    let holds = Some(path.rows().into());
    let candidate = Candidate { backend, history, rotates, holds, ..Candidate::new("trace", &path, subject.claims) };
    let lockstep = Lockstep {
        golden: &golden,
        floor: floor.as_ref().map(|f| f as &dyn karat_seam::Path),
        candidates: vec![candidate],
        scenarios: job.inputs.scenarios.clone(),
        asks: &job.inputs.asks,
        facts: Facts::of(checkpoint)?,
        taps: &|site| job.wants(site),
        layers: job.layers,
        cache: job.cache,
    };
    let mut outcome = job.pool()?.install(|| lockstep.run(job.progress, job.stop))?;
    outcome.recall = recall::rows(job, &outcome.asked, &|_, _, _| Ok(Vec::new()))?;
    Ok(outcome)
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
