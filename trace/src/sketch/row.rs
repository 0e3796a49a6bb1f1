//! One row's sketch: one pass over its values, 16 side by side, no branch.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller in simd_call.rs")]

use super::simd_call;

/// Signed sums of a row.
pub const SUMS: usize = 16;

/// Values over which f32 sums of squares are taken before they go into f64.
const BLOCK: usize = 1024;

/// What is kept of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowSketch {
    /// Root of the sum of squares of the finite values.
    pub norm: f32,
    /// Largest size of a finite value.
    pub absmax: f32,
    /// Signed sums of the finite values.
    pub projection: [f32; SUMS],
    /// Values that are not finite.
    pub nonfinite: u32,
    /// Of the bits of all values, in order.
    pub hash: i64,
}

/// Signs of the values of a block, as the bit that turns them: bits of a multiplied counter.
const SIGNS: [u32; BLOCK] = {
    let mut out = [0; BLOCK];
    let mut i = 0;
    while i < BLOCK {
        out[i] = mixed(i as u64) as u32 & 0x8000_0000;
        i += 1;
    }
    out
};

/// splitmix64's last step: all bits of a number depend on all of it.
const fn mixed(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Sums over the lanes.
struct Lanes {
    squares: [f32; SUMS],
    sums: [f32; SUMS],
    largest: [u32; SUMS],
    bad: [u32; SUMS],
    /// Sum of bits, and sum of those sums: an order of values is told by the second.
    first: [u32; SUMS],
    second: [u32; SUMS],
}

impl Lanes {
    #[inline(always)]
    fn take(&mut self, bits: &[u32; SUMS], signs: &[u32; SUMS]) {
        for i in 0..SUMS {
            let size = bits[i] & 0x7fff_ffff;
            let is_finite = u32::from(size < 0x7f80_0000);
            // All bits or none.
            let mask = is_finite.wrapping_neg();
            let value = f32::from_bits(bits[i] & mask);
            self.squares[i] += value * value;
            self.sums[i] += f32::from_bits((bits[i] & mask) ^ signs[i]);
            self.largest[i] = self.largest[i].max(size & mask);
            self.bad[i] += 1 - is_finite;
            self.first[i] = self.first[i].wrapping_add(bits[i]);
            self.second[i] = self.second[i].wrapping_add(self.first[i]);
        }
    }
}

impl RowSketch {
    /// Of a row's values.
    pub fn of(row: &[f32]) -> Self {
        simd_call::of(row)
    }

    /// The same, for the instruction set of the caller.
    #[inline(always)]
    pub(super) fn with_own_instructions(row: &[f32]) -> Self {
        let zero = [0.0; SUMS];
        let none = [0; SUMS];
        let mut lanes = Lanes { squares: zero, sums: zero, largest: none, bad: none, first: none, second: none };
        let (mut squares, mut sums) = (0.0f64, [0.0f64; SUMS]);
        for (number, block) in row.chunks(BLOCK).enumerate() {
            (lanes.squares, lanes.sums) = (zero, zero);
            let (whole, rest) = block.as_chunks::<SUMS>();
            let (signs, last) = SIGNS.as_chunks::<SUMS>();
            for (values, signs) in whole.iter().zip(signs) {
                lanes.take(&values.map(f32::to_bits), signs);
            }
            if !rest.is_empty() {
                debug_assert!(last.is_empty(), "a block is whole lanes");
                let mut bits = [0; SUMS];
                bits.iter_mut().zip(rest).for_each(|(to, from)| *to = from.to_bits());
                lanes.take(&bits, &signs[whole.len()]);
            }
            squares += lanes.squares.iter().map(|v| f64::from(*v)).sum::<f64>();
            if row.len() <= BLOCK {
                sums = lanes.sums.map(f64::from);
                break;
            }
            // The same signs come back in each block, turned by the block's own.
            let turn = if mixed(!(number as u64)) >> 63 == 0 { 1.0 } else { -1.0 };
            sums.iter_mut().zip(lanes.sums).for_each(|(to, from)| *to += turn * f64::from(from));
        }
        let largest = lanes.largest.into_iter().max().unwrap_or(0);
        Self {
            norm: squares.sqrt() as f32,
            absmax: f32::from_bits(largest),
            projection: sums.map(|v| v as f32),
            nonfinite: lanes.bad.into_iter().sum(),
            hash: joined(&lanes.first, &lanes.second, row.len()),
        }
    }
}

/// Sums of all lanes as one number.
fn joined(first: &[u32; SUMS], second: &[u32; SUMS], n: usize) -> i64 {
    let step = |hash: u64, lane: u64| (hash.rotate_left(5) ^ lane).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let lanes = first.iter().zip(second).map(|(a, b)| u64::from(*a) << 32 | u64::from(*b));
    mixed(lanes.fold(n as u64, step)) as i64
}

/// The hash of other values' bits.
pub(super) fn hash(bits: impl Iterator<Item = u32>) -> i64 {
    let (mut first, mut second, mut n) = ([0u32; SUMS], [0u32; SUMS], 0);
    for bits in bits {
        let i = n % SUMS;
        first[i] = first[i].wrapping_add(bits);
        second[i] = second[i].wrapping_add(first[i]);
        n += 1;
    }
    joined(&first, &second, n)
}
