//! Golden's logits and decisions against transformers': a fast pass that computes something else is worth nothing.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// A row of logits that is further away needs a reason.
const FAR: f64 = 1e-5;
/// A decision whose lead is smaller than this, of the row's largest score, may fall either way.
const NEAR_TIE: f32 = 1e-5;
/// Words of a decision: layer, kind, row, margin, 32 choices.
const WORDS: usize = 36;

/// What was found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Fidelity {
    /// rel-L2 of rows of logits: median, 99.9th percentile, largest.
    pub(super) p50: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
    pub(super) rows: usize,
    /// Rows above 1e-5, and those of them that no near-tie explains: none fell the other way at or before them, or they
    /// are as far with the peer's decisions forced on golden.
    pub(super) far: usize,
    pub(super) unexplained: usize,
    /// With the peer's decisions forced on golden: rows above 1e-5, and the largest.
    pub(super) far_forced: usize,
    pub(super) max_forced: f64,
    /// Decisions compared, and those that differ. A decision behind one that differs has other inputs and counts as its
    /// consequence; of the first ones: how many, how many were no near-ties, and the largest margin.
    pub(super) decisions: usize,
    pub(super) flips: usize,
    pub(super) first_flips: usize,
    pub(super) no_ties: usize,
    pub(super) largest_margin: f32,
}

/// Compares what two workers wrote about the first `n` tokens; `forced` is golden's with the peer's decisions.
pub(super) fn compare(ours: &Path, forced: &Path, theirs: &Path, n: usize) -> Result<Fidelity> {
    let peer = floats(theirs)?;
    let apart = |stem: &Path| -> Result<Vec<f64>> {
        let own = floats(stem)?;
        if own.len() != peer.len() || peer.is_empty() || !peer.len().is_multiple_of(n) {
            bail!("{} and {} logits for {n} rows", own.len(), peer.len());
        }
        let width = peer.len() / n;
        Ok(own.chunks_exact(width).zip(peer.chunks_exact(width)).map(|(x, y)| rel_l2(x, y)).collect())
    };
    Ok(judge(&apart(ours)?, &apart(forced)?, &decisions(ours)?, &decisions(theirs)?))
}

/// Place (layer, kind, row) and choice of a decision.
type Decisions = HashMap<[i32; 3], ([i32; 32], f32)>;

fn is_far(distance: f64) -> bool {
    distance.is_nan() || distance > FAR
}

fn judge(distances: &[f64], forced: &[f64], ours: &Decisions, theirs: &Decisions) -> Fidelity {
    let mut out = Fidelity { rows: distances.len(), ..Fidelity::default() };
    let mut sorted = distances.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |q: f64| sorted[((sorted.len() - 1) as f64 * q).round() as usize];
    (out.p50, out.p999, out.max) = (at(0.5), at(0.999), at(1.0));
    let mut flips: Vec<([i32; 3], f32)> = Vec::new();
    for (place, (choice, margin)) in theirs {
        let Some((other, _)) = ours.get(place) else { continue };
        out.decisions += 1;
        if choice != other {
            flips.push((*place, *margin));
        }
    }
    out.flips = flips.len();
    let firsts = first(flips);
    out.first_flips = firsts.len();
    out.no_ties = firsts.iter().filter(|(_, margin)| *margin >= NEAR_TIE).count();
    out.largest_margin = firsts.iter().map(|(_, m)| *m).fold(0.0, f32::max);
    let first_tie = firsts.iter().filter(|(_, margin)| *margin < NEAR_TIE).map(|(p, _)| p[2]).min();
    for (row, (_, forced)) in distances.iter().zip(forced).enumerate().filter(|(_, (d, _))| is_far(**d)) {
        out.far += 1;
        let has_cause = first_tie.is_some_and(|tie| tie <= row as i32);
        out.unexplained += usize::from(!has_cause || is_far(*forced));
    }
    out.far_forced = forced.iter().filter(|d| is_far(**d)).count();
    out.max_forced = forced.iter().copied().fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a });
    out
}

/// The flips that no other explains. What a row decides in a layer reaches itself in the same layer (entries before
/// experts), and every row from it on in the layers above.
fn first(mut flips: Vec<([i32; 3], f32)>) -> Vec<([i32; 3], f32)> {
    flips.sort_by_key(|(place, _)| *place);
    let (mut below, mut layer, mut lowest) = (i32::MAX, i32::MIN, i32::MAX);
    let mut entries: HashSet<i32> = HashSet::new();
    flips.retain(|([l, kind, row], _)| {
        if *l != layer {
            (below, layer) = (below.min(lowest), *l);
            (lowest, entries) = (i32::MAX, HashSet::new());
        }
        lowest = lowest.min(*row);
        if *kind == 0 {
            entries.insert(*row);
        }
        *row < below && (*kind == 0 || !entries.contains(row))
    });
    flips
}

fn rel_l2(x: &[f32], y: &[f32]) -> f64 {
    let sum = |f: &dyn Fn(f64, f64) -> f64| x.iter().zip(y).map(|(&a, &b)| f(f64::from(a), f64::from(b))).sum::<f64>();
    (sum(&|a, b| (a - b) * (a - b)) / sum(&|_, b| b * b)).sqrt()
}

fn words(stem: &Path, end: &str) -> Result<Vec<[u8; 4]>> {
    let path = stem.with_extension(end);
    let bytes = std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
    Ok(bytes.as_chunks::<4>().0.to_vec())
}

fn floats(stem: &Path) -> Result<Vec<f32>> {
    Ok(words(stem, "logits")?.into_iter().map(f32::from_le_bytes).collect())
}

fn decisions(stem: &Path) -> Result<Decisions> {
    let words = words(stem, "choices")?;
    let read = |record: &[[u8; 4]; WORDS]| {
        let int = |i: usize| i32::from_le_bytes(record[i]);
        ([int(0), int(1), int(2)], (std::array::from_fn(|i| int(i + 4)), f32::from_le_bytes(record[3])))
    };
    Ok(words.as_chunks::<WORDS>().0.iter().map(read).collect())
}

#[cfg(test)]
mod tests;
