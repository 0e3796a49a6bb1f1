//! How much of a fault is put in.

use std::collections::BTreeSet;
use std::sync::Arc;

use karat_seam::Tensor;

use crate::Edit;

/// How much of a fault is put in.
#[derive(Debug, Clone, PartialEq)]
pub enum Size {
    /// All of it.
    Whole,
    /// right + share (wrong - right), value by value where a fault edits numbers; see [`crate::Files::shrink`] for its files.
    Share(f32),
    /// Only rows that stand for these tokens: (sequence, position).
    Rows(Arc<BTreeSet<(u32, u32)>>),
}

impl Size {
    /// Makes an edit as small as this. `right`: what stood there before it.
    pub(crate) fn shrink(&self, edit: &mut Edit<'_>, right: &Tensor) {
        match self {
            Self::Whole => {}
            Self::Share(share) => edit.keep_share(right, *share),
            Self::Rows(rows) => edit.keep_rows(right, |row| rows.contains(&(row.seq, row.pos))),
        }
    }
}

/// right + share (wrong - right). What is no number on either side stays wrong: there is nothing between.
pub(crate) fn mixed(right: f32, wrong: f32, share: f32) -> f32 {
    if right.is_finite() && wrong.is_finite() { right + share * (wrong - right) } else { wrong }
}

/// `kept` of `n` indices, evenly spread.
pub(crate) fn spread(n: usize, kept: usize) -> BTreeSet<usize> {
    let kept = kept.min(n);
    (0..kept).map(|i| (2 * i + 1) * n / (2 * kept)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_lies_between_and_indices_are_spread() {
        assert_eq!(mixed(1.0, 3.0, 0.25), 1.5);
        assert_eq!(mixed(f32::NEG_INFINITY, f32::NEG_INFINITY, 0.5), f32::NEG_INFINITY);
        assert!(mixed(1.0, f32::NAN, 0.5).is_nan());
        assert_eq!(spread(8, 2), BTreeSet::from([2, 6]));
        assert_eq!(spread(5, 1), BTreeSet::from([2]));
        assert_eq!(spread(3, 9), BTreeSet::from([0, 1, 2]));
    }
}
