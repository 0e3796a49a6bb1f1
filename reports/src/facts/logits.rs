//! The ladder of patch sets: how far from golden the next-token distribution is.

use std::collections::BTreeMap;

use karat_bundle::{Bundle, TokenRow};

use crate::number::quantile;

/// One patch set.
pub(crate) struct Rung<'a> {
    /// The patch set.
    pub(crate) set: &'a str,
    /// Positions.
    pub(crate) positions: u64,
    /// Mean KL(golden || candidate), nats.
    pub(crate) mean: f64,
    /// Nearest-rank quantiles of KL: a half, 90 %, 99 %, all.
    pub(crate) quantiles: [f64; 4],
    /// Positions whose most likely id changed.
    pub(crate) flips: u64,
    /// Sum of the chances that the predicted noise changes it, where all are known.
    pub(crate) expected: Option<f64>,
}

/// The shares of [`Rung::quantiles`].
pub(crate) const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 1.0];

/// What the columns of a table of [`Rung`]s are called.
pub(crate) const RUNG_HEADS: [&str; 9] =
    ["patch set", "positions", "mean KL", "median", "90 %", "99 %", "largest", "top ids changed", "expected by noise"];

/// Patch sets in table order.
pub(crate) fn ladder(bundle: &Bundle) -> Vec<Rung<'_>> {
    let mut sets: BTreeMap<(usize, &str), Vec<&TokenRow>> = BTreeMap::new();
    let places: BTreeMap<&str, usize> = sets_in_order(bundle);
    for token in &bundle.tokens {
        let place = places.get(token.patch_set.as_str()).copied().unwrap_or(usize::MAX);
        sets.entry((place, &token.patch_set)).or_default().push(token);
    }
    sets.into_iter().map(|((_, set), tokens)| rung(set, &tokens)).collect()
}

fn sets_in_order(bundle: &Bundle) -> BTreeMap<&str, usize> {
    bundle.run.candidate.patch_sets.iter().enumerate().map(|(i, set)| (set.as_str(), i)).collect()
}

fn rung<'a>(set: &'a str, tokens: &[&TokenRow]) -> Rung<'a> {
    let mut kl: Vec<f64> = tokens.iter().map(|t| t.kl).collect();
    let mean = kl.iter().sum::<f64>() / kl.len() as f64;
    kl.sort_by(f64::total_cmp);
    Rung {
        set,
        positions: tokens.len() as u64,
        mean,
        quantiles: SHARES.map(|p| quantile(&kl, p).unwrap_or(f64::NAN)),
        flips: tokens.iter().filter(|t| t.top1_golden != t.top1_candidate).count() as u64,
        expected: tokens.iter().map(|t| t.expected_flip_probability).sum(),
    }
}
