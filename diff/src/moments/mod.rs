//! One-pass moments of a pair of tensors: golden x, candidate y, d = y - x.

mod core_set;
mod histogram;
mod kernel;
mod offenders;
mod simd;
mod sums;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use karat_seam::{Error, Result, Tensor};

pub use core_set::{CoreMeasured, CoreSums};
use histogram::Counts;
pub use histogram::Histogram;
pub use offenders::Offender;
use offenders::{Bar, Worst};
pub use sums::{At, Sums};
use tally::Tally;

use crate::sweep::{Kernel, Merge, sweep};
use crate::{Grid, Storage, Values, View};

/// Bias of an f64 exponent.
const BIAS: i32 = 1023;

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
    /// The worst pairs of values: the largest |d| first, then the first in place. As many as were asked for, and no
    /// pair of equal values.
    pub offenders: Vec<Offender>,
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
    measure_views(at, View::of(at, x)?, View::of(at, y)?, storage, 0, grid)
}

/// The same for tensors of any origin; and the `worst` pairs of values, if any are wanted.
pub fn measure_views(
    at: &str,
    x: View<'_>,
    y: View<'_>,
    storage: Storage,
    worst: usize,
    grid: &Grid,
) -> Result<Measured> {
    let pair = Pair::new(at, x, y, Format::of(storage), worst, grid)?;
    let swept = sweep(&Full(&pair), grid);
    let mut total = Moments::default();
    for row in &swept.rows {
        total.sums.merge(row);
    }
    let mut cells = BTreeMap::new();
    let mut offenders = Worst::default();
    for ((class, part), (sums, counts)) in swept.cells {
        let mut cell = Moments { sums, ..Moments::default() };
        cell.relative.counts.merge(&counts.relative);
        if pair.format.has_ulp {
            cell.ulp.counts.merge(&counts.ulp);
        }
        total.relative.merge(&cell.relative);
        total.ulp.merge(&cell.ulp);
        offenders.merge(&counts.offenders, worst);
        cells.insert(Cell { class, part }, cell);
    }
    Ok(Measured { total, rows: swept.rows, cells, offenders: offenders.into_vec() })
}

/// The core set alone, in less time: no rows, no histograms. Its numbers have the bits of [`Measured::cells`].
///
/// Errors: as [`measure`].
pub fn measure_core(at: &str, x: View<'_>, y: View<'_>, grid: &Grid) -> Result<CoreMeasured> {
    let pair = Pair::new(at, x, y, Format::of(Storage::F32), 0, grid)?;
    let swept = sweep(&Core(&pair), grid);
    let mut total = CoreSums::default();
    let mut cells = BTreeMap::new();
    for ((class, part), (sums, ())) in swept.cells {
        let sums = CoreSums::of(&sums);
        total.merge(&sums);
        cells.insert(Cell { class, part }, sums);
    }
    Ok(CoreMeasured { total, cells })
}

/// The storage format as the inner loop needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    mantissa: i32,
    min_exponent: i32,
    /// Smallest normal number.
    least_normal: f64,
    /// NaN where nothing can saturate.
    largest: f64,
    has_ulp: bool,
}

impl Format {
    fn of(storage: Storage) -> Self {
        // Without a spacing of its own f64's smallest normal number is the limit: what is below has no exponent.
        let (mantissa, min_exponent) = storage.spacing().unwrap_or((0, 1 - BIAS));
        let least_normal = f64::from_bits(((min_exponent + BIAS) as u64) << 52);
        let largest = storage.largest().unwrap_or(f64::NAN);
        Self { mantissa, min_exponent, least_normal, largest, has_ulp: storage.spacing().is_some() }
    }
}

/// Both sides, with what the inner loop needs to know.
pub(crate) struct Pair<'a> {
    x: Values<'a>,
    y: Values<'a>,
    width: usize,
    format: Format,
    bar: Bar,
}

impl<'a> Pair<'a> {
    fn new(at: &str, x: View<'a>, y: View<'a>, format: Format, worst: usize, grid: &Grid) -> Result<Self> {
        grid.check(at, x.shape)?;
        if x.shape != y.shape {
            return Err(Error::Shape { at: at.into(), expected: x.shape.to_vec(), found: y.shape.to_vec() });
        }
        let elements = grid.rows() * grid.width();
        if x.values.len() < elements || y.values.len() < elements {
            return Err(Error::Request(format!("{at}: fewer values than shape {:?} asks for", x.shape)));
        }
        Ok(Self { x: x.values, y: y.values, width: grid.width(), format, bar: Bar::new(worst) })
    }

    /// Coordinate of an element.
    fn at(&self, element: usize) -> At {
        At { row: (element / self.width) as u64, column: (element % self.width) as u64 }
    }

    fn elements(&self, row: usize, columns: &Range<usize>) -> Range<usize> {
        row * self.width + columns.start..row * self.width + columns.end
    }
}

impl Merge for Sums {
    fn merge(&mut self, later: &Self) {
        Sums::merge(self, later);
    }
}

/// What the histograms and the worst pairs of a cell come from.
#[derive(Clone, Default)]
pub(crate) struct Counted {
    relative: Counts,
    ulp: Counts,
    offenders: Worst,
    wanted: usize,
}

impl Merge for Counted {
    fn merge(&mut self, later: &Self) {
        self.relative.merge(&later.relative);
        self.ulp.merge(&later.ulp);
        self.offenders.merge(&later.offenders, later.wanted);
    }
}

/// Everything.
struct Full<'a, 'b>(&'a Pair<'b>);

impl Kernel for Full<'_, '_> {
    type Sums = Sums;
    type Tally = Tally;
    type Counts = Counted;
    const ROWS: bool = true;

    fn run(&self, row: usize, columns: Range<usize>, tally: &mut Tally) -> Sums {
        simd::pass::<true>(self.0, self.0.elements(row, &columns), tally)
    }

    fn settle(&self, mut tally: Tally) -> Counted {
        let offenders = std::mem::take(&mut tally.offenders);
        let (relative, ulp) = tally.settle(self.0.format);
        Counted { relative, ulp, offenders, wanted: self.0.bar.wanted() }
    }
}

/// The core set.
struct Core<'a, 'b>(&'a Pair<'b>);

impl Kernel for Core<'_, '_> {
    type Sums = Sums;
    type Tally = Tally;
    type Counts = ();
    const ROWS: bool = false;

    fn run(&self, row: usize, columns: Range<usize>, tally: &mut Tally) -> Sums {
        simd::pass::<false>(self.0, self.0.elements(row, &columns), tally)
    }

    fn settle(&self, _: Tally) {}
}
