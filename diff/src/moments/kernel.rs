//! The inner loop of the pass, written over [`Quad`]; `simd.rs` compiles it once an instruction set.
//!
//! Element i of a run goes to lane i mod 8; the lanes are joined at the end as ((0+4)+(2+6)) + ((1+5)+(3+7)). Only
//! products that are exact are fused with their sum, so every instruction set gives the same bits.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller in simd.rs")]

use std::ops::Range;

use super::tally::{Sort, Tally};
use super::{At, Format, Pair, Sums};
use crate::quad::{LANES, Quad};
use crate::values::{CHUNK, Element, Extremes};

/// Elements from a chunk to the one that is fetched meanwhile. For f32 in pages of 4 KiB this is the next page: nearer, the
/// walk through the page tables and the way from memory take longer than the chunks between.
const AHEAD: usize = 4 * CHUNK;

/// Sums of the core set, some lanes; and the largest |d| of a chunk.
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
    let mut core = [start; 2];
    let mut more = [More { xd: zero, outward_d: zero }; 2];
    let mut most_at = 0;
    // Outside the loop: they would be filled with zeros each time.
    let (mut x_buffer, mut y_buffer) = ([X::default(); CHUNK], [Y::default(); CHUNK]);
    let mut keys = [[0u8; LANES]; CHUNK / LANES];
    for at in range.clone().step_by(CHUNK) {
        let here = at..(at + CHUNK).min(range.end);
        let len = here.len();
        // While this chunk is added a later one, of this row or of one after it, is on its way.
        pair.x.fetch::<Q>(at + AHEAD..at + AHEAD + CHUNK);
        pair.y.fetch::<Q>(at + AHEAD..at + AHEAD + CHUNK);
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
        // Half the lanes at a time where eight sums of eight lanes are more than the registers hold.
        for half in 0..Q::HALVES {
            core[half].most = zero;
            core[half] = add(x, y, core[half], half);
        }
        let most = Q::largest([core[0].most, core[1].most]);
        if most > sums.max_abs {
            sums.max_abs = most;
            most_at = at;
        }
        sums.max_x = sums.max_x.max(extremes.0.most);
        sums.max_y = sums.max_y.max(extremes.1.most);
        if FULL {
            note(x, y, &extremes, pair.format, &mut sums);
            let skipped = cleaned.as_ref().map(|c| &c.skipped);
            if skipped.is_none() && len.is_multiple_of(LANES) {
                more = add_and_count(x, y, more, &mut keys, tally);
                if extremes.0.least < pair.format.least_normal {
                    correct(x, y, &keys, pair.format, tally);
                }
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
        pair.at(most_at + place::<Q, X, Y>(x, y, sums.max_abs))
    });
    finish(core, more, &mut sums);
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
    let whole = len.next_multiple_of(LANES);
    buffer[..len].copy_from_slice(T::chunk(values, range, &mut own));
    // What was decoded before may still lie here.
    buffer[len..whole].fill(T::default());
    &buffer[..whole]
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

/// Index of the first pair of finite values that is `distance` apart.
#[inline(always)]
fn place<Q: Quad, X: Element, Y: Element>(x: &[X], y: &[Y], distance: f64) -> usize {
    for (i, (x, y)) in x.as_chunks::<LANES>().0.iter().zip(y.as_chunks::<LANES>().0).enumerate() {
        let mut found = false;
        for half in 0..Q::HALVES {
            found |= Y::quad::<Q>(y, half).sub(X::quad::<Q>(x, half)).abs().holds(distance);
        }
        if !found {
            continue;
        }
        let is_it = |(x, y): (&X, &Y)| {
            let (x, y) = (x.wide(), y.wide());
            x.is_finite() && y.is_finite() && (y - x).abs() == distance
        };
        if let Some(lane) = x.iter().zip(y).position(is_it) {
            return LANES * i + lane;
        }
    }
    0
}

/// Adds the lanes of one half of every group.
#[inline(always)]
fn add<Q: Quad, X: Element, Y: Element>(x: &[X], y: &[Y], mut c: Core<Q>, half: usize) -> Core<Q> {
    for (x, y) in x.as_chunks::<LANES>().0.iter().zip(y.as_chunks::<LANES>().0) {
        let (x, y) = (X::quad::<Q>(x, half), Y::quad::<Q>(y, half));
        let d = y.sub(x);
        c.x = c.x.add(x);
        c.y = c.y.add(y);
        // The product of two f32 values is exact in f64.
        c.xx = if X::IS_NARROW { c.xx.plus_exact(x, x) } else { c.xx.add(x.mul(x)) };
        c.yy = if Y::IS_NARROW { c.yy.plus_exact(y, y) } else { c.yy.add(y.mul(y)) };
        c.xy = if X::IS_NARROW && Y::IS_NARROW { c.xy.plus_exact(x, y) } else { c.xy.add(x.mul(y)) };
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
        for half in 0..Q::HALVES {
            let (x, y) = (X::quad::<Q>(x, half), Y::quad::<Q>(y, half));
            more[half] = plus(more[half], x, y.sub(x));
        }
    }
    more
}

/// The same, and counts every pair in one table that tells both histograms.
#[inline(always)]
fn add_and_count<Q: Quad, X: Element, Y: Element>(
    x: &[X],
    y: &[Y],
    mut more: [More<Q>; 2],
    keys: &mut [[u8; LANES]; CHUNK / LANES],
    tally: &mut Tally,
) -> [More<Q>; 2] {
    let groups = x.as_chunks::<LANES>().0.iter().zip(y.as_chunks::<LANES>().0);
    for ((x, y), keys) in groups.zip(keys.iter_mut()) {
        for half in 0..Q::HALVES {
            let (x, y) = (X::quad::<Q>(x, half), Y::quad::<Q>(y, half));
            let d = y.sub(x);
            more[half] = plus(more[half], x, d);
            d.keys(x, keys, half);
        }
    }
    tally.count(&keys[..x.len() / LANES]);
    more
}

#[inline(always)]
fn plus<Q: Quad>(m: More<Q>, x: Q, d: Q) -> More<Q> {
    More { xd: m.xd.add(x.mul(d)), outward_d: m.outward_d.add(d.signed_by(x)) }
}

/// Pairs whose golden value is below the format's normal numbers can't be told from their key: they are counted anew, one
/// by one.
#[inline(always)]
fn correct<X: Element, Y: Element>(
    x: &[X],
    y: &[Y],
    keys: &[[u8; LANES]; CHUNK / LANES],
    format: Format,
    tally: &mut Tally,
) {
    let sorter = Sort::of(format);
    let groups = x.as_chunks::<LANES>().0.iter().zip(y.as_chunks::<LANES>().0);
    for ((x, y), keys) in groups.zip(keys) {
        if X::extremes(x).least >= format.least_normal {
            continue;
        }
        for ((x, y), key) in x.iter().zip(y).zip(keys) {
            let (x, y) = (x.wide(), y.wide());
            if x.abs() < format.least_normal {
                tally.move_one(*key, sorter.slots(x, y - x));
            }
        }
    }
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

/// Counts a chunk in both histograms one by one: where pairs are left out, and in the odd end of a row.
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
fn finish<Q: Quad>(core: [Core<Q>; 2], more: [More<Q>; 2], sums: &mut Sums) {
    let [low, high] = core;
    sums.x = Q::join([low.x, high.x]);
    sums.y = Q::join([low.y, high.y]);
    sums.xx = Q::join([low.xx, high.xx]);
    sums.yy = Q::join([low.yy, high.yy]);
    sums.xy = Q::join([low.xy, high.xy]);
    sums.abs_d = Q::join([low.abs_d, high.abs_d]);
    sums.d = Q::join([low.d, high.d]);
    sums.dd = Q::join([low.dd, high.dd]);
    sums.xd = Q::join([more[0].xd, more[1].xd]);
    sums.outward_d = Q::join([more[0].outward_d, more[1].outward_d]);
}
