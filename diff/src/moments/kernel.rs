//! The inner loop of the pass, written over [`Quad`]; `simd.rs` compiles it once an instruction set.
//!
//! Element i of a run goes to lane i mod 8; the lanes are joined at the end as ((0+4)+(2+6)) + ((1+5)+(3+7)). No
//! operation is fused, so every instruction set gives the same bits.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller in simd.rs")]

use std::ops::Range;

use super::tally::{Sort, Tally};
use super::{At, Format, Pair, Sums};
use crate::quad::Quad;
use crate::values::{CHUNK, Element, Extremes};

const LANES: usize = 8;

/// Sums of the core set, four lanes; and the largest |d| of a chunk.
#[derive(Clone, Copy)]
struct Core<Q> {
    x: Q,
    y: Q,
    xx: Q,
    yy: Q,
    xy: Q,
    abs_d: Q,
    d: Q,
    dd: Q,
    most: Q,
}

/// Sums of the full set beside them.
#[derive(Clone, Copy)]
struct More<Q> {
    xd: Q,
    outward_d: Q,
}

/// A chunk in which something is not finite, with those pairs zeroed.
struct Cleaned<X, Y> {
    x: [X; CHUNK],
    y: [Y; CHUNK],
    skipped: [bool; CHUNK],
}

/// One pass over the elements `range` of a pair. `FULL` adds what the core set leaves out.
#[inline(always)]
pub(super) fn pass<Q: Quad, X: Element, Y: Element, const FULL: bool>(
    pair: &Pair<'_>,
    range: Range<usize>,
    tally: &mut Tally,
) -> Sums {
    let mut sums = Sums { n: range.len() as u64, ..Sums::default() };
    let zero = Q::splat(0.0);
    let start = Core { x: zero, y: zero, xx: zero, yy: zero, xy: zero, abs_d: zero, d: zero, dd: zero, most: zero };
    let (mut low, mut high) = (start, start);
    let mut more = [More { xd: zero, outward_d: zero }; 2];
    let mut most_at = 0;
    // Outside the loop: they would be filled with zeros each time.
    let (mut x_buffer, mut y_buffer) = ([X::default(); CHUNK], [Y::default(); CHUNK]);
    let mut keys = [[0; LANES]; CHUNK / LANES];
    for at in range.clone().step_by(CHUNK) {
        let here = at..(at + CHUNK).min(range.end);
        let len = here.len();
        // While this chunk is added the next one, of this row or the one after it, is on its way.
        pair.x.fetch::<Q>(at + CHUNK..at + 2 * CHUNK);
        pair.y.fetch::<Q>(at + CHUNK..at + 2 * CHUNK);
        let x = chunk(&pair.x, here.clone(), &mut x_buffer);
        let y = chunk(&pair.y, here, &mut y_buffer);
        let mut extremes = (X::extremes(&x[..len]), Y::extremes(&y[..len]));
        let cleaned = if extremes.0.finite && extremes.1.finite {
            sums.finite += len as u64;
            None
        } else {
            let cleaned = set_aside(&x[..len], &y[..len], |i| pair.at(at + i), &mut sums);
            extremes = (X::extremes(&cleaned.x[..len]), Y::extremes(&cleaned.y[..len]));
            Some(cleaned)
        };
        let (x, y) = cleaned.as_ref().map_or((x, y), |c| (&c.x[..x.len()], &c.y[..y.len()]));
        (low.most, high.most) = (zero, zero);
        low = add::<Q, X, Y, 0>(x, y, low);
        high = add::<Q, X, Y, 1>(x, y, high);
        let most = low.most.larger(high.most).array().into_iter().fold(0.0, |a: f64, b| if b > a { b } else { a });
        if most > sums.max_abs {
            sums.max_abs = most;
            most_at = at;
        }
        sums.max_x = sums.max_x.max(extremes.0.most);
        sums.max_y = sums.max_y.max(extremes.1.most);
        if FULL {
            note(x, y, &extremes, pair.format, &mut sums);
            let skipped = cleaned.as_ref().map(|c| &c.skipped);
            let fast = skipped.is_none() && len.is_multiple_of(LANES) && extremes.0.least >= pair.format.least_normal;
            if fast {
                more = add_and_count(x, y, more, &mut keys, tally);
            } else {
                more = add_more(x, y, more);
                sort(&x[..len], &y[..len], pair.format, skipped, tally);
            }
            if most > 0.0 && tally.offenders.admits(most, &pair.bar) {
                let at_of = |i: usize| pair.at(at + i);
                tally.offenders.offer(&x[..len], &y[..len], at_of, &pair.bar);
            }
        }
    }
    sums.max_abs_at = (sums.max_abs > 0.0).then(|| {
        let here = most_at..(most_at + CHUNK).min(range.end);
        let x = chunk(&pair.x, here.clone(), &mut x_buffer);
        let y = chunk(&pair.y, here, &mut y_buffer);
        let is_it = |(x, y): (&X, &Y)| {
            let (x, y) = (x.wide(), y.wide());
            x.is_finite() && y.is_finite() && (y - x).abs() == sums.max_abs
        };
        pair.at(most_at + x.iter().zip(y).position(is_it).unwrap_or(0))
    });
    finish(low, high, more, &mut sums);
    sums
}

