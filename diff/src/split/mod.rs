//! total = inherited + injected, in one pass over three tensors.
//!
//! With a = R(x), b = R(x'), c = C(x'): T = c - a (total), H = b - a (inherited: golden's own answer to the error that
//! came in), J = c - b (injected: what this layer added). T = H + J holds elementwise; norms do not add, so the cross
//! term ⟨H,J⟩ is kept: ‖T‖² = ‖H‖² + ‖J‖² + 2⟨H,J⟩.

mod kernel;
mod simd;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use karat_seam::{Data, Error, Result, Tensor};

use crate::sweep::{Kernel, Merge, sweep};
use crate::values::Element;
use crate::{Cell, Grid, Sums};

/// Squared norms of a run of elements. Triples with a value that is not finite are counted and left out; three `-inf`
/// (a masked score) are `masked`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SplitSums {
    /// Triples seen.
    pub n: u64,
    /// Triples of three `-inf`.
    pub masked: u64,
    /// Triples with a value that is not finite, masked ones apart.
    pub nonfinite: u64,
    /// ‖R(x)‖².
    pub golden2: f64,
    /// ‖T‖².
    pub total2: f64,
    /// ‖H‖².
    pub inherited2: f64,
    /// ‖J‖².
    pub injected2: f64,
    /// ⟨H,J⟩.
    pub cross: f64,
}

impl SplitSums {
    /// ‖T‖; NaN when a triple is not finite (so are the next three).
    pub fn total(&self) -> f64 {
        self.guard(self.total2.sqrt())
    }

    /// ‖H‖.
    pub fn inherited(&self) -> f64 {
        self.guard(self.inherited2.sqrt())
    }

    /// ‖J‖.
    pub fn injected(&self) -> f64 {
        self.guard(self.injected2.sqrt())
    }

    /// ‖R(x)‖: what the other three are relative to.
    pub fn golden(&self) -> f64 {
        self.guard(self.golden2.sqrt())
    }

    /// |‖T‖² - (‖H‖² + ‖J‖² + 2⟨H,J⟩)| over the largest of them: how well the split closes (about 1e-15).
    pub fn closure(&self) -> f64 {
        let parts = [self.total2, self.inherited2, self.injected2, 2.0 * self.cross.abs()];
        let scale = parts.iter().fold(0.0, |a: f64, &b| a.max(b));
        if scale == 0.0 {
            return 0.0;
        }
        (self.total2 - (self.inherited2 + self.injected2 + 2.0 * self.cross)).abs() / scale
    }

    /// ‖H‖/‖x'-x‖: how much the layer amplifies the error that enters it. `input` are the moments of x against x'.
    /// `None` when nothing came in.
    pub fn amplification(&self, input: &Sums) -> Option<f64> {
        if input.nonfinite() > 0 {
            return Some(f64::NAN);
        }
        (input.dd > 0.0).then(|| self.inherited() / input.dd.sqrt())
    }

    /// Adds the sums of elements that come after these.
    pub fn merge(&mut self, later: &Self) {
        self.n += later.n;
        self.masked += later.masked;
        self.nonfinite += later.nonfinite;
        self.golden2 += later.golden2;
        self.total2 += later.total2;
        self.inherited2 += later.inherited2;
        self.injected2 += later.injected2;
        self.cross += later.cross;
    }

    fn guard(&self, value: f64) -> f64 {
        if self.nonfinite > 0 { f64::NAN } else { value }
    }
}

impl Merge for SplitSums {
    fn merge(&mut self, later: &Self) {
        SplitSums::merge(self, later);
    }
}

/// Result of [`split()`].
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// Everything.
    pub whole: SplitSums,
    /// Each row.
    pub rows: Vec<SplitSums>,
    /// By class of row and part of row (stream). Only cells that hold an element.
    pub cells: BTreeMap<Cell, SplitSums>,
}

impl Split {
    /// All rows of one part (stream).
    pub fn part(&self, part: usize) -> SplitSums {
        self.joined(|cell| cell.part == part)
    }

    /// All parts of the rows of one class.
    pub fn class(&self, class: u32) -> SplitSums {
        self.joined(|cell| cell.class == class)
    }

    fn joined(&self, admits: impl Fn(&Cell) -> bool) -> SplitSums {
        let mut out = SplitSums::default();
        for (_, sums) in self.cells.iter().filter(|(cell, _)| admits(cell)) {
            out.merge(sums);
        }
        out
    }
}

/// Splits the candidate's error at one tap. All three tensors have one shape and are all f32 or all f64. For streams
/// `[S,hc,D]` give `Grid::of(..).equal_parts(hc)`.
///
/// Errors: another shape than the grid's, different shapes or element types, integer tensors.
pub fn split(at: &str, golden: &Tensor, golden_on_x2: &Tensor, candidate_on_x2: &Tensor, grid: &Grid) -> Result<Split> {
    grid.check(at, &golden.shape)?;
    for other in [golden_on_x2, candidate_on_x2] {
        if other.shape != golden.shape {
            return Err(Error::Shape { at: at.into(), expected: golden.shape.clone(), found: other.shape.clone() });
        }
    }
    match (&golden.data, &golden_on_x2.data, &candidate_on_x2.data) {
        (Data::F32(a), Data::F32(b), Data::F32(c)) => Ok(run(&Triple { a, b, c, width: grid.width() }, grid)),
        (Data::F64(a), Data::F64(b), Data::F64(c)) => Ok(run(&Triple { a, b, c, width: grid.width() }, grid)),
        (a, b, c) => {
            let is_float = |d: &&Data| matches!(d, Data::F32(_) | Data::F64(_));
            let found = [b, c, a].into_iter().find(|d| !is_float(d) || d.dtype() != a.dtype());
            Err(Error::Dtype { at: at.into(), expected: "f32 or f64, three alike", found: found.unwrap_or(a).dtype() })
        }
    }
}

struct Triple<'a, V> {
    a: &'a [V],
    b: &'a [V],
    c: &'a [V],
    width: usize,
}

impl<E: Element> Kernel for Triple<'_, E> {
    type Sums = SplitSums;
    type Tally = ();
    type Counts = ();
    const ROWS: bool = true;

    fn run(&self, row: usize, columns: Range<usize>, (): &mut ()) -> SplitSums {
        let range = row * self.width + columns.start..row * self.width + columns.end;
        simd::pass(&self.a[range.clone()], &self.b[range.clone()], &self.c[range])
    }

    fn settle(&self, (): ()) {}
}

impl Merge for () {
    fn merge(&mut self, (): &Self) {}
}

fn run<E: Element>(triple: &Triple<'_, E>, grid: &Grid) -> Split {
    let swept = sweep(triple, grid);
    let mut whole = SplitSums::default();
    for row in &swept.rows {
        whole.merge(row);
    }
    let cells = swept.cells.into_iter().map(|((class, part), (sums, ()))| (Cell { class, part }, sums)).collect();
    Split { whole, rows: swept.rows, cells }
}
