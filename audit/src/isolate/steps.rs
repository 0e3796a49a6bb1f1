//! The steps of the plan, each a measurement.

use std::collections::BTreeMap;

use karat_bundle::judge::recall::{bounds, candidate_is_right, counts, golden_is_right, paired};
use karat_optimized::serving::Served as History;
use karat_optimized::{History as Schedule, patches};
use karat_seam::{Phase, SpanKind};

use super::evidence::{Audited, Decode, Logits, Phases, Recalled, Served};
use super::{Isolate, broken};
use crate::bisect::{Books, Distance, HistoryRuns, Metric, Rig, differs};
use crate::job::Job;
use crate::{Error, Result, audit, recall};

/// A history that computes more than so many times the context's rows waits for `karat audit --histories`.
const CHEAP: usize = 3;

/// Does the candidate still know what the conversations told it?
pub(super) fn recalled(job: &Job<'_>, ask: &Isolate<'_>) -> Result<Recalled> {
    let inputs = match &ask.quick {
        Ok(inputs) => inputs.clone(),
        Err(why) => return Err(karat_model::Error::input(why.clone()).into()),
    };
    let conversations = inputs.requests.seqs.len();
    let bundle = recall(&Job { inputs, ..job.again() }, Some(&ask.subject), None)?;
    let rows = &bundle.recall;
    let b = bounds(&paired(rows));
    let (mut symptoms, mut layers) = (BTreeMap::new(), BTreeMap::new());
    for row in rows.iter().filter(|r| counts(r) && golden_is_right(r) && !candidate_is_right(r)) {
        *symptoms.entry(row.symptom.clone()).or_insert(0) += 1;
        if let Some(layer) = row.lost_at_layer {
            *layers.entry(layer).or_insert(0) += 1;
        }
    }
    let (answers, lost, gained, upper) = (b.answers as u64, b.lost as u64, b.gained as u64, b.upper);
    Ok(Recalled { conversations, answers, lost, gained, upper, symptoms, layers })
}

fn measure(rig: &mut Rig<'_>, sets: &[Vec<String>]) -> Result<Vec<Logits>> {
    let ran = rig.sets(sets)?;
    let mut out = Vec::new();
    for (logits, _) in ran {
        let distance = rig.distance(&logits)?;
        out.push(Logits::of(&distance, &rig.job.inputs));
    }
    Ok(out)
}

fn one(rig: &mut Rig<'_>, set: &[String]) -> Result<Logits> {
    measure(rig, &[set.to_vec()])?.pop().ok_or(Error::CacheGap)
}

/// The patches of a set that act in decode alone.
pub(super) fn decode_only(all: &[String]) -> Vec<String> {
    let is_decode_only = |name: &&String| {
        let bare = name.split(':').next().unwrap_or(name);
        patches().iter().any(|p| p.name == bare && p.phases == [Phase::Decode])
    };
    all.iter().filter(is_decode_only).cloned().collect()
}

/// Decode kernels off and on.
pub(super) fn decode(rig: &mut Rig<'_>, all: &[String]) -> Result<Decode> {
    let decode = decode_only(all);
    let rest: Vec<String> = all.iter().filter(|p| !decode.contains(p)).cloned().collect();
    let mut found = measure(rig, &[all.to_vec(), rest])?;
    let without = found.pop().unwrap_or_default();
    let with = found.pop().unwrap_or_default();
    Ok(Decode { patches: decode, with, without })
}

/// The candidate's logits against golden's, and stock's.
pub(super) fn logits(rig: &mut Rig<'_>, all: &[String]) -> Result<(Logits, Logits)> {
    Ok((one(rig, all)?, one(rig, &[])?))
}

