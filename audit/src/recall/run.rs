//! `karat recall`: golden and candidates over many conversations, logits only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use karat_bundle::judge::recall::{in_order, sequential::Sequential};
use karat_bundle::{Bundle, Candidate as RunCandidate, Policy, RecallRow, Stopped, Walls, judge};
use karat_optimized::{History, Optimized, Plan};
use karat_reference::{Golden, Mode};
use karat_scenarios::Ask;
use karat_seam::Path;

use super::answers::{Picked, answers};
use super::{Asked, SEARCHED, free, last_row, pass, rows, searcher};
use crate::job::{Inputs, Job, peak_memory};
use crate::progress::Steps;
use crate::{Result, Subject, finish};

/// Tokens of one pass, unless one conversation is longer.
const TOKENS: usize = 8192;

/// Golden and the subject's last patch set (golden alone without a subject) over the job's conversations, and what is
/// recalled. `margin`: the share of answers whose loss must be ruled out.
pub fn recall(job: &Job<'_>, subject: Option<&Subject>, margin: Option<f64>) -> Result<Bundle> {
    run(job, subject, margin, false)
}

/// As [`recall`], until the sequential test of the margin has decided: it looks after every pass.
pub fn recall_until(job: &Job<'_>, subject: &Subject, margin: f64) -> Result<Bundle> {
    run(job, Some(subject), Some(margin), true)
}

fn run(job: &Job<'_>, subject: Option<&Subject>, margin: Option<f64>, stops: bool) -> Result<Bundle> {
    let start = Instant::now();
    let set = subject.and_then(|s| s.sets().pop());
    let mut run = job.provenance();
    let margin = margin.filter(|_| set.is_some());
    run.policy = Policy { recall_margin: margin, recall_sequential: stops, ..Policy::default() };
    let batches = batches(&job.inputs);
    let paths = if set.is_some() { 2 } else { 1 };
    let mut steps = Steps::new(job.progress, job.stop, batches.len() as u64 * paths);
    let mut wall = Walls::default();
    let mut found: Vec<RecallRow> = Vec::new();
    // Rows that a path computed, and rows that were asked for.
    let (mut computed, mut rows_asked) = (0, 0);
    let mut ran = 0;
    for batch in &batches {
        let decided = |m: f64| Sequential::of(&in_order(&found), m, run.policy.delta).decided_after();
        if margin.filter(|_| stops).and_then(decided).is_some() {
            break;
        }
        ran += batch.len() as u64;
        let part = Job { inputs: job.inputs.pick(batch), ..job.again() };
        let tokens: usize = part.inputs.requests.seqs.iter().map(|s| s.ids.len()).sum();
        steps.next(&format!("golden, {} of {} conversations, {tokens} tokens", batch.len(), job.inputs.asks.len()))?;
        let asks = &part.inputs.asks;
        let requests = &part.inputs.requests;
        let begun = Instant::now();
        let golden = Golden::new(part.checkpoint.clone(), requests.clone(), Mode::F32, part.threads)?;
        let ours = picked(&golden, &part)?;
        wall.golden += begun.elapsed().as_secs_f64();
        (computed, rows_asked) = (computed + tokens, rows_asked + tokens);
        let Some((name, _)) = &set else {
            let answers = answers(asks, &ours, &ours);
            let phases = answers.iter().map(|a| golden.phase_of(last_row(asks, a))).collect();
            let asked = Asked { patch_set: "golden".to_owned(), history: "cold".to_owned(), answers, phases };
            let mut new = rows(&part, &[asked], &|_, _, _| Ok(Vec::new()))?;
            free::run(&part, &mut new, None)?;
            found.append(&mut new);
            continue;
        };
        steps.next(&format!("{name}, {tokens} tokens"))?;
        let begun = Instant::now();
        let Some(plan) = plan(subject, part.inputs.chunks.first().copied().flatten()) else { continue };
        let path = Optimized::new(part.checkpoint.clone(), requests.clone(), plan.clone(), part.threads)?;
        let answers = answers(asks, &ours, &picked(&path, &part)?);
        let phases = answers.iter().map(|a| path.phase_of(last_row(asks, a))).collect();
        wall.candidate += begun.elapsed().as_secs_f64();
        computed += tokens;
        let asked = Asked { patch_set: name.clone(), history: plan.history.to_string(), answers, phases };
        // Which conversations are searched for the layer that loses them is settled when all have run.
        let mut new = rows(&part, &[asked], &|_, _, _| Ok(Vec::new()))?;
        free::run(&part, &mut new, Some(&plan))?;
        found.append(&mut new);
    }
    let asked = batches.iter().map(|batch| batch.len() as u64).sum();
    run.stopped = (ran < asked).then_some(Stopped { after: ran, of: asked });
    run.candidate = candidate(subject, set.map(|(name, _)| name));
    run.notes = finish::limits(job, subject.is_some_and(|s| !s.patches.is_empty()), subject.map(|s| s.stock));
    if !job.checkpoint.config().mtp.is_empty() {
        run.notes.push("multi-token-prediction blocks did not run: no answer depends on them".to_string());
    }
    run.wall_s = wall;
    let mut bundle = Bundle { run, recall: found, ..Bundle::default() };
    karat_bundle::merge::sort(&mut bundle, &job.inputs.conversations());
    trace(job, subject, &mut bundle.recall)?;
    let run = &mut bundle.run;
    run.wall_s.total = start.elapsed().as_secs_f64();
    run.wall_s.diff = run.wall_s.total - run.wall_s.golden - run.wall_s.candidate;
    run.peak_memory_bytes = peak_memory();
    bundle.verdict = judge(&bundle.evidence(), &bundle.run.policy);
    bundle.verdict.forward_equivalents = if rows_asked == 0 { 0.0 } else { computed as f64 / rows_asked as f64 };
    Ok(bundle)
}

