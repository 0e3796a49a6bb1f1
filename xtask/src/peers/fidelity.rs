//! Golden's logits and decisions against transformers': a fast pass that computes something else is worth nothing.

use std::collections::HashMap;
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
    /// Rows above 1e-5, and those of them with no near-tie that fell the other way at or before them.
    pub(super) far: usize,
    pub(super) unexplained: usize,
    /// Decisions compared, those that differ, and those of them that were no near-tie. A decision behind one that
    /// differs has other inputs and counts as its consequence.
    pub(super) decisions: usize,
    pub(super) flips: usize,
    pub(super) first_flips: usize,
    pub(super) largest_margin: f32,
}

/// Compares what two workers wrote about the first `n` tokens.
pub(super) fn compare(ours: &Path, theirs: &Path, n: usize) -> Result<Fidelity> {
    let (a, b) = (floats(ours)?, floats(theirs)?);
    if a.len() != b.len() || a.is_empty() || a.len() % n != 0 {
        bail!("{} and {} logits for {n} rows", a.len(), b.len());
    }
    let width = a.len() / n;
    let distances: Vec<f64> = a.chunks_exact(width).zip(b.chunks_exact(width)).map(|(x, y)| rel_l2(x, y)).collect();
    Ok(judge(&distances, &decisions(ours)?, &decisions(theirs)?))
}

/// Place and choice of a decision.
type Decisions = HashMap<[i32; 3], ([i32; 32], f32)>;

fn judge(distances: &[f64], ours: &Decisions, theirs: &Decisions) -> Fidelity {
    let mut out = Fidelity { rows: distances.len(), ..Fidelity::default() };
    let mut sorted = distances.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |q: f64| sorted[((sorted.len() - 1) as f64 * q).round() as usize];
    (out.p50, out.p999, out.max) = (at(0.5), at(0.999), at(1.0));
    // In the order of layers, the first decision that differs has a reason of its own; each behind it may be its echo.
    let mut flips: Vec<([i32; 3], f32)> = Vec::new();
    for (place, (choice, margin)) in theirs {
        let Some((other, _)) = ours.get(place) else { continue };
        out.decisions += 1;
        if choice != other {
            flips.push((*place, *margin));
        }
    }
    out.flips = flips.len();
    // A flip is the first of its kind if no flip in a lower layer, or before it in the same one, is at or before its row.
    let earlier = |a: &[i32; 3], b: &[i32; 3]| (a[0], a[1]) < (b[0], b[1]) && a[2] <= b[2];
    let firsts: Vec<&([i32; 3], f32)> =
        flips.iter().filter(|(p, _)| !flips.iter().any(|(q, _)| earlier(q, p))).collect();
    out.first_flips = firsts.len();
    out.largest_margin = firsts.iter().map(|(_, m)| *m).fold(0.0, f32::max);
    let first_tie = firsts.iter().filter(|(_, margin)| *margin < NEAR_TIE).map(|(p, _)| p[2]).min();
    for (row, _) in distances.iter().enumerate().filter(|(_, d)| d.is_nan() || **d > FAR) {
        out.far += 1;
        out.unexplained += usize::from(first_tie.is_none_or(|tie| (row as i32) < tie));
    }
    out
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
