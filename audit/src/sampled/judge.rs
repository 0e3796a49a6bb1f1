//! Whether KV rows are those of the conversation: the candidate's pages against what golden's cold run keeps.

use karat_diff::Claims;
use karat_diff::tolerance::F32_MAX_OVER_MAX;
use karat_seam::{Data, Recorder, RowId, Site, Tap};

use crate::align;

/// A row may be off by so many times the largest error that sampled rows of the layer inherit: others inherit other errors
/// (where an expert changed, over twenty times as much was seen).
const SPREAD: f64 = 32.0;
/// A row of another conversation, a stale one or zeros are off by about their own size or more: by this much no row is that
/// inherits, when a neighbour is off by as much; alone, by twice as much.
const LOST: f64 = 0.35;
/// Where sampled rows inherit this much, a lost row can't be told.
const BLIND: f64 = 0.25;
/// A row is many values: its format costs it no more than so many times what it costs on average.
const FORMATS: f64 = 2.0;

/// How far a row may be off, over the size of golden's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    /// Of a row with a neighbour that is off as well.
    pub(crate) beside: f64,
    /// Of a row between good ones.
    pub(crate) alone: f64,
    /// False where inherited errors could hide a lost row.
    pub(crate) is_told: bool,
}

/// One kind of rows of one layer and sequence.
#[derive(Debug, Clone)]
pub(crate) struct Judged {
    /// Its `state/` tap.
    pub(crate) tap: Tap,
    /// Rows compared.
    pub(crate) rows: usize,
    /// What is explained.
    pub(crate) limit: Limit,
    /// Rows beyond it, as (position or entry, distance), ascending.
    pub(crate) bad: Vec<(u32, f64)>,
    /// rel-L2 over all rows.
    pub(crate) rel_l2: f64,
    /// Of the rows, those that sampled rows made themselves, and how many of these are bad.
    pub(crate) made: usize,
    /// See `made`.
    pub(crate) made_bad: usize,
}

impl Judged {
    /// True where what makes the rows errs: of those that are made of sampled streams, most are bad.
    pub(crate) fn is_made_wrong(&self) -> bool {
        self.made_bad > 0 && 2 * self.made_bad > self.made
    }

    /// The worst row.
    pub(crate) fn worst(&self) -> Option<(u32, f64)> {
        self.bad.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Largest relative error that a sampled row of `tap` inherits: golden on the candidate's streams against golden on its own.
pub(crate) fn inherited(on_x: &Recorder, on_x2: &Recorder, (l, seq): (u16, u32), tap: Tap) -> f64 {
    let site = Site::layer(l, tap);
    let (Some(x), Some(x2)) = (on_x.get(site, seq), on_x2.get(site, seq)) else { return 0.0 };
    let rows: Vec<RowId> = align::common(&x.rows, &x2.rows);
    let (Some(a), Some(b)) = (align::gather(&x.rows, &x.tensor, &rows), align::gather(&x2.rows, &x2.tensor, &rows))
    else {
        return 0.0;
    };
    let (Data::F32(a), Data::F32(b)) = (&a.data, &b.data) else { return 0.0 };
    let width = x.tensor.width().max(1);
    a.chunks_exact(width).zip(b.chunks_exact(width)).map(|(a, b)| distance(b, a)).fold(0.0, f64::max)
}

/// Distance of a row that its format and what the layer inherits explain.
pub(crate) fn limit(claims: Claims, tap: Tap, inherited: f64) -> Limit {
    let own = match claims {
        // Of a tap's largest value; a row's own size is a few times less.
        Claims::F32 => 10.0 * F32_MAX_OVER_MAX,
        claims => FORMATS * claims.rounding(tap).rel_l2(),
    };
    let tail = SPREAD * inherited;
    let is_told = inherited <= BLIND;
    Limit { beside: own + tail.min(LOST), alone: own + tail.min(2.0 * LOST), is_told }
}

/// Compares rows; `names` are their positions or entries, ascending.
pub(crate) fn judge(tap: Tap, theirs: &[f32], ours: &[f32], names: &[u32], limit: Limit) -> Judged {
    let width = (ours.len() / names.len().max(1)).max(1);
    let (mut error, mut size) = (0.0, 0.0);
    let mut distances = Vec::with_capacity(names.len());
    for (theirs, ours) in theirs.chunks_exact(width).zip(ours.chunks_exact(width)) {
        distances.push(distance(theirs, ours));
        error += squares(theirs.iter().zip(ours).map(|(a, b)| f64::from(*a) - f64::from(*b)));
        size += squares(ours.iter().map(|b| f64::from(*b)));
    }
    // What is no number is no row of a conversation.
    let off = |i: usize, limit: f64| distances.get(i).is_some_and(|d| d.is_nan() || *d > limit);
    let next = |i: usize, j: usize| names.get(i).zip(names.get(j)).is_some_and(|(a, b)| a.abs_diff(*b) == 1);
    let bad = |i: &usize| {
        let beside = |j: usize| next(*i, j) && off(j, limit.beside);
        off(*i, limit.alone) || (off(*i, limit.beside) && (beside(*i + 1) || i.checked_sub(1).is_some_and(beside)))
    };
    let bad = (0..names.len()).filter(bad).map(|i| (names[i], distances[i])).collect();
    let rel_l2 = if error == 0.0 { 0.0 } else { (error / size).sqrt() };
    Judged { tap, rows: names.len(), limit, bad, rel_l2, made: 0, made_bad: 0 }
}

/// |theirs - ours| / |ours|.
fn distance(theirs: &[f32], ours: &[f32]) -> f64 {
    let error = squares(theirs.iter().zip(ours).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let size = squares(ours.iter().map(|b| f64::from(*b)));
    if error == 0.0 { 0.0 } else { (error / size).sqrt() }
}

fn squares(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|v| v * v).sum()
}

/// Ascending numbers as ranges, three at most: `512-575, 640`.
pub(crate) fn ranges(bad: &[(u32, f64)]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for (at, _) in bad {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *at => *last = *at,
            _ => runs.push((*at, *at)),
        }
    }
    let one = |(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    let mut text = runs.iter().take(3).map(one).collect::<Vec<_>>().join(", ");
    if runs.len() > 3 {
        text.push_str(&format!(" and {} more runs", runs.len() - 3));
    }
    text
}

#[cfg(test)]
mod tests;