/// The subject's path over a conversation that its scenario has chunked like this; nothing for golden alone.
fn plan(subject: Option<&Subject>, chunk: Option<usize>) -> Option<Plan> {
    let subject = subject?;
    let (_, patches) = subject.sets().pop()?;
    let history = match (chunk, subject.history) {
        (Some(size), History::Cold) => History::Chunked { size },
        (_, asked) => asked,
    };
    Some(Plan { stock: subject.stock, patches, history })
}

/// Searches the first conversations that lose an answer, in the order of the run, for the layer that loses it: the same ones
/// however the run is parted.
fn trace(job: &Job<'_>, subject: Option<&Subject>, rows: &mut [RecallRow]) -> Result<()> {
    let is_lost = |r: &RecallRow| {
        judge::recall::counts(r) && judge::recall::golden_is_right(r) && !judge::recall::candidate_is_right(r)
    };
    let lost: BTreeSet<(String, String)> =
        rows.iter().filter(|r| is_lost(r)).map(|r| (r.scenario.clone(), r.conversation.clone())).collect();
    let names = job.inputs.conversations();
    let first = names.iter().enumerate().filter(|(_, name)| lost.contains(*name)).take(SEARCHED);
    for (seq, (scenario, conversation)) in first {
        let chunk = job.inputs.chunks.get(seq).copied().flatten();
        let Some(plan) = plan(subject, chunk) else { return Ok(()) };
        let of = |r: &&mut RecallRow| r.scenario == *scenario && r.conversation == *conversation && is_lost(r);
        let mut mine: Vec<&mut RecallRow> = rows.iter_mut().filter(of).collect();
        let question = |r: &&mut RecallRow| job.inputs.asks[seq].get(r.question as usize).cloned();
        let Some(asks) = mine.iter().map(question).collect::<Option<Vec<Ask>>>() else { continue };
        let layers = searcher(job, vec![(String::new(), plan)])("", seq, &asks)?;
        for (row, layer) in mine.iter_mut().zip(layers) {
            row.lost_at_layer = layer;
        }
    }
    Ok(())
}

fn candidate(subject: Option<&Subject>, set: Option<String>) -> RunCandidate {
    let name = if subject.is_some() { "optimized" } else { "golden" };
    let claims = subject.map_or("f32", |s| s.stock.name());
    RunCandidate { name: name.to_owned(), claims: claims.to_owned(), patch_sets: set.into_iter().collect() }
}

/// One pass; the logits of the answering turns.
pub(super) fn picked(path: &dyn Path, part: &Job<'_>) -> Result<Picked> {
    let (rows, logits) = pass::whole(path, part.stop, None)?;
    let mut out = Picked::default();
    out.take(&rows, &logits, &part.inputs.asks);
    Ok(out)
}

/// Sequences that run together: served alike, and short ones in one pass. In the order of the inputs.
fn batches(inputs: &Inputs) -> Vec<Vec<usize>> {
    let mut open: BTreeMap<Option<usize>, (usize, Vec<usize>)> = BTreeMap::new();
    let mut out = Vec::new();
    for (seq, sequence) in inputs.requests.seqs.iter().enumerate() {
        if inputs.asks.get(seq).is_none_or(Vec::is_empty) {
            continue;
        }
        let chunk = inputs.chunks.get(seq).copied().flatten();
        let (tokens, batch) = open.entry(chunk).or_default();
        if *tokens + sequence.ids.len() > TOKENS && !batch.is_empty() {
            out.push(std::mem::take(batch));
            *tokens = 0;
        }
        *tokens += sequence.ids.len();
        batch.push(seq);
    }
    out.extend(open.into_values().map(|(_, batch)| batch).filter(|b| !b.is_empty()));
    out.sort();
    out
}