/// Elements `range`, filled up with zeros to whole groups of lanes: zeros add nothing.
#[inline(always)]
fn chunk<'a, T: Element>(values: &crate::Values<'a>, range: Range<usize>, buffer: &'a mut [T; CHUNK]) -> &'a [T] {
    let len = range.len();
    if len.is_multiple_of(LANES) {
        return T::chunk(values, range, buffer);
    }
    let mut own = [T::default(); CHUNK];
    buffer[..len].copy_from_slice(T::chunk(values, range, &mut own));
    &buffer[..len.next_multiple_of(LANES)]
}

/// Counts the pairs that are not finite and gives a copy without them.
#[cold]
fn set_aside<X: Element, Y: Element>(x: &[X], y: &[Y], at: impl Fn(usize) -> At, sums: &mut Sums) -> Cleaned<X, Y> {
    let len = x.len();
    let mut out = Cleaned { x: [X::default(); CHUNK], y: [Y::default(); CHUNK], skipped: [false; CHUNK] };
    out.x[..len].copy_from_slice(x);
    out.y[..len].copy_from_slice(y);
    for i in 0..len {
        let (x, y) = (x[i].wide(), y[i].wide());
        if x.is_finite() && y.is_finite() {
            sums.finite += 1;
            continue;
        }
        (out.x[i], out.y[i], out.skipped[i]) = (X::default(), Y::default(), true);
        if x == f64::NEG_INFINITY && y == f64::NEG_INFINITY {
            sums.masked += 1;
            continue;
        }
        sums.nan_x += u64::from(x.is_nan());
        sums.nan_y += u64::from(y.is_nan());
        sums.inf_x += u64::from(x.is_infinite());
        sums.inf_y += u64::from(y.is_infinite());
        sums.first_nonfinite_at.get_or_insert_with(|| at(i));
    }
    out
}

/// Adds lanes 0 to 3 (`HALF` 0) or 4 to 7 of every group. Half the lanes at a time, since eight sums of eight lanes are
/// more than the registers of AVX2 hold.
#[inline(always)]
fn add<Q: Quad, X: Element, Y: Element, const HALF: usize>(x: &[X], y: &[Y], mut c: Core<Q>) -> Core<Q> {
    for (x, y) in x.as_chunks::<LANES>().0.iter().zip(y.as_chunks::<LANES>().0) {
        let (x, y) = (X::quad::<Q>(&x.as_chunks().0[HALF]), Y::quad::<Q>(&y.as_chunks().0[HALF]));
        let d = y.sub(x);
        c.x = c.x.add(x);
        c.y = c.y.add(y);
        c.xx = c.xx.add(x.mul(x));
        c.yy = c.yy.add(y.mul(y));
        c.xy = c.xy.add(x.mul(y));
        c.d = c.d.add(d);
        c.dd = c.dd.add(d.mul(d));
        c.abs_d = c.abs_d.add(d.abs());
        c.most = c.most.larger(d.abs());
    }
    c
}

#[inline(always)]
fn add_more<Q: Quad, X: Element, Y: Element>(x: &[X], y: &[Y], mut more: [More<Q>; 2]) -> [More<Q>; 2] {
    for (x, y) in x.as_chunks::<LANES>().0.iter().zip(y.as_chunks::<LANES>().0) {
        for ((x, y), m) in x.as_chunks::<4>().0.iter().zip(y.as_chunks::<4>().0).zip(&mut more) {
            let (x, y) = (X::quad::<Q>(x), Y::quad::<Q>(y));
            *m = plus(*m, x, y.sub(x));
        }
    }
    more
}

