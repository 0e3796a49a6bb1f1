//! A history's final content and logits against golden's.

use std::collections::{BTreeMap, BTreeSet};

use karat_seam::{Data, Recorded, Recorder, RowId, Site, Tap, Tensor};

/// Distance of a history from golden.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FromGolden {
    /// Largest difference of a logit over the largest logit.
    pub logits: f64,
    /// The same of KV content, over its tensor's largest value: window rows, entries, index keys and compressor rows after
    /// the last token.
    pub content: f64,
    /// Where the content is farthest.
    pub content_at: String,
    /// Positions whose most probable token is another.
    pub top: usize,
    /// Rows with other experts, and with other entries.
    pub decisions: (usize, usize),
}

/// What is kept of a run: content after the last row, and the decisions.
pub(super) fn recorder() -> Recorder {
    Recorder::new(|site| site.tap.is_state() || matches!(site.tap, Tap::FfnIdx | Tap::AttnSelected))
}

/// A run's recorder and the logits `[n,V]` of each sequence.
pub(super) struct Ran {
    pub(super) seen: Recorder,
    pub(super) logits: Vec<Vec<f32>>,
}

/// Compares a history with golden; `rows` are the identities of the final rows, by sequence.
pub(super) fn compare(own: &Ran, golden: &Ran, rows: &[Vec<RowId>], vocab: usize) -> FromGolden {
    let mut out = FromGolden::default();
    for (a, b) in own.logits.iter().zip(&golden.logits) {
        out.logits = out.logits.max(relative(a, b));
        let tops = a.chunks_exact(vocab).zip(b.chunks_exact(vocab));
        out.top += tops.filter(|(a, b)| top(a) != top(b)).count();
    }
    for ((site, seq), golden) in &golden.seen.taps {
        let Some(own) = own.seen.get(*site, *seq) else { continue };
        match (&own.tensor.data, &golden.tensor.data) {
            (Data::F32(a), Data::F32(b)) if site.tap.is_state() => {
                let error = if a.len() == b.len() { relative(a, b) } else { f64::INFINITY };
                if error > out.content {
                    (out.content, out.content_at) = (error, format!("{site}, sequence {seq}"));
                }
            }
            (Data::I64(a), Data::I64(b)) if site.tap == Tap::StateWinPos && a != b => {
                (out.content, out.content_at) = (f64::INFINITY, format!("{site}, sequence {seq}"));
            }
            _ => {}
        }
    }
    for ((site, seq), golden) in &golden.seen.taps {
        let count = || changed(&own.seen, *site, golden, &rows[*seq as usize]);
        match site.tap {
            Tap::FfnIdx => out.decisions.0 += count(),
            Tap::AttnSelected => out.decisions.1 += count(),
            _ => {}
        }
    }
    out
}

/// Rows whose set of choices is another. Golden's rows are by position; a history's may be another sequence's, which
/// shares the beginning.
fn changed(own: &Recorder, site: Site, golden: &Recorded, rows: &[RowId]) -> usize {
    let mut at: BTreeMap<RowId, (&Tensor, usize)> = BTreeMap::new();
    for seq in rows.iter().map(|row| row.seq).collect::<BTreeSet<u32>>() {
        if let Some(seen) = own.get(site, seq) {
            at.extend(seen.rows.iter().enumerate().map(|(i, row)| (*row, (&seen.tensor, i))));
        }
    }
    let differs = |(position, row): &(usize, &RowId)| match at.get(row) {
        Some((tensor, i)) => choices(tensor, *i) != choices(&golden.tensor, *position),
        None => true,
    };
    rows.iter().enumerate().filter(differs).count()
}

/// Experts of a row, or the entries that its mask marks, ascending.
fn choices(tensor: &Tensor, row: usize) -> Vec<i64> {
    let width = tensor.width();
    let range = row * width..(row + 1) * width;
    let mut out: Vec<i64> = match &tensor.data {
        Data::I64(v) => v[range].to_vec(),
        Data::U8(v) => (0i64..).zip(&v[range]).filter(|(_, marked)| **marked != 0).map(|(i, _)| i).collect(),
        _ => Vec::new(),
    };
    out.sort_unstable();
    out
}

fn top(logits: &[f32]) -> usize {
    // The first of equals.
    (0..logits.len()).reduce(|best, i| if logits[i] > logits[best] { i } else { best }).unwrap_or(0)
}

/// Largest difference over the largest value of `b`; infinite when a value is not a number.
fn relative(a: &[f32], b: &[f32]) -> f64 {
    let scale = b.iter().fold(0f64, |m, v| m.max(f64::from(*v).abs()));
    let far = a.iter().zip(b).filter(|(a, b)| a != b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
    let worst = far.fold(0f64, |m, d| if d.is_nan() { f64::INFINITY } else { m.max(d) });
    if worst == 0.0 { 0.0 } else { worst / scale.max(f64::MIN_POSITIVE) }
}
