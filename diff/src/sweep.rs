//! Runs a kernel over a grid in parallel and folds the results in row order: same bits for every thread count.

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;

use crate::Grid;
use crate::grid::Item;

/// What can be joined with the same thing from later elements.
pub(crate) trait Merge: Default + Clone + Send {
    /// Adds what comes after `self`.
    fn merge(&mut self, later: &Self);
}

/// The work on one run of elements of one row.
pub(crate) trait Kernel: Sync {
    /// Sums that depend on order; kept per row and per cell.
    type Sums: Merge;
    /// What one unit of work counts with; never merged, so it may be laid out for speed.
    type Tally: Default;
    /// Counts that don't depend on order; kept per cell only.
    type Counts: Merge;
    /// Whether the sums of each row are wanted.
    const ROWS: bool;

    /// Visits `columns` of `row` in ascending order.
    fn run(&self, row: usize, columns: Range<usize>, tally: &mut Self::Tally) -> Self::Sums;

    /// The counts of one unit of work.
    fn settle(&self, tally: Self::Tally) -> Self::Counts;
}

/// Result of a sweep.
pub(crate) struct Swept<S, C> {
    /// One entry a row; none where the kernel doesn't want them.
    pub(crate) rows: Vec<S>,
    /// By (class of row, part of row).
    pub(crate) cells: BTreeMap<(u32, usize), (S, C)>,
}

/// One item's result by part.
type Parts<S, C> = Vec<(usize, S, C)>;

pub(crate) fn sweep<K: Kernel>(kernel: &K, grid: &Grid) -> Swept<K::Sums, K::Counts> {
    let items = grid.items();
    let mut rows = vec![K::Sums::default(); if K::ROWS { grid.rows() } else { 0 }];
    // Each item of whole rows writes its own.
    let mut open = rows.as_mut_slice();
    let mut jobs: Vec<(&Item, &mut [K::Sums])> = Vec::with_capacity(items.len());
    for item in &items {
        let own = if K::ROWS && item.piece.is_none() { item.rows.len() } else { 0 };
        let (mine, rest) = std::mem::take(&mut open).split_at_mut(own);
        jobs.push((item, mine));
        open = rest;
    }
    let done: Vec<Parts<K::Sums, K::Counts>> =
        jobs.into_par_iter().map(|(item, rows)| work(kernel, grid, item, rows)).collect();
    let mut cells: BTreeMap<(u32, usize), (K::Sums, K::Counts)> = BTreeMap::new();
    for (item, done) in items.iter().zip(done) {
        for (part, sums, counts) in &done {
            if K::ROWS && item.piece.is_some() {
                rows[item.rows.start].merge(sums);
            }
            let cell = cells.entry((item.class, *part)).or_default();
            cell.0.merge(sums);
            cell.1.merge(counts);
        }
    }
    Swept { rows, cells }
}

fn work<K: Kernel>(kernel: &K, grid: &Grid, item: &Item, rows: &mut [K::Sums]) -> Parts<K::Sums, K::Counts> {
    if let Some((part, columns)) = &item.piece {
        let mut tally = K::Tally::default();
        let sums = kernel.run(item.rows.start, columns.clone(), &mut tally);
        return vec![(*part, sums, kernel.settle(tally))];
    }
    let mut parts: Vec<(K::Sums, K::Tally)> =
        (0..grid.part_count()).map(|_| (K::Sums::default(), K::Tally::default())).collect();
    for (i, row) in item.rows.clone().enumerate() {
        for (part, (sums, tally)) in parts.iter_mut().enumerate() {
            let piece = kernel.run(row, grid.part_columns(part), tally);
            sums.merge(&piece);
            if let Some(whole) = rows.get_mut(i) {
                whole.merge(&piece);
            }
        }
    }
    parts.into_iter().enumerate().map(|(part, (sums, tally))| (part, sums, kernel.settle(tally))).collect()
}
