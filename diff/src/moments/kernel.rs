//! The inner loop of the pass. Plain code that the compiler vectorises; `simd.rs` compiles it once an instruction set.
//!
//! Element i of a run goes to lane i mod 8; the lanes are joined at the end as ((0+4)+(2+6)) + ((1+5)+(3+7)). No
//! operation is fused, so every instruction set gives the same bits.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller in simd.rs")]

use super::histogram::{LAST, NOWHERE, RELATIVE_LOWEST, ULP_LOWEST, ZERO};
use super::{At, Format, Sums, Tally, Value};
use crate::storage::exponent;

const LANES: usize = 8;
/// Elements that are widened at a time; stays in the first-level cache.
const CHUNK: usize = 128;
const SIGN: u64 = 1 << 63;

type Lanes = [f64; LANES];

/// A piece of the run in f64. Elements that don't count are zero in all three and `NOWHERE` in both slot lists.
struct Chunk {
    x: [f64; CHUNK],
    y: [f64; CHUNK],
    d: [f64; CHUNK],
    len: usize,
}

#[derive(Default)]
struct Partial {
    x: Lanes,
    y: Lanes,
    xx: Lanes,
    yy: Lanes,
    xy: Lanes,
    xd: Lanes,
    abs_d: Lanes,
    d: Lanes,
    dd: Lanes,
    outward_d: Lanes,
    max_x: Lanes,
    max_y: Lanes,
}

/// One pass over a run of pairs.
#[inline(always)]
pub(super) fn pass<X: Value, Y: Value>(x: &[X], y: &[Y], format: Format, tally: &mut Tally) -> Sums {
    let mut sums = Sums { n: x.len() as u64, ..Sums::default() };
    let mut partial = Partial::default();
    let mut chunk = Chunk { x: [0.0; CHUNK], y: [0.0; CHUNK], d: [0.0; CHUNK], len: 0 };
    let mut start = 0;
    for (x, y) in x.chunks(CHUNK).zip(y.chunks(CHUNK)) {
        let all_finite = load(&mut chunk, x, y);
        let mut skipped = [false; CHUNK];
        if all_finite {
            sums.finite += x.len() as u64;
        } else {
            skipped = set_aside(&mut chunk, &mut sums);
        }
        add(&chunk, &mut partial);
        count(&chunk, format, &mut sums);
        largest(&chunk, start, &mut sums);
        place(&chunk, format, &skipped, tally);
        start += x.len() as u64;
    }
    finish(&partial, &mut sums);
    sums
}

/// Widens; true when every value is finite.
#[inline(always)]
fn load<X: Value, Y: Value>(chunk: &mut Chunk, x: &[X], y: &[Y]) -> bool {
    if x.len() < CHUNK {
        // What an earlier chunk left behind must not be added again.
        chunk.x = [0.0; CHUNK];
        chunk.y = [0.0; CHUNK];
        chunk.d = [0.0; CHUNK];
    }
    chunk.len = x.len();
    let mut probe = [0.0; LANES];
    for (i, (x, y)) in x.iter().zip(y).enumerate() {
        let (x, y) = (x.wide(), y.wide());
        chunk.x[i] = x;
        chunk.y[i] = y;
        chunk.d[i] = y - x;
        // 0 for finite values, NaN otherwise; NaN stays.
        probe[i % LANES] += x * 0.0 + y * 0.0;
    }
    probe.iter().sum::<f64>() == 0.0
}

/// Counts the pairs that are not finite and zeroes them.
#[cold]
fn set_aside(chunk: &mut Chunk, sums: &mut Sums) -> [bool; CHUNK] {
    let mut skipped = [false; CHUNK];
    for i in 0..chunk.len {
        let (x, y) = (chunk.x[i], chunk.y[i]);
        if x.is_finite() && y.is_finite() {
            sums.finite += 1;
            continue;
        }
        skipped[i] = true;
        if x == f64::NEG_INFINITY && y == f64::NEG_INFINITY {
            sums.masked += 1;
        } else {
            sums.nan_x += u64::from(x.is_nan());
            sums.nan_y += u64::from(y.is_nan());
            sums.inf_x += u64::from(x.is_infinite());
            sums.inf_y += u64::from(y.is_infinite());
        }
        chunk.x[i] = 0.0;
        chunk.y[i] = 0.0;
        chunk.d[i] = 0.0;
    }
    skipped
}

