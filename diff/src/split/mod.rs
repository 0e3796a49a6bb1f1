//! total = inherited + injected, in one pass over three tensors.
//!
//! With a = R(x), b = R(x'), c = C(x'): T = c - a (total), H = b - a (inherited: golden's own answer to the error that
//! came in), J = c - b (injected: what this layer added). T = H + J holds elementwise; norms do not add, so the cross
//! term ⟨H,J⟩ is kept: ‖T‖² = ‖H‖² + ‖J‖² + 2⟨H,J⟩.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use karat_seam::{Data, Error, Result, Tensor};

use crate::moments::Value;
use crate::sweep::{Kernel, Merge, sweep};
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
    grid.check(at, golden)?;
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

const LANES: usize = 8;

impl<V: Value> Kernel for Triple<'_, V> {
    type Sums = SplitSums;
    type Tally = ();

    fn run(&self, row: usize, columns: Range<usize>, (): &mut ()) -> SplitSums {
        let range = row * self.width + columns.start..row * self.width + columns.end;
        let (a, b, c) = (&self.a[range.clone()], &self.b[range.clone()], &self.c[range]);
        let mut sums = SplitSums { n: a.len() as u64, ..SplitSums::default() };
        // Lane i mod 8, joined in a fixed order at the end: golden², T², H², J², ⟨H,J⟩.
        let mut lanes = [[0.0f64; LANES]; 5];
        for ((a, b), c) in a.chunks(LANES).zip(b.chunks(LANES)).zip(c.chunks(LANES)) {
            for (l, ((&a, &b), &c)) in a.iter().zip(b).zip(c).enumerate() {
                let (a, b, c) = (a.wide(), b.wide(), c.wide());
                if !(a.is_finite() && b.is_finite() && c.is_finite()) {
                    let masked = [a, b, c] == [f64::NEG_INFINITY; 3];
                    sums.masked += u64::from(masked);
                    sums.nonfinite += u64::from(!masked);
                    continue;
                }
                let (t, h, j) = (c - a, b - a, c - b);
                lanes[0][l] += a * a;
                lanes[1][l] += t * t;
                lanes[2][l] += h * h;
                lanes[3][l] += j * j;
                lanes[4][l] += h * j;
            }
        }
        let join = |v: &[f64; LANES]| ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
        let [golden2, total2, inherited2, injected2, cross] = lanes.map(|v| join(&v));
        SplitSums { golden2, total2, inherited2, injected2, cross, ..sums }
    }
}

impl Merge for () {
    fn merge(&mut self, (): &Self) {}
}

fn run<V: Value>(triple: &Triple<'_, V>, grid: &Grid) -> Split {
    let swept = sweep(triple, grid);
    let mut whole = SplitSums::default();
    for row in &swept.rows {
        whole.merge(row);
    }
    let cells = swept.cells.into_iter().map(|((class, part), (sums, ()))| (Cell { class, part }, sums)).collect();
    Split { whole, rows: swept.rows, cells }
}
