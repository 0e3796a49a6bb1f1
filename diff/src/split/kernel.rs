//! The inner loop of the split. Plain code that the compiler vectorises; `simd.rs` compiles it once an instruction set.
//!
//! Element i of a run goes to lane i mod 8; the lanes are joined at the end as ((0+4)+(2+6)) + ((1+5)+(3+7)). No
//! operation is fused, so every instruction set gives the same bits.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller in simd.rs")]

use super::SplitSums;
use crate::moments::Value;

const LANES: usize = 8;
/// Elements that are widened at a time; stays in the first-level cache.
const CHUNK: usize = 128;

/// golden², T², H², J², ⟨H,J⟩.
type Partial = [[f64; LANES]; 5];

/// A piece of the run in f64. Elements that don't count are zero in all four.
struct Chunk {
    a: [f64; CHUNK],
    t: [f64; CHUNK],
    h: [f64; CHUNK],
    j: [f64; CHUNK],
}

/// One pass over a run of triples of the same length.
#[inline(always)]
pub(super) fn pass<V: Value>(a: &[V], b: &[V], c: &[V]) -> SplitSums {
    let mut sums = SplitSums { n: a.len() as u64, ..SplitSums::default() };
    let mut partial: Partial = [[0.0; LANES]; 5];
    let mut chunk = Chunk { a: [0.0; CHUNK], t: [0.0; CHUNK], h: [0.0; CHUNK], j: [0.0; CHUNK] };
    for ((a, b), c) in a.chunks(CHUNK).zip(b.chunks(CHUNK)).zip(c.chunks(CHUNK)) {
        if !load(&mut chunk, a, b, c) {
            set_aside(&mut chunk, a, b, c, &mut sums);
        }
        add(&chunk, a.len().next_multiple_of(LANES), &mut partial);
    }
    let join = |v: &[f64; LANES]| ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
    let [golden2, total2, inherited2, injected2, cross] = partial.map(|v| join(&v));
    SplitSums { golden2, total2, inherited2, injected2, cross, ..sums }
}

/// Widens and subtracts; true when every value is finite.
#[inline(always)]
fn load<V: Value>(chunk: &mut Chunk, a: &[V], b: &[V], c: &[V]) -> bool {
    if a.len() < CHUNK {
        // What an earlier chunk left behind must not be added again.
        *chunk = Chunk { a: [0.0; CHUNK], t: [0.0; CHUNK], h: [0.0; CHUNK], j: [0.0; CHUNK] };
    }
    let mut probe = [0.0; LANES];
    for (i, ((a, b), c)) in a.iter().zip(b).zip(c).enumerate() {
        let (a, b, c) = (a.wide(), b.wide(), c.wide());
        chunk.a[i] = a;
        chunk.t[i] = c - a;
        chunk.h[i] = b - a;
        chunk.j[i] = c - b;
        // 0 for finite values, NaN otherwise; NaN stays.
        probe[i % LANES] += a * 0.0 + b * 0.0 + c * 0.0;
    }
    probe.iter().sum::<f64>() == 0.0
}

/// Counts the triples that are not finite and zeroes them.
#[cold]
fn set_aside<V: Value>(chunk: &mut Chunk, a: &[V], b: &[V], c: &[V], sums: &mut SplitSums) {
    for (i, ((a, b), c)) in a.iter().zip(b).zip(c).enumerate() {
        let triple = [a.wide(), b.wide(), c.wide()];
        if triple.iter().all(|v| v.is_finite()) {
            continue;
        }
        let masked = triple == [f64::NEG_INFINITY; 3];
        sums.masked += u64::from(masked);
        sums.nonfinite += u64::from(!masked);
        (chunk.a[i], chunk.t[i], chunk.h[i], chunk.j[i]) = (0.0, 0.0, 0.0, 0.0);
    }
}

#[inline(always)]
fn add(chunk: &Chunk, end: usize, p: &mut Partial) {
    let mut at = 0;
    while at < end {
        for l in 0..LANES {
            let (h, j) = (chunk.h[at + l], chunk.j[at + l]);
            p[2][l] += h * h;
            p[3][l] += j * j;
            p[4][l] += h * j;
        }
        at += LANES;
    }
    let mut at = 0;
    while at < end {
        for l in 0..LANES {
            p[0][l] += chunk.a[at + l] * chunk.a[at + l];
            p[1][l] += chunk.t[at + l] * chunk.t[at + l];
        }
        at += LANES;
    }
}
