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
    /// Integer counts that don't; kept per cell only.
    type Tally: Merge;

    /// Visits `columns` of `row` in ascending order.
    fn run(&self, row: usize, columns: Range<usize>, tally: &mut Self::Tally) -> Self::Sums;
}

/// Result of a sweep.
pub(crate) struct Swept<S, T> {
    /// One entry a row.
    pub(crate) rows: Vec<S>,
    /// By (class of row, part of row).
    pub(crate) cells: BTreeMap<(u32, usize), (S, T)>,
}

/// One item's result: sums by row, sums and tally by part.
struct Done<S, T> {
    rows: Vec<S>,
    parts: Vec<(usize, S, T)>,
}

pub(crate) fn sweep<K: Kernel>(kernel: &K, grid: &Grid) -> Swept<K::Sums, K::Tally> {
    let items = grid.items();
    let done: Vec<Done<K::Sums, K::Tally>> = items.par_iter().map(|item| work(kernel, grid, item)).collect();
    let mut rows = vec![K::Sums::default(); grid.rows()];
    let mut cells: BTreeMap<(u32, usize), (K::Sums, K::Tally)> = BTreeMap::new();
    for (item, done) in items.iter().zip(done) {
        for (row, sums) in item.rows.clone().zip(&done.rows) {
            rows[row].merge(sums);
        }
        for (part, sums, tally) in &done.parts {
            let cell = cells.entry((item.class, *part)).or_default();
            cell.0.merge(sums);
            cell.1.merge(tally);
        }
    }
    Swept { rows, cells }
}

fn work<K: Kernel>(kernel: &K, grid: &Grid, item: &Item) -> Done<K::Sums, K::Tally> {
    if let Some((part, columns)) = &item.piece {
        let mut tally = K::Tally::default();
        let sums = kernel.run(item.rows.start, columns.clone(), &mut tally);
        return Done { rows: vec![sums.clone()], parts: vec![(*part, sums, tally)] };
    }
    let mut rows = Vec::with_capacity(item.rows.len());
    let mut parts: Vec<(usize, K::Sums, K::Tally)> =
        (0..grid.part_count()).map(|p| (p, K::Sums::default(), K::Tally::default())).collect();
    for row in item.rows.clone() {
        let mut whole = K::Sums::default();
        for (part, sums, tally) in &mut parts {
            let piece = kernel.run(row, grid.part_columns(*part), tally);
            sums.merge(&piece);
            whole.merge(&piece);
        }
        rows.push(whole);
    }
    Done { rows, parts }
}