/// The same ids once more, all of them prefilled, against every generated token decoded.
pub(super) fn phases(rig: &Rig<'_>, all: &[String]) -> Result<Phases> {
    let job = rig.job;
    let mut prompts = job.again();
    prompts.inputs.requests = job.inputs.requests.clone();
    prompts.inputs.requests.seqs.iter_mut().for_each(|s| s.turns.clear());
    let mut turns = job.again();
    turns.inputs.requests = job.inputs.requests.clone();
    let mut prefilled = Rig::new(&prompts, rig.stock, Schedule::Cold, rig.change);
    let mut decoded = Rig::new(&turns, rig.stock, Schedule::Decoded, rig.change);
    let sets = [all.to_vec(), Vec::new()];
    let (a, b) = (prefilled.sets(&sets)?, decoded.sets(&sets)?);
    let generated = |row: karat_seam::RowId| {
        let spans = job.inputs.requests.seqs[row.seq as usize].spans();
        spans.iter().any(|s| s.kind == SpanKind::Generated && (s.start..s.end).contains(&row.pos))
    };
    let mut out = Phases::default();
    for (i, ((prefill, _), (decode, _))) in a.iter().zip(&b).enumerate() {
        let phase = |row| if generated(row) { Phase::Decode } else { Phase::Prefill };
        let mut distance = Distance::of(&prompts.inputs, prefill, decode, phase)?;
        distance.spots.retain(|s| s.phase == Phase::Decode);
        out.rows = distance.spots.len();
        let kl = if out.rows == 0 { 0.0 } else { distance.value(Metric::Kl) };
        let found = (kl, distance.value(Metric::Flips) as usize);
        if i == 0 { out.all = found } else { out.stock = found }
    }
    Ok(out)
}

/// Every patch reverted by itself, as lanes of one weight pass.
pub(super) fn reverts(rig: &mut Rig<'_>, all: &[String]) -> Result<Vec<(String, Logits)>> {
    let without = |out: &String| all.iter().filter(|p| *p != out).cloned().collect();
    let sets: Vec<Vec<String>> = all.iter().map(without).collect();
    Ok(all.iter().cloned().zip(measure(rig, &sets)?).collect())
}

/// Histories that are cheap, each against the path's own cold run; with the work that they took. What the first that
/// differs does to the conversation is measured with `logits`, a rig on the same conversations.
pub(super) fn histories(
    rig: &Rig<'_>,
    logits: &mut Rig<'_>,
    all: &[String],
    books: Option<&Books<'_>>,
) -> Result<(Vec<Served>, f64)> {
    let job = rig.job;
    let mut runs = HistoryRuns::new(rig, all, books)?;
    let (mut out, mut work): (Vec<Served>, f64) = (Vec::new(), 0.0);
    for (i, history) in (0u64..).zip(History::ALL) {
        if job.stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        job.progress.step(i, History::ALL.len() as u64, history.name());
        let name = history.name().to_string();
        if runs.rows(rig, history)? > CHEAP * job.inputs.requests.rows().len() {
            let lacks = Some("it takes more than three passes: `karat audit --histories` runs it".to_string());
            out.push(Served { name, lacks, ..Served::default() });
            continue;
        }
        let (checked, cost) = runs.check(rig, history)?;
        work += cost;
        let lacks = checked.facts.lacks(history).map(ToString::to_string);
        let differs = differs(&checked);
        let is_first = differs.is_some() && out.iter().all(|h| h.differs.is_none());
        let broken = if is_first { Some(broken::measure(logits, all, history, &checked, books)?) } else { None };
        out.push(Served { name, differs, lacks, broken });
    }
    Ok((out, work))
}

/// The audit of the same conversations: who injects what, against tolerances.
pub(super) fn audited(job: &Job<'_>, ask: &Isolate<'_>) -> Result<(Audited, f64)> {
    let job = Job { inputs: job.inputs.clone(), ..job.again() };
    let bundle = audit(&job, &ask.subject)?;
    let report = &bundle.verdict;
    let first_bad = report.first_bad.as_ref().map(|b| (b.layer.clone(), b.op.clone(), b.tap.clone()));
    let patches = bundle.patches.iter().map(|p| (p.patch.clone(), p.state.clone(), p.verdict)).collect();
    let judged = bundle.taps.iter().filter(|r| r.verdict.is_some()).count();
    let reason = report.reasons.first().cloned().unwrap_or_default();
    Ok((Audited { verdict: report.verdict, reason, judged, first_bad, patches }, report.forward_equivalents))
}
