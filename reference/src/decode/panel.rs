//! A stored weight in the order in which products read it, as vector loops: LANES outputs side by side, input by input.
//!
//! The same values as [`Decoder::row`], bit by bit: an f32 is put together from the bits of its code and takes the same
//! products with its scales.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use std::ops::Range;

use karat_model::checkpoint::{Dtype, Encoding};

use super::Decoder;
use crate::linalg::{BYTES, Bits, Isa, Job, LANES, Machine, Real, Stored, Vector, WORDS, dispatch};

/// Codes of a format in the words of a row; the first is in the lowest bits.
trait Codes {
    /// Codes a word.
    const PER_WORD: usize;
    /// Value of code i of each word.
    fn value<V: Bits>(words: V, i: u32) -> V;
    /// Values times their blocks' scales, and what scales all.
    #[inline(always)]
    fn scaled<V: Bits>(values: V, scale: V, _all: V) -> V {
        values.mul(scale)
    }
}

/// `1.m * 2^(e - bias)` read for every e including zero becomes the value: with `lowest` = 2^(1 - bias) what a subnormal is,
/// twice that less `lowest`, is the lower of the two exactly where e is zero.
#[inline(always)]
fn with_subnormals<V: Bits>(normal: V, lowest: f32) -> V {
    normal.add(normal).add(V::splat(-lowest)).lower(normal)
}

/// A sign, some bits of exponent and mantissa at the top of a word: moved `down` to an f32's place and the exponent shifted.
#[inline(always)]
fn of_top<V: Bits>(top: V, down: u32, mask: u32, bias: u32, lowest: f32) -> V {
    let normal = top.down(down).and(V::bits(mask)).plus(V::bits(bias << 23));
    with_subnormals(normal, lowest).or(top.and(V::bits(1 << 31)))
}

struct Mxfp4;

impl Codes for Mxfp4 {
    const PER_WORD: usize = 8;
    #[inline(always)]
    fn value<V: Bits>(words: V, i: u32) -> V {
        words.down(4 * i).e2m1()
    }
}

struct Nvfp4;

impl Codes for Nvfp4 {
    const PER_WORD: usize = Mxfp4::PER_WORD;
    #[inline(always)]
    fn value<V: Bits>(words: V, i: u32) -> V {
        Mxfp4::value(words, i)
    }
    #[inline(always)]
    fn scaled<V: Bits>(values: V, scale: V, all: V) -> V {
        values.mul(scale).mul(all)
    }
}

struct E4m3;

impl Codes for E4m3 {
    const PER_WORD: usize = 4;
    #[inline(always)]
    fn value<V: Bits>(words: V, i: u32) -> V {
        of_top(words.up(24 - 8 * i), 4, 0x7F << 20, 120, 0.015_625)
    }
}

struct Bf16;

impl Codes for Bf16 {
    const PER_WORD: usize = 2;
    #[inline(always)]
    fn value<V: Bits>(words: V, i: u32) -> V {
        words.up(16 - 16 * i).and(V::bits(0xFFFF_0000))
    }
    #[inline(always)]
    fn scaled<V: Bits>(values: V, _: V, _: V) -> V {
        values
    }
}

struct Single;

impl Codes for Single {
    const PER_WORD: usize = 1;
    #[inline(always)]
    fn value<V: Bits>(words: V, _: u32) -> V {
        words
    }
    #[inline(always)]
    fn scaled<V: Bits>(values: V, _: V, _: V) -> V {
        values
    }
}

/// Scales of some rows, one a `group` of inputs, and what scales all. Without scales the group is as long as the row.
struct Scales<'a> {
    rows: [&'a [f32]; LANES],
    group: usize,
    all: f32,
}

impl Scales<'_> {
    /// Those of a group; zero where there is no row.
    #[inline(always)]
    fn at<V: Bits>(&self, group: usize) -> V {
        let mut out = [0.0; LANES];
        for (scale, row) in out.iter_mut().zip(&self.rows) {
            *scale = row.get(group).copied().unwrap_or(0.0);
        }
        V::of(&out)
    }
}

struct Panel<'a, T, C> {
    _codes: C,
    /// Bytes of the inputs; none for an output that isn't there.
    bytes: [&'a [u8]; LANES],
    scales: Scales<'a>,
    /// The first input.
    first: usize,
    out: &'a mut [[T; LANES]],
}

