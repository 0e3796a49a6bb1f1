//! The inner loop of the pass. Plain code that the compiler vectorises; `simd.rs` compiles it once an instruction set.
//!
//! Element i of a run goes to lane i mod 8; the lanes are joined at the end as ((0+4)+(2+6)) + ((1+5)+(3+7)). No
//! operation is fused, so every instruction set gives the same bits.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller in simd.rs")]

use super::histogram::{LAST, NOWHERE, RELATIVE_LOWEST, ULP_LOWEST, ZERO};
use super::{At, Format, Sums, Tally, Value};

const LANES: usize = 8;
/// Elements that are widened at a time; stays in the first-level cache.
const CHUNK: usize = 128;
const SIGN: u64 = 1 << 63;
/// Bias of an f64 exponent.
const BIAS: i32 = 1023;

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
}

/// Extremes of one chunk.
struct Extremes {
    max_d: f64,
    max_x: f64,
    max_y: f64,
    /// Smallest of all |x| and |y|: 0 tells that there are zeros to count.
    least: f64,
}

/// One pass over a run of pairs.
#[inline(always)]
pub(super) fn pass<X: Value, Y: Value>(x: &[X], y: &[Y], format: Format, tally: &mut Tally) -> Sums {
    let mut sums = Sums { n: x.len() as u64, ..Sums::default() };
    let mut partial = Partial::default();
    let mut chunk = Chunk { x: [0.0; CHUNK], y: [0.0; CHUNK], d: [0.0; CHUNK], len: 0 };
    let mut start = 0;
    for (x, y) in x.chunks(CHUNK).zip(y.chunks(CHUNK)) {
        let skipped = if load(&mut chunk, x, y) {
            sums.finite += x.len() as u64;
            None
        } else {
            Some(set_aside(&mut chunk, &mut sums))
        };
        let extremes = add(&chunk, &mut partial);
        note(&chunk, &extremes, start, format, &mut sums);
        place(&chunk, format, skipped.as_ref(), tally);
        start += x.len() as u64;
    }
    finish(&partial, &mut sums);
    sums
}