/// Adds the chunk to the lanes, in three sweeps so that the accumulators of each stay in registers.
#[inline(always)]
fn add(chunk: &Chunk, p: &mut Partial) {
    let end = chunk.len.next_multiple_of(LANES);
    let mut at = 0;
    while at < end {
        for l in 0..LANES {
            let d = chunk.d[at + l];
            p.d[l] += d;
            p.abs_d[l] += d.abs();
            p.dd[l] += d * d;
            p.outward_d[l] += f64::from_bits(d.to_bits() ^ (chunk.x[at + l].to_bits() & SIGN));
        }
        at += LANES;
    }
    let mut at = 0;
    while at < end {
        for l in 0..LANES {
            let x = chunk.x[at + l];
            p.x[l] += x;
            p.xx[l] += x * x;
            p.xd[l] += x * chunk.d[at + l];
            p.max_x[l] = if x.abs() > p.max_x[l] { x.abs() } else { p.max_x[l] };
        }
        at += LANES;
    }
    let mut at = 0;
    while at < end {
        for l in 0..LANES {
            let y = chunk.y[at + l];
            p.y[l] += y;
            p.yy[l] += y * y;
            p.xy[l] += chunk.x[at + l] * y;
            p.max_y[l] = if y.abs() > p.max_y[l] { y.abs() } else { p.max_y[l] };
        }
        at += LANES;
    }
}

#[inline(always)]
fn count(chunk: &Chunk, format: Format, sums: &mut Sums) {
    let mut counts = [[0u64; LANES]; 3];
    let end = chunk.len.next_multiple_of(LANES);
    let mut at = 0;
    while at < end {
        for l in 0..LANES {
            let (x, y) = (chunk.x[at + l], chunk.y[at + l]);
            counts[0][l] += u64::from(y.abs() == format.largest);
            counts[1][l] += u64::from(y == 0.0 && x != 0.0);
            counts[2][l] += u64::from(x == 0.0 && y != 0.0);
        }
        at += LANES;
    }
    sums.saturated += counts[0].iter().sum::<u64>();
    sums.zero_lost += counts[1].iter().sum::<u64>();
    sums.zero_gained += counts[2].iter().sum::<u64>();
}

#[inline(always)]
fn largest(chunk: &Chunk, start: u64, sums: &mut Sums) {
    let mut max = [0.0; LANES];
    for d in chunk.d.chunks_exact(LANES) {
        for l in 0..LANES {
            max[l] = if d[l].abs() > max[l] { d[l].abs() } else { max[l] };
        }
    }
    let max = max.iter().fold(0.0, |a: f64, &b| if b > a { b } else { a });
    if max > sums.max_abs {
        let i = chunk.d.iter().position(|d| d.abs() == max).unwrap_or(0);
        sums.max_abs = max;
        sums.max_abs_at = Some(At { row: 0, column: start + i as u64 });
    }
}

/// Counts the chunk in both histograms.
#[inline(always)]
fn place(chunk: &Chunk, format: Format, skipped: &[bool; CHUNK], tally: &mut Tally) {
    let mut relative = [0u8; CHUNK];
    let mut ulp = [0u8; CHUNK];
    for i in 0..CHUNK {
        let (x, d) = (chunk.x[i], chunk.d[i].abs());
        let ratio = exponent(d / x.abs()) - RELATIVE_LOWEST;
        let spacing = exponent(x).max(format.min_exponent) - format.mantissa;
        let distance = exponent(d) - spacing - ULP_LOWEST;
        let zero = d == 0.0;
        let clamped = (ratio.clamp(0, LAST) as u8, distance.clamp(0, LAST) as u8);
        relative[i] = if zero { ZERO as u8 } else { clamped.0 };
        ulp[i] = if zero { ZERO as u8 } else { clamped.1 };
    }
    for i in 0..chunk.len {
        if skipped[i] {
            relative[i] = NOWHERE as u8;
            ulp[i] = NOWHERE as u8;
        }
    }
    tally.relative.add(&relative[..chunk.len]);
    tally.ulp.add(&ulp[..chunk.len]);
}

#[inline(always)]
fn finish(p: &Partial, sums: &mut Sums) {
    let join = |v: &Lanes| ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
    sums.x = join(&p.x);
    sums.y = join(&p.y);
    sums.xx = join(&p.xx);
    sums.yy = join(&p.yy);
    sums.xy = join(&p.xy);
    sums.xd = join(&p.xd);
    sums.abs_d = join(&p.abs_d);
    sums.d = join(&p.d);
    sums.dd = join(&p.dd);
    sums.outward_d = join(&p.outward_d);
    sums.max_x = p.max_x.iter().fold(0.0, |a, &b| a.max(b));
    sums.max_y = p.max_y.iter().fold(0.0, |a, &b| a.max(b));
}
