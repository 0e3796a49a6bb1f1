//! Changed decisions, those first that the predicted noise explains least.

use karat_bundle::{Bundle, FlipRow};

/// At most `most` flips of a kind, the least expected first; without an expectation, the largest margin.
pub(crate) fn surprising<'a>(bundle: &'a Bundle, kind: &str, most: usize) -> Vec<&'a FlipRow> {
    let mut flips: Vec<&FlipRow> = bundle.flips.iter().filter(|f| f.kind == kind).collect();
    let chance = |f: &FlipRow| f.expected_probability.unwrap_or(1.0);
    flips.sort_by(|a, b| chance(a).total_cmp(&chance(b)).then(b.margin.total_cmp(&a.margin)));
    flips.truncate(most);
    flips
}
