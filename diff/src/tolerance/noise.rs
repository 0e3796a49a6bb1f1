//! Noise of the size of a plan's roundings on golden's own values, and what has gathered of it: what tolerances are derived
//! from.
//!
//! A sum is taken in the order of a row's elements; rows are taken four at a time, so that no sum waits for its last one.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller in simd_call.rs")]

use rayon::prelude::*;

use crate::simd_call::{Work, call};

/// Rows side by side.
const TOGETHER: usize = 4;
/// Rows of one task.
const BLOCK: usize = 2 * TOGETHER;

/// One row of a tap: what noise it gets, and what is measured of it.
#[derive(Debug)]
pub struct Noisy<'a> {
    /// Standard deviation over the RMS of the row: what rounding an operand of a product does to every output alike.
    pub spread: f64,
    /// Standard deviation over the value: what rounding the output does.
    pub own: f64,
    /// What the noise follows from; that of element i from `seed + i`.
    pub seed: u64,
    /// The values, which get the noise. What is not finite gets none.
    pub values: &'a mut [f32],
    /// Golden's values without noise; the longer of the two has a tail that the other lacks, which counts for nothing.
    pub golden: &'a [f32],
    /// ‖values - golden‖² with the noise, and ‖golden‖², over pairs of finite values.
    pub squares: [f64; 2],
}

/// Adds the noise to rows of one length, and measures how far they are from golden then.
pub fn disturb(rows: &mut [Noisy<'_>]) {
    // A row's noise and sums are its own.
    rows.par_chunks_mut(BLOCK).for_each(|rows| call(Rows(rows)));
}

struct Rows<'r, 'a>(&'r mut [Noisy<'a>]);

impl Work for Rows<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let (fours, rest) = self.0.as_chunks_mut::<TOGETHER>();
        fours.iter_mut().for_each(some);
        rest.as_chunks_mut::<1>().0.iter_mut().for_each(some);
    }
}

#[inline(always)]
fn some<const N: usize>(rows: &mut [Noisy<'_>; N]) {
    let mut sizes = [(0.0, 0); N];
    if rows.iter().any(|row| row.spread != 0.0) {
        sizes = sizes_of(rows.each_ref().map(|row| &*row.values));
    }
    for (row, (squares, n)) in rows.iter_mut().zip(sizes) {
        let spread = row.spread * (squares / f64::from(n.max(1))).sqrt();
        add(spread, row.own, row.seed, row.values);
    }
    let lengths = rows.each_ref().map(|row| row.values.len().min(row.golden.len()));
    if lengths.iter().all(|n| *n == lengths[0]) {
        let squares = distances(rows.each_ref().map(|row| (&*row.values, row.golden)), lengths[0]);
        rows.iter_mut().zip(squares).for_each(|(row, squares)| row.squares = squares);
    } else {
        for (row, n) in rows.iter_mut().zip(lengths) {
            [row.squares] = distances([(&*row.values, row.golden)], n);
        }
    }
}

/// Σv² and the number of finite values, of rows of one length.
#[inline(always)]
fn sizes_of<const N: usize>(rows: [&[f32]; N]) -> [(f64, u32); N] {
    let width = rows[0].len();
    let rows = rows.map(|row| &row[..width]);
    let mut out = [(0.0, 0); N];
    for i in 0..width {
        for (row, (squares, n)) in rows.iter().zip(&mut out) {
            let v = row[i];
            let wide = if v.is_finite() { f64::from(v) } else { 0.0 };
            *squares += wide * wide;
            *n += u32::from(v.is_finite());
        }
    }
    out
}

#[inline(always)]
fn add(spread: f64, own: f64, seed: u64, values: &mut [f32]) {
    for (i, v) in values.iter_mut().enumerate() {
        let bits = mix(seed.wrapping_add(i as u64));
        let wide = f64::from(*v);
        let noise = spread * uniform(bits as u32) + own * wide * uniform((bits >> 32) as u32);
        let with = (wide + noise) as f32;
        *v = if v.is_finite() { with } else { *v };
    }
}

/// Σ(v - g)² and Σg² over the first `width` pairs, those with a value that is not finite left out.
#[inline(always)]
fn distances<const N: usize>(rows: [(&[f32], &[f32]); N], width: usize) -> [[f64; 2]; N] {
    let rows = rows.map(|(values, golden)| (&values[..width], &golden[..width]));
    let mut out = [[0.0; 2]; N];
    for i in 0..width {
        for ((values, golden), [off, size]) in rows.iter().zip(&mut out) {
            let (v, g) = (values[i], golden[i]);
            let is_finite = v.is_finite() && g.is_finite();
            let (v, g) = if is_finite { (f64::from(v), f64::from(g)) } else { (0.0, 0.0) };
            *off += (v - g) * (v - g);
            *size += g * g;
        }
    }
    out
}

/// Uniform with mean 0 and variance 1.
#[inline(always)]
pub fn uniform(bits: u32) -> f64 {
    const HALF_WIDTH: f64 = 1.732_050_807_568_877_2;
    (f64::from(bits) / f64::from(u32::MAX) * 2.0 - 1.0) * HALF_WIDTH
}

/// SplitMix64's finaliser.
#[inline(always)]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests;