/// Widens; true when every difference is finite (so every value is).
#[inline(always)]
fn load<X: Value, Y: Value>(chunk: &mut Chunk, x: &[X], y: &[Y]) -> bool {
    if x.len() < CHUNK {
        // What an earlier chunk left behind must not be added again.
        chunk.x = [0.0; CHUNK];
        chunk.y = [0.0; CHUNK];
        chunk.d = [0.0; CHUNK];
    }
    chunk.len = x.len();
    let places = chunk.x.iter_mut().zip(&mut chunk.y).zip(&mut chunk.d);
    for ((x, y), ((to_x, to_y), to_d)) in x.iter().zip(y).zip(places) {
        let (x, y) = (x.wide(), y.wide());
        *to_x = x;
        *to_y = y;
        *to_d = y - x;
    }
    let mut probe = [0.0; LANES];
    for d in chunk.d.as_chunks::<LANES>().0 {
        for l in 0..LANES {
            // 0 for finite values, NaN otherwise; NaN stays.
            probe[l] += d[l] * 0.0;
        }
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

/// Adds the chunk to the lanes: one short sweep a sum. With two sums in one loop the compiler packs them across lanes
/// and falls back to half vectors.
#[inline(always)]
fn add(chunk: &Chunk, p: &mut Partial) -> Extremes {
    let groups = chunk.len.div_ceil(LANES);
    let x = &chunk.x.as_chunks().0[..groups];
    let y = &chunk.y.as_chunks().0[..groups];
    let d = &chunk.d.as_chunks().0[..groups];
    p.x = sum(p.x, x, x, |x, _| x);
    p.y = sum(p.y, y, y, |y, _| y);
    p.d = sum(p.d, d, d, |d, _| d);
    p.xx = sum(p.xx, x, x, |x, _| x * x);
    p.yy = sum(p.yy, y, y, |y, _| y * y);
    p.dd = sum(p.dd, d, d, |d, _| d * d);
    p.xy = sum(p.xy, x, y, |x, y| x * y);
    p.xd = sum(p.xd, x, d, |x, d| x * d);
    p.abs_d = sum(p.abs_d, d, d, |d, _| d.abs());
    p.outward_d = sum(p.outward_d, d, x, |d, x| f64::from_bits(d.to_bits() ^ (x.to_bits() & SIGN)));
    let least = |v| fold(v, f64::INFINITY, |a, b| if b < a { b } else { a });
    let most = |v| fold(v, 0.0, |a, b| if b > a { b } else { a });
    Extremes { max_d: most(d), max_x: most(x), max_y: most(y), least: least(x).min(least(y)) }
}

/// Adds f(v, w) to the lanes. They are taken and given back by value: behind a reference they would be stored after
/// every group.
#[inline(always)]
fn sum(mut lanes: Lanes, v: &[Lanes], w: &[Lanes], f: impl Fn(f64, f64) -> f64) -> Lanes {
    for (v, w) in v.iter().zip(w) {
        for l in 0..LANES {
            lanes[l] += f(v[l], w[l]);
        }
    }
    lanes
}

/// An extreme of |v|.
#[inline(always)]
fn fold(v: &[Lanes], start: f64, f: impl Fn(f64, f64) -> f64) -> f64 {
    let mut lanes = [start; LANES];
    for v in v {
        for l in 0..LANES {
            lanes[l] = f(lanes[l], v[l].abs());
        }
    }
    lanes.iter().fold(start, |a, &b| f(a, b))
}

/// Keeps the extremes; counts zeros and saturated values where the extremes say that there are some.
#[inline(always)]
fn note(chunk: &Chunk, extremes: &Extremes, start: u64, format: Format, sums: &mut Sums) {
    sums.max_x = sums.max_x.max(extremes.max_x);
    sums.max_y = sums.max_y.max(extremes.max_y);
    if extremes.max_d > sums.max_abs {
        let i = chunk.d.iter().position(|d| d.abs() == extremes.max_d).unwrap_or(0);
        sums.max_abs = extremes.max_d;
        sums.max_abs_at = Some(At { row: 0, column: start + i as u64 });
    }
    if extremes.least == 0.0 {
        for (x, y) in chunk.x.iter().zip(&chunk.y) {
            sums.zero_lost += u64::from(*y == 0.0 && *x != 0.0);
            sums.zero_gained += u64::from(*x == 0.0 && *y != 0.0);
        }
    }
    if extremes.max_y >= format.largest {
        sums.saturated += chunk.y.iter().filter(|y| y.abs() == format.largest).count() as u64;
    }
}

/// Counts the chunk in both histograms. The difference of two positive f64 bit patterns, shifted right by the 52 bits
/// of mantissa, is floor(log2 d/x): exactly, and without a division.
#[inline(always)]
fn place(chunk: &Chunk, format: Format, skipped: Option<&[bool; CHUNK]>, tally: &mut Tally) {
    let mut relative = [0u8; CHUNK];
    let mut ulp = [0u8; CHUNK];
    let lowest_ulp = format.min_exponent + BIAS;
    for (((x, d), relative), ulp) in chunk.x.iter().zip(&chunk.d).zip(&mut relative).zip(&mut ulp) {
        let (x, d) = (x.to_bits() & !SIGN, d.to_bits() & !SIGN);
        let (high_x, high_d) = ((x >> 32) as i32, (d >> 32) as i32);
        let ratio = ((d.wrapping_sub(x) >> 32) as i32 >> 20) - RELATIVE_LOWEST;
        let spacing = (high_x >> 20).max(lowest_ulp) - format.mantissa;
        let distance = (high_d >> 20) - spacing - ULP_LOWEST;
        *relative = if d == 0 { ZERO as u8 } else { ratio.clamp(0, LAST) as u8 };
        *ulp = if d == 0 { ZERO as u8 } else { distance.clamp(0, LAST) as u8 };
    }
    for (i, _) in skipped.into_iter().flatten().enumerate().filter(|(_, skip)| **skip) {
        relative[i] = NOWHERE as u8;
        ulp[i] = NOWHERE as u8;
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
}