/// The same, and counts every pair in one table that tells both histograms.
#[inline(always)]
fn add_and_count<Q: Quad, X: Element, Y: Element>(
    x: &[X],
    y: &[Y],
    more: [More<Q>; 2],
    keys: &mut [[i32; LANES]; CHUNK / LANES],
    tally: &mut Tally,
) -> [More<Q>; 2] {
    let [mut low, mut high] = more;
    let groups = x.as_chunks::<LANES>().0.iter().zip(y.as_chunks::<LANES>().0);
    for ((x, y), keys) in groups.zip(keys.iter_mut()) {
        let (x_half, y_half) = (x.as_chunks::<4>().0, y.as_chunks::<4>().0);
        let (x, y) = (X::quad::<Q>(&x_half[0]), Y::quad::<Q>(&y_half[0]));
        let d = y.sub(x);
        low = plus(low, x, d);
        let first = d.keys(x);
        let (x, y) = (X::quad::<Q>(&x_half[1]), Y::quad::<Q>(&y_half[1]));
        let d = y.sub(x);
        high = plus(high, x, d);
        let second = d.keys(x);
        keys[..4].copy_from_slice(&first);
        keys[4..].copy_from_slice(&second);
    }
    tally.count(&keys[..x.len() / LANES]);
    [low, high]
}

#[inline(always)]
fn plus<Q: Quad>(m: More<Q>, x: Q, d: Q) -> More<Q> {
    More { xd: m.xd.add(x.mul(d)), outward_d: m.outward_d.add(d.signed_by(x)) }
}

/// Counts zeros and saturated values where the extremes say that there are some.
#[inline(always)]
fn note<X: Element, Y: Element>(x: &[X], y: &[Y], extremes: &(Extremes, Extremes), format: Format, sums: &mut Sums) {
    if extremes.0.least == 0.0 || extremes.1.least == 0.0 {
        for (x, y) in x.iter().zip(y) {
            let (x, y) = (x.wide(), y.wide());
            sums.zero_lost += u64::from(y == 0.0 && x != 0.0);
            sums.zero_gained += u64::from(x == 0.0 && y != 0.0);
        }
    }
    if extremes.1.most >= format.largest {
        sums.saturated += y.iter().filter(|y| y.wide().abs() == format.largest).count() as u64;
    }
}

/// Counts a chunk in both histograms one by one: where golden has values below the format's normal numbers, where pairs
/// are left out, and in the odd end of a row.
#[inline(always)]
fn sort<X: Element, Y: Element>(x: &[X], y: &[Y], format: Format, skipped: Option<&[bool; CHUNK]>, tally: &mut Tally) {
    let mut relative = [0u8; CHUNK];
    let mut ulp = [0u8; CHUNK];
    let sorter = Sort::of(format);
    for (((x, y), relative), ulp) in x.iter().zip(y).zip(&mut relative).zip(&mut ulp) {
        let (x, y) = (x.wide(), y.wide());
        (*relative, *ulp) = sorter.slots(x, y - x);
    }
    for (i, _) in skipped.into_iter().flatten().enumerate().filter(|(_, skip)| **skip) {
        (relative[i], ulp[i]) = Sort::NOWHERE;
    }
    tally.relative.add(&relative[..x.len()]);
    tally.ulp.add(&ulp[..x.len()]);
}

#[inline(always)]
fn finish<Q: Quad>(low: Core<Q>, high: Core<Q>, more: [More<Q>; 2], sums: &mut Sums) {
    sums.x = low.x.join(high.x);
    sums.y = low.y.join(high.y);
    sums.xx = low.xx.join(high.xx);
    sums.yy = low.yy.join(high.yy);
    sums.xy = low.xy.join(high.xy);
    sums.abs_d = low.abs_d.join(high.abs_d);
    sums.d = low.d.join(high.d);
    sums.dd = low.dd.join(high.dd);
    sums.xd = more[0].xd.join(more[1].xd);
    sums.outward_d = more[0].outward_d.join(more[1].outward_d);
}
