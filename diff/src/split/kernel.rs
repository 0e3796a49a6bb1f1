//! The inner loop of the split, written over [`Quad`]; `simd.rs` compiles it once an instruction set.
//!
//! Element i of a run goes to lane i mod 8; the lanes are joined at the end as ((0+4)+(2+6)) + ((1+5)+(3+7)). No
//! operation is fused, so every instruction set gives the same bits.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller in simd.rs")]

use super::SplitSums;
use crate::quad::{LANES, Quad};
use crate::values::{CHUNK, Element};

/// golden², T², H², J², ⟨H,J⟩ of some lanes.
type Partial<Q> = [Q; 5];

/// One pass over a run of triples of the same length.
#[inline(always)]
pub(super) fn pass<Q: Quad, E: Element>(a: &[E], b: &[E], c: &[E]) -> SplitSums {
    let mut sums = SplitSums { n: a.len() as u64, ..SplitSums::default() };
    let mut partial: [Partial<Q>; 2] = [[Q::splat(0.0); 5]; 2];
    for ((a, b), c) in a.chunks(CHUNK).zip(b.chunks(CHUNK)).zip(c.chunks(CHUNK)) {
        let finite = E::extremes(a).finite && E::extremes(b).finite && E::extremes(c).finite;
        if finite && a.len().is_multiple_of(LANES) {
            partial = add(a, b, c, partial);
            continue;
        }
        // A copy, filled up with zeros: they add nothing.
        let own = set_aside(a, b, c, &mut sums);
        let end = a.len().next_multiple_of(LANES);
        partial = add(&own[0][..end], &own[1][..end], &own[2][..end], partial);
    }
    let [low, high] = partial;
    SplitSums {
        golden2: Q::join([low[0], high[0]]),
        total2: Q::join([low[1], high[1]]),
        inherited2: Q::join([low[2], high[2]]),
        injected2: Q::join([low[3], high[3]]),
        cross: Q::join([low[4], high[4]]),
        ..sums
    }
}

/// A copy of a chunk in which triples that are not finite are zero, and counted.
#[inline(never)]
fn set_aside<E: Element>(a: &[E], b: &[E], c: &[E], sums: &mut SplitSums) -> [[E; CHUNK]; 3] {
    let mut own = [[E::default(); CHUNK]; 3];
    for (i, ((a, b), c)) in a.iter().zip(b).zip(c).enumerate() {
        let triple = [a.wide(), b.wide(), c.wide()];
        if triple.iter().all(|v| v.is_finite()) {
            (own[0][i], own[1][i], own[2][i]) = (*a, *b, *c);
            continue;
        }
        let masked = triple == [f64::NEG_INFINITY; 3];
        sums.masked += u64::from(masked);
        sums.nonfinite += u64::from(!masked);
    }
    own
}

#[inline(always)]
fn add<Q: Quad, E: Element>(a: &[E], b: &[E], c: &[E], mut partial: [Partial<Q>; 2]) -> [Partial<Q>; 2] {
    let groups = a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0).zip(c.as_chunks::<LANES>().0);
    for ((a, b), c) in groups {
        for half in 0..Q::HALVES {
            partial[half] = plus(partial[half], E::quad(a, half), E::quad(b, half), E::quad(c, half));
        }
    }
    partial
}

#[inline(always)]
fn plus<Q: Quad>(p: Partial<Q>, a: Q, b: Q, c: Q) -> Partial<Q> {
    let (t, h, j) = (c.sub(a), b.sub(a), c.sub(b));
    [p[0].add(a.mul(a)), p[1].add(t.mul(t)), p[2].add(h.mul(h)), p[3].add(j.mul(j)), p[4].add(h.mul(j))]
}
