//! One-pass moments of a pair of tensors: golden x, candidate y, d = y - x.

mod histogram;
mod kernel;
mod simd;
mod sums;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use karat_seam::{Data, Error, Result, Tensor};

pub use histogram::Histogram;
pub use sums::{At, Sums};

use crate::sweep::{Kernel, Merge, sweep};
use crate::{Grid, Storage};

/// Moments of a set of element pairs: what adds in order, and two histograms.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    /// Sums, extremes and counts.
    pub sums: Sums,
    /// log2 of `|d|/|x|`.
    pub relative: Histogram,
    /// log2 of `|d|` in units of the storage format's spacing at golden's value; empty for block-scaled formats.
    pub ulp: Histogram,
}

impl Default for Moments {
    fn default() -> Self {
        Self { sums: Sums::default(), relative: Histogram::relative(), ulp: Histogram::ulp() }
    }
}

impl Moments {
    /// Adds the moments of elements that come after these. Counts and histograms are exact in any order; sums are
    /// equal to last places only.
    pub fn merge(&mut self, later: &Self) {
        self.sums.merge(&later.sums);
        self.relative.merge(&later.relative);
        self.ulp.merge(&later.ulp);
    }
}

/// Which rows and columns a [`Moments`] covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// Class of the rows (0 when the grid has none).
    pub class: u32,
    /// Part of the row (0 when the grid has one).
    pub part: usize,
}

/// Result of [`measure`].
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Everything.
    pub total: Moments,
    /// Sums of each row.
    pub rows: Vec<Sums>,
    /// By class of row and part of row, in order. Only cells that hold an element.
    pub cells: BTreeMap<Cell, Moments>,
}

impl Measured {
    /// All rows of one part.
    pub fn part(&self, part: usize) -> Moments {
        self.joined(|cell| cell.part == part)
    }

    /// All parts of the rows of one class.
    pub fn class(&self, class: u32) -> Moments {
        self.joined(|cell| cell.class == class)
    }

    fn joined(&self, admits: impl Fn(&Cell) -> bool) -> Moments {
        let mut out = Moments::default();
        for (_, moments) in self.cells.iter().filter(|(cell, _)| admits(cell)) {
            out.merge(moments);
        }
        out
    }
}

/// Moments of golden's `x` against the candidate's `y`, both f32 or f64 and of the grid's size. `storage` is the
/// format in which the candidate stores this tensor. `at` names the tap in errors.
///
/// Errors: another shape than the grid's, different shapes, integer tensors (see [`crate::discrete`]).
pub fn measure(at: &str, x: &Tensor, y: &Tensor, storage: Storage, grid: &Grid) -> Result<Measured> {
    grid.check(at, x)?;
    if x.shape != y.shape {
        return Err(Error::Shape { at: at.into(), expected: x.shape.clone(), found: y.shape.clone() });
    }
    let format = Format::of(storage);
    match (&x.data, &y.data) {
        (Data::F32(x), Data::F32(y)) => Ok(run(&Pair { x, y, format }, grid)),
        (Data::F32(x), Data::F64(y)) => Ok(run(&Pair { x, y, format }, grid)),
        (Data::F64(x), Data::F32(y)) => Ok(run(&Pair { x, y, format }, grid)),
        (Data::F64(x), Data::F64(y)) => Ok(run(&Pair { x, y, format }, grid)),
        (Data::F32(_) | Data::F64(_), other) | (other, _) => {
            Err(Error::Dtype { at: at.into(), expected: "f32 or f64", found: other.dtype() })
        }
    }
}

/// An element that the pass can read.
pub(crate) trait Value: Copy + Sync {
    /// The value, exactly.
    fn wide(self) -> f64;
}

impl Value for f32 {
    #[inline]
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Value for f64 {
    #[inline]
    fn wide(self) -> f64 {
        self
    }
}

/// The storage format as the inner loop needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    mantissa: i32,
    min_exponent: i32,
    /// NaN where nothing can saturate.
    largest: f64,
    has_ulp: bool,
}

impl Format {
    fn of(storage: Storage) -> Self {
        let (mantissa, min_exponent) = storage.spacing().unwrap_or((0, 0));
        let largest = storage.largest().unwrap_or(f64::NAN);
        Self { mantissa, min_exponent, largest, has_ulp: storage.spacing().is_some() }
    }
}

struct Pair<'a, X, Y> {
    x: &'a [X],
    y: &'a [Y],
    format: Format,
}

#[derive(Clone, Default)]
pub(crate) struct Tally {
    relative: histogram::Counts,
    ulp: histogram::Counts,
}

impl Merge for Tally {
    fn merge(&mut self, later: &Self) {
        self.relative.merge(&later.relative);
        self.ulp.merge(&later.ulp);
    }
}

impl Merge for Sums {
    fn merge(&mut self, later: &Self) {
        Sums::merge(self, later);
    }
}

/// A pair with its row length.
struct Rows<'a, X, Y> {
    pair: &'a Pair<'a, X, Y>,
    width: usize,
}

impl<X: Value, Y: Value> Kernel for Rows<'_, X, Y> {
    type Sums = Sums;
    type Tally = Tally;

    fn run(&self, row: usize, columns: Range<usize>, tally: &mut Tally) -> Sums {
        let range = row * self.width + columns.start..row * self.width + columns.end;
        let mut sums = simd::pass(&self.pair.x[range.clone()], &self.pair.y[range], self.pair.format, tally);
        sums.max_abs_at = sums.max_abs_at.map(|at| At { row: row as u64, column: at.column + columns.start as u64 });
        sums
    }
}

fn run<X: Value, Y: Value>(pair: &Pair<'_, X, Y>, grid: &Grid) -> Measured {
    let swept = sweep(&Rows { pair, width: grid.width() }, grid);
    let mut total = Moments::default();
    for row in &swept.rows {
        total.sums.merge(row);
    }
    let mut cells = BTreeMap::new();
    for ((class, part), (sums, tally)) in swept.cells {
        let mut cell = Moments { sums, ..Moments::default() };
        cell.relative.counts.merge(&tally.relative);
        if pair.format.has_ulp {
            cell.ulp.counts.merge(&tally.ulp);
        }
        total.relative.merge(&cell.relative);
        total.ulp.merge(&cell.ulp);
        cells.insert(Cell { class, part }, cell);
    }
    Measured { total, rows: swept.rows, cells }
}
