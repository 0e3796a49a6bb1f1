//! Metrics of tokens.csv.

use std::collections::BTreeMap;

use super::Sample;
use crate::TokenRow;
use crate::judge::stats;
use crate::policy::{Limit, Metric};

/// Positions of one block. Neighbours are correlated, so the spread is taken between blocks of consecutive positions.
const BLOCK: usize = 32;
/// A spread needs so many blocks: short runs have smaller ones.
const BLOCKS: usize = 8;

/// The metric of a patch set over the rows that the limit selects; `None` where there are none.
pub(super) fn value(rows: &[TokenRow], limit: &Limit, set: &str) -> Option<Sample> {
    let key = |r: &TokenRow| (r.scenario.clone(), r.sequence.clone(), r.position);
    let is_flip = |r: &TokenRow| f64::from(u8::from(r.top1_golden != r.top1_candidate));
    let of_set = rows.iter().filter(|r| r.patch_set == set && limit.on.fits_token(r));
    let pairs = matches!(limit.metric, Metric::AddedKl | Metric::AddedFlips);
    let stock: BTreeMap<_, &TokenRow> = match pairs {
        true => rows.iter().filter(|r| r.patch_set == "stock").map(|r| (key(r), r)).collect(),
        false => BTreeMap::new(),
    };
    let one = |r: &TokenRow| match limit.metric {
        Metric::AddedKl => Some(r.kl - stock.get(&key(r))?.kl),
        Metric::AddedFlips => Some(is_flip(r) - is_flip(stock.get(&key(r))?)),
        Metric::Flips => Some(is_flip(r)),
        Metric::FlipsBeyondExpected => Some(is_flip(r) - r.expected_flip_probability?),
        _ => Some(r.kl),
    };
    let mut sequences: Vec<((&str, &str), Vec<f64>)> = Vec::new();
    let mut values: Vec<(f64, &TokenRow)> = Vec::new();
    for row in of_set {
        let Some(v) = one(row) else { continue };
        values.push((v, row));
        let name = (row.scenario.as_str(), row.sequence.as_str());
        match sequences.last_mut().filter(|(last, _)| *last == name) {
            Some((_, all)) => all.push(v),
            None => sequences.push((name, vec![v])),
        }
    }
    if values.is_empty() {
        return None;
    }
    if matches!(limit.metric, Metric::KlP99 | Metric::KlMax) {
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let share = if limit.metric == Metric::KlMax { 1.0 } else { 0.99 };
        let at = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len()) - 1;
        // NaN sorts last: it is the largest.
        let (value, row) = if values.iter().any(|v| v.0.is_nan()) { values[values.len() - 1] } else { values[at] };
        let place = format!("{}, position {}", row.sequence, row.position);
        return Some(Sample::exact(value, values.len() as u64, place));
    }
    let sequences: Vec<Vec<f64>> = sequences.into_iter().map(|(_, all)| all).collect();
    Some(mean(&sequences, limit.bound()))
}

/// A mean over positions against a bound: blocks are the units (ratio estimator, Student t).
pub(super) fn mean(sequences: &[Vec<f64>], bound: f64) -> Sample {
    let n: usize = sequences.iter().map(Vec::len).sum();
    let size = if n >= BLOCK * BLOCKS { BLOCK } else { (n / BLOCKS).max(1) };
    let total: f64 = sequences.iter().flatten().sum();
    let value = total / n as f64;
    let exact = Sample::exact(value, n as u64, String::new());
    if n < 2 || value.is_nan() {
        return exact;
    }
    let blocks: Vec<&[f64]> = sequences.iter().flat_map(|s| s.chunks(size)).collect();
    let k = blocks.len() as f64;
    let squares: f64 = blocks.iter().map(|b| (b.iter().sum::<f64>() - value * b.len() as f64).powi(2)).sum();
    let (error, degrees) = ((squares * k / (k - 1.0)).sqrt() / n as f64, k - 1.0);
    let p = match error > 0.0 {
        true => stats::student_tail((value - bound) / error, degrees),
        false => f64::from(u8::from(value <= bound)),
    };
    let upper = value + error * stats::student_quantile(0.05, degrees);
    Sample { upper: Some(upper), p: Some(p), spread: Some((error, degrees)), ..exact }
}
