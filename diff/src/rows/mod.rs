//! How far some rows of a candidate's result are from golden's: what an op alone is judged by.
//!
//! A sum is taken in the order of a row's elements; rows are taken four at a time, so that no sum waits for its last one.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller in simd_call.rs")]

mod last_place;
#[cfg(test)]
mod tests;

pub use last_place::{last_places, unit};

use rayon::prelude::*;

use crate::simd_call::{Work, call};

/// Rows side by side.
const TOGETHER: usize = 4;
/// Rows of one task: whole groups.
const BLOCK: usize = 4 * TOGETHER;

/// How far some rows are off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distance {
    /// ‖theirs - golden‖/‖golden‖.
    pub error: f64,
    /// The row with the largest share of it.
    pub worst: usize,
    /// Rows that carry golden's size, (Σx²)²/Σx⁴ of rows: noise of one relative size everywhere is in these.
    pub carry: f64,
}

/// Over rows of two tensors of one `width`; what both have as the same infinity (a masked score) is left out. `None` for no
/// rows, and where both are zero everywhere. Numbers that are none make the result none: they never vanish.
pub fn distance(golden: &[f32], theirs: &[f32], width: usize, rows: &[usize]) -> Option<Distance> {
    let mut sum = Sum { error: 0.0, size: 0.0, fourth: 0.0, worst: (f64::NEG_INFINITY, *rows.first()?) };
    let of_rows: Vec<Vec<[f64; 2]>> =
        rows.par_chunks(BLOCK).map(|rows| call(Far { golden, theirs, width, rows })).collect();
    rows.iter().zip(of_rows.iter().flatten()).for_each(|(row, of_row)| sum.add(*row, *of_row));
    let Sum { error, size, fourth, worst } = sum;
    let carry = if fourth > 0.0 { size * size / fourth } else { 1.0 };
    (size != 0.0 || error != 0.0).then(|| Distance { error: (error / size).sqrt(), worst: worst.1, carry })
}

struct Far<'a> {
    golden: &'a [f32],
    theirs: &'a [f32],
    width: usize,
    rows: &'a [usize],
}

impl Work for Far<'_> {
    type Out = Vec<[f64; 2]>;

    #[inline(always)]
    fn run(self) -> Vec<[f64; 2]> {
        let (fours, rest) = self.rows.as_chunks::<TOGETHER>();
        let mut out = Vec::with_capacity(self.rows.len());
        for rows in fours {
            out.extend(self.some(rows));
        }
        for row in rest {
            out.extend(self.some(&[*row]));
        }
        out
    }
}

impl Far<'_> {
    /// ‖theirs - golden‖² and ‖golden‖² of each row.
    #[inline(always)]
    fn some<const N: usize>(&self, rows: &[usize; N]) -> [[f64; 2]; N] {
        let width = self.width;
        let of = |row: &usize| (&self.golden[row * width..][..width], &self.theirs[row * width..][..width]);
        let rows = rows.each_ref().map(of);
        let mut out = [[0.0; 2]; N];
        for i in 0..width {
            for ((golden, theirs), [off, size]) in rows.iter().zip(&mut out) {
                let (g, t) = (golden[i], theirs[i]);
                let masked = g.is_infinite() && g == t;
                let (g, t) = if masked { (0.0, 0.0) } else { (f64::from(g), f64::from(t)) };
                *off += (t - g) * (t - g);
                *size += g * g;
            }
        }
        out
    }
}

/// Sums over the rows, in their order.
struct Sum {
    error: f64,
    size: f64,
    fourth: f64,
    worst: (f64, usize),
}

impl Sum {
    fn add(&mut self, row: usize, [off, size]: [f64; 2]) {
        self.size += size;
        self.fourth += size * size;
        self.error += off;
        // A NaN is the worst, and stays it.
        if off > self.worst.0 || (off.is_nan() && !self.worst.0.is_nan()) {
            self.worst = (off, row);
        }
    }
}
