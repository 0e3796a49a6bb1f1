//! What a bundle says, in the order in which people ask for it. No format is known here.

mod flips;
mod heat;
mod layers;
mod logits;
mod places;
mod recall;

use std::borrow::Cow;
use std::collections::BTreeSet;

use karat_bundle::gate::{Gated, gate};
use karat_bundle::judge::recall::{bounds, paired};
use karat_bundle::{Bundle, Date, FirstBad, TapRow, Verdict};

pub(crate) use flips::surprising;
pub(crate) use heat::{Heat, counts_entries, heat};
pub(crate) use layers::{Layer, Tap, layers, nearness, phase_name};
pub(crate) use logits::{RUNG_HEADS, Rung, ladder};
pub(crate) use places::{Place, places};
pub(crate) use recall::{DEPTHS, Group, LENGTHS, MODULI, RecallSet, recall};

/// The sentence after the verdict.
pub(crate) enum Sentence<'a> {
    /// It stands in the bundle.
    Told(&'a str),
    /// The first bad place.
    First(&'a FirstBad),
    /// So many rows were judged, and so many of them are over tolerance and allowed.
    Counted { judged: u64, over: u64 },
    /// A run that only asked for answers: so many lost, gained, of how many.
    Recalled { lost: u64, gained: u64, answers: u64 },
    /// A run that only compared histories, so many of them, and each judged comparison passes.
    Served { histories: u64 },
    /// Nothing more to say.
    Nothing,
}

/// What was found, before anything else.
pub(crate) fn sentence(bundle: &Bundle) -> Sentence<'_> {
    let report = &bundle.verdict;
    match (&report.first_bad, &report.examination, report.verdict) {
        (Some(_), Some(found), Verdict::Fail) if !found.summary.is_empty() => Sentence::Told(&found.summary),
        (Some(bad), _, Verdict::Fail) => Sentence::First(bad),
        (_, _, Verdict::Pass) if !bundle.taps.is_empty() => Sentence::Counted {
            judged: bundle.taps.iter().filter(|r| r.verdict.is_some()).count() as u64,
            over: bundle.taps.iter().filter(|r| r.verdict == Some(Verdict::Fail)).count() as u64,
        },
        (_, _, Verdict::Pass) if !bundle.recall.is_empty() => {
            let b = bounds(&paired(&bundle.recall));
            Sentence::Recalled { lost: b.lost, gained: b.gained, answers: b.answers }
        }
        (_, _, Verdict::Pass) if !bundle.histories.is_empty() => Sentence::Served { histories: histories(bundle) },
        _ => report.reasons.first().map_or(Sentence::Nothing, |r| Sentence::Told(r)),
    }
}

/// Different histories.
pub(crate) fn histories(bundle: &Bundle) -> u64 {
    bundle.histories.iter().map(|r| r.history.as_str()).collect::<BTreeSet<_>>().len() as u64
}

/// The bundle with each tolerance as it was judged: times the policy's factor for that row. Nothing may be judged by it again.
pub(crate) fn as_judged(bundle: &Bundle) -> Cow<'_, Bundle> {
    let policy = &bundle.run.policy;
    if policy.tolerance_scale.to_bits() == 1.0_f64.to_bits() && policy.tolerance.is_empty() {
        return Cow::Borrowed(bundle);
    }
    let mut shown = bundle.clone();
    for row in &mut shown.taps {
        row.tolerance = row.tolerance.map(|t| t * policy.scale(row));
    }
    Cow::Owned(shown)
}

/// Reasons beside the sentence.
pub(crate) fn reasons(bundle: &Bundle) -> &[String] {
    let report = &bundle.verdict;
    let is_told = matches!(sentence(bundle), Sentence::Told(_)) && report.examination.is_none();
    report.reasons.get(usize::from(is_told)..).unwrap_or_default()
}

/// True when the policy lets a row be over tolerance for a while.
pub(crate) fn is_allowed(bundle: &Bundle, row: &TapRow) -> bool {
    bundle.run.policy.allow.iter().any(|allow| allow.covers_tap(row))
}

/// Name of a tap as people write it.
pub(crate) fn name(row: &TapRow) -> String {
    place(&row.layer, &row.tap)
}

/// The same from its parts.
pub(crate) fn place(layer: &str, tap: &str) -> String {
    if !layer.is_empty() && layer.bytes().all(|b| b.is_ascii_digit()) {
        format!("layers.{layer}.{tap}")
    } else if layer.starts_with("mtp.") {
        format!("{layer}.{tap}")
    } else {
        tap.to_string()
    }
}

/// The patch set whose series are drawn: the last in table order that has rows, which is the one with all patches.
pub(crate) fn last_set(bundle: &Bundle) -> Option<&str> {
    let sets = &bundle.run.candidate.patch_sets;
    let has = |set: &&String| bundle.taps.iter().any(|r| r.patch_set == **set);
    sets.iter().rev().find(has).or(sets.last()).map(String::as_str)
}

/// What the gate says of the bundle under its own policy: limits, the line of each patch set, and the smallest effects that
/// it could have seen. The verdict in the bundle stays as it is.
pub(crate) fn gated(bundle: &Bundle) -> Gated {
    let policy = bundle.run.policy.clone();
    // Without a day no allowance is judged; the lines of the table need none otherwise.
    let day = bundle.run.partition.as_ref().and_then(|p| p.today).unwrap_or_else(|| Date::of_unix_seconds(0));
    gate(&mut bundle.clone(), &policy, None, day)
}

/// What the run is no evidence for: what it says itself, and what follows from how it ran.
pub(crate) fn not_evidence(bundle: &Bundle) -> Vec<String> {
    let run = &bundle.run;
    let mut out = run.notes.clone();
    let mut also = |word: &str, text: &str| {
        if !out.iter().any(|note| note.contains(word)) {
            out.push(text.to_string());
        }
    };
    if run.backend == "cpu" {
        also("sm_120", "no kernel ran: nothing is known of sm_90, sm_120 or any other GPU");
    } else if !run.device.is_empty() {
        also("sm_120", "evidence of one architecture never clears another: sm_90 says nothing of sm_120");
    }
    if run.model.random_weights {
        also("random weights", "the weights are random: nothing is known of a trained model, and nothing of recall");
    }
    if run.model.label.starts_with("mini") {
        also("real checkpoint", "a mini model: what a patch costs the model itself only a real checkpoint can tell");
    }
    out
}