impl<T: Real, C: Codes> Job for Panel<'_, T, C> {
    #[inline(always)]
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(self) {
        let Self { bytes, scales, first, out, .. } = self;
        let all = M::Single::splat(scales.all);
        let (mut group, mut left) = (first / scales.group, scales.group - first % scales.group);
        let mut scale: M::Single = scales.at(group);
        for (unit, out) in out.chunks_mut(WORDS * C::PER_WORD).enumerate() {
            let mut padded = [[0; BYTES]; LANES];
            let mut rows = [&[0; BYTES]; LANES];
            for ((row, padded), bytes) in rows.iter_mut().zip(&mut padded).zip(&bytes) {
                let rest = bytes.get(unit * BYTES..).unwrap_or_default();
                *row = rest.first_chunk().unwrap_or_else(|| {
                    padded[..rest.len()].copy_from_slice(rest);
                    padded
                });
            }
            let words = M::Single::words(&rows);
            let mut next = || {
                if left == 0 {
                    (group, left) = (group + 1, scales.group);
                    scale = scales.at(group);
                }
                left = left.saturating_sub(C::PER_WORD);
                scale
            };
            if out.len() == WORDS * C::PER_WORD {
                // Loops of a known length, so that words stay in registers.
                for q in 0..WORDS {
                    let scale = next();
                    for i in 0..C::PER_WORD {
                        put(C::scaled(C::value(words[q], i as u32), scale, all), &mut out[C::PER_WORD * q + i]);
                    }
                }
                continue;
            }
            for (words, out) in words.into_iter().zip(out.chunks_mut(C::PER_WORD)) {
                let scale = next();
                for (i, out) in out.iter_mut().enumerate() {
                    put(C::scaled(C::value(words, i as u32), scale, all), out);
                }
            }
        }
    }
}

#[inline(always)]
fn put<T: Real>(values: impl Vector<f32>, out: &mut [T; LANES]) {
    let mut lanes = [0.0; LANES];
    values.store(&mut lanes);
    for lane in 0..LANES {
        out[lane] = T::of_f32(lanes[lane]);
    }
}

impl<T: Real> Stored<T> for Decoder<'_> {
    fn inputs(&self) -> usize {
        self.cols()
    }

    fn panel(&self, isa: Isa, rows: Range<usize>, ks: Range<usize>, out: &mut [[T; LANES]]) {
        assert!(rows.len() <= LANES && rows.end <= self.rows() && ks.end <= self.cols() && ks.len() == out.len());
        let weight = &self.weight;
        let (per_word, group) = match weight.encoding {
            Encoding::Plain => (1, self.cols().max(1)),
            Encoding::Fp8Block { block: [_, c] } => (4, c),
            Encoding::Mxfp4 => (8, 32),
            Encoding::Nvfp4 => (8, 16),
        };
        // Words that span two groups, or begin in front of the first input.
        if !(group.is_multiple_of(per_word) || weight.encoding == Encoding::Plain) || !ks.start.is_multiple_of(per_word)
        {
            return self.panel_by_rows(rows, ks, out);
        }
        let (mut bytes, mut scales) = ([&[][..]; LANES], [&[][..]; LANES]);
        for (lane, n) in rows.enumerate() {
            bytes[lane] = self.bytes(n, &ks);
            scales[lane] = self.scales_of(n);
        }
        let (scales, first) = (Scales { rows: scales, group, all: self.global }, ks.start);
        match (weight.encoding, weight.data.dtype) {
            (Encoding::Plain, Dtype::Bf16) => dispatch(isa, Panel { _codes: Bf16, bytes, scales, first, out }),
            (Encoding::Plain, _) => dispatch(isa, Panel { _codes: Single, bytes, scales, first, out }),
            (Encoding::Fp8Block { .. }, _) => dispatch(isa, Panel { _codes: E4m3, bytes, scales, first, out }),
            (Encoding::Mxfp4, _) => dispatch(isa, Panel { _codes: Mxfp4, bytes, scales, first, out }),
            (Encoding::Nvfp4, _) => dispatch(isa, Panel { _codes: Nvfp4, bytes, scales, first, out }),
        }
    }
}

impl Decoder<'_> {
    /// The same value by value: for blocks of odd sizes, which no released checkpoint has.
    fn panel_by_rows<T: Real>(&self, rows: Range<usize>, ks: Range<usize>, out: &mut [[T; LANES]]) {
        let mut row = vec![T::ZERO; self.cols()];
        out.fill([T::ZERO; LANES]);
        for (lane, n) in rows.enumerate() {
            self.row(n, &mut row);
            for (out, &v) in out.iter_mut().zip(&row[ks.clone()]) {
                out[lane] = v;
            }
        }
    }
}
