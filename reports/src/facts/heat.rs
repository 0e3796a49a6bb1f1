//! Layer by position: where decisions changed, and where each layer's largest error lies.

use std::collections::BTreeMap;

use karat_bundle::{Bundle, TapRow};

use super::Layer;

/// Columns of the map at most.
const COLUMNS: u64 = 64;

/// The map.
pub(crate) struct Heat<'a> {
    /// Layers from first to last.
    pub(crate) layers: Vec<&'a str>,
    /// Positions in a column.
    pub(crate) step: u64,
    /// Columns.
    pub(crate) columns: u64,
    /// Changed experts and entries by (layer, column), over all sequences, under `set`.
    pub(crate) changed: BTreeMap<(usize, u64), u64>,
    /// The same by layer and kind of decision.
    pub(crate) by_kind: BTreeMap<(usize, &'a str), u64>,
    /// The tap of each layer with the largest error over its tolerance: layer and row.
    pub(crate) worst: Vec<(usize, &'a TapRow)>,
    /// Patch set of the changed decisions.
    pub(crate) set: &'a str,
}

impl Heat<'_> {
    /// The most changed decisions in one field.
    pub(crate) fn most(&self) -> u64 {
        self.changed.values().copied().max().unwrap_or(0)
    }
}

/// Nothing where no position is known.
pub(crate) fn heat<'a>(bundle: &'a Bundle, layers: &[Layer<'a>], set: Option<&'a str>) -> Option<Heat<'a>> {
    let set = set?;
    let last = bundle.tokens.iter().map(|t| t.position).chain(bundle.flips.iter().map(|f| f.position)).max()?;
    let step = (last + 1).div_ceil(COLUMNS);
    let names: Vec<&str> = layers.iter().map(|l| l.name).collect();
    let index: BTreeMap<&str, usize> = names.iter().enumerate().map(|(i, n)| (*n, i)).collect();
    let (mut changed, mut by_kind) = (BTreeMap::new(), BTreeMap::new());
    for flip in bundle.flips.iter().filter(|f| f.kind != "argmax" && f.patch_set == set) {
        if let Some(layer) = index.get(flip.layer.as_str()) {
            *changed.entry((*layer, flip.position / step)).or_insert(0) += 1;
            *by_kind.entry((*layer, flip.kind.as_str())).or_insert(0) += 1;
        }
    }
    let worst = layers.iter().enumerate().filter_map(|(i, l)| Some((i, l.worst()?)));
    let worst: Vec<(usize, &TapRow)> =
        worst.filter(|(_, r)| !counts_entries(r) && r.max_abs_position.is_some_and(|p| p <= last)).collect();
    if changed.is_empty() && worst.is_empty() {
        return None;
    }
    Some(Heat { layers: names, step, columns: (last + 1).div_ceil(step), changed, by_kind, worst, set })
}

/// True where `max_abs_position` counts compressed entries, not tokens.
pub(crate) fn counts_entries(row: &TapRow) -> bool {
    matches!(row.tap.as_str(), "attn.ckv" | "attn.index_k") || row.tap.starts_with("state/")
}
