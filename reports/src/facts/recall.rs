//! Answers: grids of context length by depth, strata of golden's margin, phases of the length.

use std::collections::BTreeMap;

use karat_bundle::judge::recall::{Bounds, bounds, candidate_is_right, counts, golden_is_right, paired, patch_sets};
use karat_bundle::{Bundle, RecallRow};

/// Answers of one field of a grid.
#[derive(Default)]
pub(crate) struct Group {
    /// Answers that count (no truncated ones).
    pub(crate) answers: u64,
    /// Golden's right ones.
    pub(crate) golden: u64,
    /// The candidate's right ones.
    pub(crate) candidate: u64,
}

impl Group {
    fn add(&mut self, row: &RecallRow) {
        self.answers += 1;
        self.golden += u64::from(golden_is_right(row));
        self.candidate += u64::from(candidate_is_right(row));
    }
}

/// One patch set.
pub(crate) struct RecallSet<'a> {
    /// The patch set.
    pub(crate) set: &'a str,
    /// Lost and gained against golden with 95 % bounds.
    pub(crate) bounds: Bounds,
    /// All answers.
    pub(crate) all: Group,
    /// By (context length, depth): [`LENGTHS`] by [`DEPTHS`].
    pub(crate) grid: BTreeMap<(usize, usize), Group>,
    /// By golden's margin.
    pub(crate) strata: BTreeMap<&'a str, Group>,
    /// By context length modulo 4, 128, 256 and 8192: (modulus, phase in quarters of it).
    pub(crate) phases: BTreeMap<(usize, u64), Group>,
    /// How answers look.
    pub(crate) symptoms: BTreeMap<&'a str, u64>,
    /// Lost answers, those first that golden held best.
    pub(crate) lost: Vec<&'a RecallRow>,
}

/// Context lengths: the first token count that is no longer in the bucket.
pub(crate) const LENGTHS: [(&str, u64); 5] =
    [("under 1k", 1024), ("1k to 4k", 4096), ("4k to 12k", 12_288), ("12k to 24k", 24_576), ("24k and more", u64::MAX)];
/// Depths: names of quarters, and a last one for facts that were told in no one place.
pub(crate) const DEPTHS: [&str; 5] = ["first quarter", "second", "third", "last quarter", "no one place"];
/// What context length is taken modulo of in `length_phase`.
pub(crate) const MODULI: [u64; 4] = [4, 128, 256, 8192];

/// One entry a patch set.
pub(crate) fn recall(bundle: &Bundle) -> Vec<RecallSet<'_>> {
    patch_sets(&bundle.recall).into_iter().map(|set| of_set(bundle, set)).collect()
}

fn of_set<'a>(bundle: &'a Bundle, set: &'a str) -> RecallSet<'a> {
    let rows: Vec<&RecallRow> = bundle.recall.iter().filter(|r| r.patch_set == set).collect();
    let mut out = RecallSet {
        set,
        bounds: bounds(&paired(rows.iter().copied())),
        all: Group::default(),
        grid: BTreeMap::new(),
        strata: BTreeMap::new(),
        phases: BTreeMap::new(),
        symptoms: BTreeMap::new(),
        lost: Vec::new(),
    };
    for row in rows {
        *out.symptoms.entry(&row.symptom).or_default() += 1;
        if !counts(row) {
            continue;
        }
        out.all.add(row);
        out.grid.entry((length(row), depth(row))).or_default().add(row);
        out.strata.entry(&row.margin_stratum).or_default().add(row);
        for (i, phase) in row.length_phase.split('|').filter_map(|p| p.parse::<u64>().ok()).take(4).enumerate() {
            out.phases.entry((i, (4 * phase / MODULI[i]).min(3))).or_default().add(row);
        }
        if golden_is_right(row) && !candidate_is_right(row) {
            out.lost.push(row);
        }
    }
    out.lost.sort_by(|a, b| b.worst_margin_golden.total_cmp(&a.worst_margin_golden));
    out
}

fn length(row: &RecallRow) -> usize {
    LENGTHS.iter().position(|(_, end)| row.context_tokens < *end).unwrap_or(LENGTHS.len() - 1)
}

fn depth(row: &RecallRow) -> usize {
    row.depth.map_or(DEPTHS.len() - 1, |d| ((4.0 * d) as usize).min(3))
}
