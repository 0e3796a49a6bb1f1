//! What a history that is not the path's own cold run does to the conversation: which rows are gone, which answers, what it
//! looks like, and whether the decode kernels have a part in it.

use std::collections::{BTreeMap, BTreeSet};

use karat_bundle::RecallRow;
use karat_bundle::judge::recall::{candidate_is_right, counts, golden_is_right};
use karat_optimized::serving::{Lost, Part, Served as History};
use karat_seam::{Recorded, RowId, Tensor};
use serde::Serialize;

use super::evidence::Logits;
use crate::bisect::{Books, HistoryRuns, Rig};
use crate::job::Job;
use crate::recall::told;
use crate::{Checked, Difference, Result};

/// An answer that golden gives and the history doesn't.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Forgotten {
    /// What was told, and what is said.
    pub(super) expected: String,
    pub(super) said: String,
    /// How it looks, and how near it is to golden without the history (0 to 1).
    pub(super) symptom: String,
    pub(super) amnesia: Option<f64>,
}

/// One broken history.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Broken {
    /// Rows that are not their reader's, in words, by tensor.
    pub(super) rows: Vec<String>,
    /// What that means for the conversation.
    pub(super) meaning: Option<String>,
    /// Its logits against golden's.
    pub(super) logits: Logits,
    /// Answers that are lost.
    pub(super) forgotten: Vec<Forgotten>,
    /// Size after gzip over size before of the answering turns' texts, worst of the history's, and of golden's.
    pub(super) gzip: Option<(f64, f64)>,
    /// Patches that act in decode alone, and whether the history differs at the same row without them, with as many answers
    /// lost.
    pub(super) decode: Option<(Vec<String>, bool, usize)>,
}

/// What rows stand for, in words.
fn words(lost: &Lost) -> String {
    let range = |set: &BTreeSet<usize>| match (set.first(), set.last()) {
        (Some(a), Some(b)) if a != b => format!("{a} to {b}"),
        (Some(a), _) => a.to_string(),
        _ => String::new(),
    };
    let layers: BTreeSet<usize> = lost.layers.iter().map(|l| usize::from(*l)).collect();
    let plural = if layers.len() == 1 { "" } else { "s" };
    let what = if lost.are_free { "nobody's (free or cleared)" } else { "other rows" };
    format!(
        "{} of layer{plural} {}: {} rows that stand for positions {} are {what}",
        lost.part.name(),
        range(&layers),
        lost.rows,
        range(&lost.positions)
    )
}

/// Lost window rows are the last tokens; lost entries and index keys are everything before them.
fn meaning(lost: &[Lost]) -> Option<String> {
    let has = |part: fn(Part) -> bool| lost.iter().any(|l| part(l.part));
    let (window, entries) = (has(|p| p == Part::Window), has(Part::is_per_entry));
    let keys = has(|p| p == Part::IndexKeys);
    match (window, entries) {
        (true, true) => Some("the whole conversation before the resumed request is gone".to_string()),
        (true, false) => Some(
            "the tokens just before the resumed request are gone, older ones are still there in compressed entries"
                .to_string(),
        ),
        (false, true) => Some(format!(
            "everything that is older than the window is gone ({}): for the model the conversation begins there",
            if keys { "entries, and the index keys that would find them" } else { "entries" }
        )),
        (false, false) => has(Part::is_state).then(|| "entries that are completed next are wrong".to_string()),
    }
}

/// Where a history differs first, but for the values.
fn place(d: &Difference) -> (Option<u16>, Option<Part>, &str, usize, Option<(u32, usize)>) {
    (d.layer, d.part, &d.sequence, d.position, d.at)
}

/// The logits of a history as a rig's run has them. Sequences whose logits are the cold run's are not there.
fn recorded(checked: &Checked, vocab: usize) -> BTreeMap<u32, Recorded> {
    let sequences = (0u32..).zip(&checked.sequences).filter(|(_, s)| !s.values.is_empty());
    let one = |(seq, of): (u32, &crate::OfSequence)| {
        let n = of.values.len() / vocab;
        let rows = (0..n as u32).map(|pos| RowId::new(seq, pos)).collect();
        (seq, Recorded { rows, tensor: Tensor::f32([n, vocab], of.values.clone()) })
    };
    sequences.map(one).collect()
}

/// Looks at one history that differs; `rig` runs the path's cold run and golden on the same conversations.
pub(super) fn measure(
    rig: &mut Rig<'_>,
    all: &[String],
    history: History,
    checked: &Checked,
    books: Option<&Books<'_>>,
) -> Result<Broken> {
    let job = rig.job;
    let decode = super::steps::decode_only(all);
    let logits = of_all(rig, all, checked)?;
    let mut out =
        Broken { rows: checked.lost.iter().map(words).collect(), meaning: meaning(&checked.lost), ..Broken::default() };
    let distance = rig.distance(&logits)?;
    out.logits = Logits::of(&distance, &job.inputs);
    let rows = answers(rig, job, &logits, history)?;
    let is_lost = |r: &&RecallRow| counts(r) && golden_is_right(r) && !candidate_is_right(r);
    let forgotten = rows.iter().filter(is_lost).map(|r| Forgotten {
        expected: r.expected.clone(),
        said: r.said.clone(),
        symptom: r.symptom.clone(),
        amnesia: r.amnesia,
    });
    out.forgotten = forgotten.collect();
    let golden = rig.golden()?.clone();
    let own = answers(rig, job, &golden, history)?;
    let least = |rows: &[RecallRow]| rows.iter().filter_map(|r| r.gzip_ratio).reduce(f64::min);
    out.gzip = least(&rows).zip(least(&own));
    if !decode.is_empty() {
        let rest: Vec<String> = all.iter().filter(|p| !decode.contains(p)).cloned().collect();
        let (again, _) = HistoryRuns::new(rig, &rest, books)?.check(rig, history)?;
        let same = match (&checked.difference, &again.difference) {
            (Some(a), Some(b)) => place(a) == place(b),
            _ => checked.misplaced == again.misplaced,
        };
        let logits = of_all(rig, &rest, &again)?;
        let lost = Logits::of(&rig.distance(&logits)?, &job.inputs).lost.len();
        out.decode = Some((decode, same, lost));
    }
    Ok(out)
}

/// A history's logits: its own where they differ from the cold run's, else those.
fn of_all(rig: &mut Rig<'_>, set: &[String], checked: &Checked) -> Result<BTreeMap<u32, Recorded>> {
    let vocab = rig.job.checkpoint.config().vocab_size;
    let mut out = match rig.sets(&[set.to_vec()])?.pop() {
        Some((cold, _)) => cold,
        None => BTreeMap::new(),
    };
    out.extend(recorded(checked, vocab));
    Ok(out)
}

fn answers(
    rig: &mut Rig<'_>,
    job: &Job<'_>,
    logits: &BTreeMap<u32, Recorded>,
    history: History,
) -> Result<Vec<RecallRow>> {
    let golden = rig.golden()?;
    told(job, golden.values(), logits.values(), history.name())
}
