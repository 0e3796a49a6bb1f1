//! The positions worth a look: where the distribution is farthest from golden, and where layers err most.

use std::collections::{BTreeMap, BTreeSet};

use karat_bundle::{Bundle, TokenRow};

use super::Layer;
use super::heat::counts_entries;

/// Positions with the largest KL.
const BY_KL: usize = 20;
/// Positions in all.
const MOST: usize = 60;

/// One position of one sequence.
pub(crate) struct Place<'a> {
    /// Sequence.
    pub(crate) sequence: &'a str,
    /// Position.
    pub(crate) position: u64,
    /// Its logits, one row a patch set and history, the largest KL first.
    pub(crate) tokens: Vec<&'a TokenRow>,
    /// Changed experts and entries: (layer, kind, patch set) and how many.
    pub(crate) changed: BTreeMap<(&'a str, &'a str, &'a str), u64>,
}

impl Place<'_> {
    fn kl(&self) -> f64 {
        self.tokens.iter().map(|t| t.kl).fold(0.0, f64::max)
    }
}

/// The largest KL first.
pub(crate) fn places<'a>(bundle: &'a Bundle, layers: &[Layer<'a>]) -> Vec<Place<'a>> {
    let mut largest: BTreeMap<(&str, u64), f64> = BTreeMap::new();
    for token in &bundle.tokens {
        let kl = largest.entry((&token.sequence, token.position)).or_insert(0.0);
        *kl = if token.kl.is_nan() { f64::INFINITY } else { kl.max(token.kl) };
    }
    let mut by_kl: Vec<((&str, u64), f64)> = largest.into_iter().collect();
    by_kl.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut chosen: Vec<(&str, u64)> = by_kl.into_iter().take(BY_KL).map(|(place, _)| place).collect();
    for row in layers.iter().filter_map(Layer::worst).filter(|r| !counts_entries(r)) {
        if let Some(position) = row.max_abs_position
            && chosen.len() < MOST
            && !chosen.contains(&(row.sequence.as_str(), position))
        {
            chosen.push((&row.sequence, position));
        }
    }
    let keys: BTreeSet<(&str, u64)> = chosen.iter().copied().collect();
    let mut out: BTreeMap<(&str, u64), Place<'a>> = BTreeMap::new();
    for token in bundle.tokens.iter().filter(|t| keys.contains(&(t.sequence.as_str(), t.position))) {
        at(&mut out, &token.sequence, token.position).tokens.push(token);
    }
    for flip in bundle.flips.iter().filter(|f| f.kind != "argmax") {
        if keys.contains(&(flip.sequence.as_str(), flip.position)) {
            let place = at(&mut out, &flip.sequence, flip.position);
            *place.changed.entry((&flip.layer, &flip.kind, &flip.patch_set)).or_insert(0) += 1;
        }
    }
    let mut out: Vec<Place<'a>> = out.into_values().collect();
    out.iter_mut().for_each(|place| place.tokens.sort_by(|a, b| b.kl.total_cmp(&a.kl)));
    out.sort_by(|a, b| b.kl().total_cmp(&a.kl()).then((a.sequence, a.position).cmp(&(b.sequence, b.position))));
    out
}

fn at<'m, 'a>(
    places: &'m mut BTreeMap<(&'a str, u64), Place<'a>>,
    sequence: &'a str,
    position: u64,
) -> &'m mut Place<'a> {
    let empty = Place { sequence, position, tokens: Vec::new(), changed: BTreeMap::new() };
    places.entry((sequence, position)).or_insert(empty)
}
