//! Errors in units of golden's last place in bf16.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller in simd_call.rs")]

use rayon::prelude::*;

use super::TOGETHER;
use crate::simd_call::{Work, call};

/// Share of a row's RMS that f32 sums in another order may differ by.
const ORDER: f64 = 1.0 / (1 << 20) as f64;
/// Leading bits of a unit count that it is sorted by first: sign, exponent and four of the mantissa.
const SORTED: u32 = 16;
/// Values of one task.
const TASK: usize = 1 << 21;

/// 99th percentile of |theirs - golden|, less what sums in another order may differ by, in units of golden's last place in
/// bf16, over some rows of two tensors of one `width`; and the row of the largest. `None` for no values.
pub fn last_places(golden: &[f32], theirs: &[f32], width: usize, rows: &[usize]) -> Option<(f64, usize)> {
    if width == 0 {
        return None;
    }
    let first = *rows.first()?;
    let block = (TASK / width).max(1);
    let of = |rows| Units { golden, theirs, width, rows };
    let blocks = || rows.par_chunks(block);
    // None is negative: they are in the order of their bits. Those with the leading bits of the one in question are looked
    // for in a second walk, which takes less than to keep and sort them all.
    let counted: Vec<(Vec<u32>, (f64, usize))> = blocks().map(|rows| call(Counts(of(rows)))).collect();
    let mut worst = (f64::NEG_INFINITY, first);
    let mut counts = vec![0usize; 1 << SORTED];
    for (some, of_block) in &counted {
        counts.iter_mut().zip(some).for_each(|(all, n)| *all += *n as usize);
        worst = if of_block.0 > worst.0 { *of_block } else { worst };
    }
    let n = rows.len() * width;
    let mut rank = ((n as f64 * 0.99).ceil() as usize).clamp(1, n) - 1;
    let holds = |count: &usize| {
        let is_here = rank < *count;
        rank -= if is_here { 0 } else { *count };
        is_here
    };
    let leading = counts.iter().position(holds)?;
    let near: Vec<Vec<f64>> = blocks().map(|rows| call(Near(of(rows), leading))).collect();
    let mut near = near.concat();
    let (_, p99, _) = near.select_nth_unstable_by(rank, f64::total_cmp);
    Some((*p99, worst.1))
}

/// The last place of a value in bf16: 7 mantissa bits, f32's exponents.
pub fn unit(x: f64) -> f64 {
    1.0 / per_unit(x)
}

/// One over it: a power of two, so that a product by it is the quotient.
#[inline(always)]
fn per_unit(x: f64) -> f64 {
    // Zero has the exponent of all that is under f32's normal numbers.
    let exponent = ((x.to_bits() >> 52 & 0x7ff) as i64 - 1023).max(-126);
    f64::from_bits(((1023 + 7 - exponent) as u64) << 52)
}

struct Units<'a> {
    golden: &'a [f32],
    theirs: &'a [f32],
    width: usize,
    rows: &'a [usize],
}

/// How many values have each of the leading bits, and the largest with its row.
struct Counts<'a>(Units<'a>);

impl Work for Counts<'_> {
    type Out = (Vec<u32>, (f64, usize));

    #[inline(always)]
    fn run(self) -> Self::Out {
        let of = self.0;
        let mut worst = (f64::NEG_INFINITY, 0);
        let mut counts = vec![0u32; 1 << SORTED];
        let mut units = vec![0.0; of.width];
        for (row, order) in of.rows.iter().zip(&of.orders()) {
            of.units(*row, *order, &mut units);
            for units in &units {
                counts[(units.to_bits() >> (64 - SORTED)) as usize] += 1;
                if *units > worst.0 {
                    worst = (*units, *row);
                }
            }
        }
        (counts, worst)
    }
}

/// The values with these leading bits.
struct Near<'a>(Units<'a>, usize);

impl Work for Near<'_> {
    type Out = Vec<f64>;

    #[inline(always)]
    fn run(self) -> Vec<f64> {
        let Self(of, leading) = self;
        let (mut units, mut near) = (vec![0.0; of.width], Vec::new());
        for (row, order) in of.rows.iter().zip(&of.orders()) {
            of.units(*row, *order, &mut units);
            near.extend(units.iter().filter(|u| (u.to_bits() >> (64 - SORTED)) as usize == leading));
        }
        near
    }
}

impl Units<'_> {
    /// What sums in another order may differ by, of each row.
    #[inline(always)]
    fn orders(&self) -> Vec<f64> {
        let (fours, rest) = self.rows.as_chunks::<TOGETHER>();
        let mut out: Vec<f64> = fours.iter().flat_map(|rows| self.some_orders(rows)).collect();
        out.extend(rest.iter().flat_map(|row| self.some_orders(&[*row])));
        out
    }

    #[inline(always)]
    fn some_orders<const N: usize>(&self, rows: &[usize; N]) -> [f64; N] {
        let width = self.width;
        let rows = rows.each_ref().map(|row| &self.golden[row * width..][..width]);
        let mut sums = [0.0; N];
        for i in 0..width {
            for (row, sum) in rows.iter().zip(&mut sums) {
                *sum += f64::from(row[i]) * f64::from(row[i]);
            }
        }
        sums.map(|sum| ORDER * (sum / width as f64).sqrt())
    }

    /// The errors of a row.
    #[inline(always)]
    fn units(&self, row: usize, order: f64, out: &mut [f64]) {
        let here = row * self.width..(row + 1) * self.width;
        for ((g, t), out) in self.golden[here.clone()].iter().zip(&self.theirs[here]).zip(out) {
            let (g, t) = (f64::from(*g), f64::from(*t));
            let off = (t - g).abs() - order;
            let units = if off > 0.0 { off * per_unit(g) } else { 0.0 };
            // Neither a NaN nor an infinity vanishes.
            *out = if (t - g).is_finite() { units } else { f64::INFINITY };
        }
    }
}
