//! What a row's sketch is: the definition, in plain loops. `simd_row.rs` computes the same bits side by side.

use karat_seam::SketchLine;

use super::columns::Rows;
use super::simd_row;

/// Signed sums of a row.
pub const SUMS: usize = 16;

/// Values over which f32 sums are taken before they go into f64, and after which keys and signs come back.
pub(super) const BLOCK: usize = 1024;

/// Sizes, as bits, between which squares are summed in f32: 2^-40 and 2^60. No square of such a row's largest values overflows
/// or is lost, nor does a sum of a block. Outside (zero apart) the row goes through [`careful`].
const PLAIN: std::ops::Range<u32> = ((127 - 40) << 23)..((127 + 60) << 23);

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

/// Signs of the values of a block, as the bit that turns them.
pub(super) static SIGNS: [[u32; SUMS]; BLOCK / SUMS] = {
    let mut out = [[0; SUMS]; BLOCK / SUMS];
    let mut i = 0;
    while i < BLOCK {
        out[i / SUMS][i % SUMS] = mixed(i as u64) as u32 & 0x8000_0000;
        i += 1;
    }
    out
};

/// The same as factors.
#[cfg(target_arch = "x86_64")]
pub(super) static TURNS: [[f32; SUMS]; BLOCK / SUMS] = {
    let mut out = [[1.0; SUMS]; BLOCK / SUMS];
    let mut i = 0;
    while i < BLOCK {
        if SIGNS[i / SUMS][i % SUMS] != 0 {
            out[i / SUMS][i % SUMS] = -1.0;
        }
        i += 1;
    }
    out
};

/// What is added to the bits of the values of a block before they are multiplied.
pub(super) static KEYS: [[u32; SUMS]; BLOCK / SUMS] = {
    let mut out = [[0; SUMS]; BLOCK / SUMS];
    let mut i = 0;
    while i < BLOCK {
        out[i / SUMS][i % SUMS] = (mixed(!(i as u64)) >> 32) as u32;
        i += 1;
    }
    out
};

/// splitmix64's last step: all bits of a number depend on all of it, and no two numbers give one.
pub(super) const fn mixed(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Sums of a block of a row.
#[derive(Debug, PartialEq)]
pub(super) struct BlockSums {
    /// Sums of squares in each lane, added in f64: i and i + 8, then i and i + 4, and so on.
    pub(super) squares: f64,
    /// Signed sums in each lane.
    pub(super) sums: [f32; SUMS],
    /// Bits of the largest size.
    pub(super) largest: u32,
    /// Sum over pairs of keyed values (x, y) of (x + 2^32)(y + 1), without the 2^32 of each: one changed value always changes
    /// it, two or more leave it alone once in 2^32 sets of keys at most (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC's NH).
    pub(super) pairs: u64,
}

/// One after the other: lane i has values i, i + 16, ...; a last line that is not full ends in zeros.
pub(super) fn block(values: &[f32]) -> BlockSums {
    let (mut squares, mut sums, mut largest, mut pairs) = ([0f32; SUMS], [0f32; SUMS], 0, 0u64);
    for (values, (signs, keys)) in values.chunks(SUMS).zip(SIGNS.iter().zip(&KEYS)) {
        let mut keyed = *keys;
        for (i, value) in values.iter().enumerate() {
            let bits = value.to_bits();
            squares[i] += value * value;
            sums[i] += f32::from_bits(bits ^ signs[i]);
            largest = largest.max(bits & 0x7fff_ffff);
            keyed[i] = keys[i].wrapping_add(bits);
        }
        // What is missing at the end is zero, which leaves a sum as it is unless that is -0.
        for i in values.len()..SUMS {
            sums[i] += f32::from_bits(signs[i]);
        }
        pairs = pairs.wrapping_add(paired(&keyed));
    }
    BlockSums { squares: added(&squares), sums, largest, pairs }
}

fn paired(keyed: &[u32; SUMS]) -> u64 {
    let pairs = keyed.as_chunks::<2>().0.iter();
    let one = |[x, y]: &[u32; 2]| {
        let (x, y) = (u64::from(*x), u64::from(*y));
        x.wrapping_mul(y).wrapping_add(y << 32 | x)
    };
    pairs.map(one).fold(0, u64::wrapping_add)
}

/// Whether a row with this largest size, as bits, can do with f32 sums.
pub(super) fn is_plain(largest: u32) -> bool {
    largest == 0 || PLAIN.contains(&largest)
}

/// Lanes as one number.
pub(super) fn added(lanes: &[f32; SUMS]) -> f64 {
    let mut wide = lanes.map(f64::from);
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            wide[i] += wide[i + half];
        }
    }
    wide[0]
}

impl RowSketch {
    /// Of a row's values, by the fastest instruction set of this machine that there is code for.
    pub fn of(row: &[f32]) -> Self {
        let (mut projection, mut norm, mut absmax) = ([[0.0; SUMS]], [0.0], [0.0]);
        let (mut hash, mut nonfinite) = ([0], [0]);
        let to = Rows {
            projection: &mut projection,
            norm: &mut norm,
            absmax: &mut absmax,
            hash: &mut hash,
            nonfinite: &mut nonfinite,
        };
        simd_row::fill(to, row, row.len(), |row| row);
        let ([projection], [norm], [absmax], [hash], [nonfinite]) = (projection, norm, absmax, hash, nonfinite);
        Self { norm, absmax, projection, nonfinite: nonfinite as u32, hash }
    }

    /// What a device said of a row.
    pub fn from_line(line: &SketchLine) -> Self {
        let mut projection = [0.0; SUMS];
        projection.iter_mut().zip(&line[2..]).for_each(|(to, bits)| *to = f32::from_bits(*bits));
        Self {
            norm: f32::from_bits(line[0]),
            absmax: f32::from_bits(line[1]),
            projection,
            nonfinite: line[18],
            hash: (u64::from(line[20]) << 32 | u64::from(line[19])) as i64,
        }
    }

    /// The same, by a given way to sum a block, which becomes one loop with the caller's over rows.
    #[inline]
    pub(super) fn by(row: &[f32], block: impl Fn(&[f32]) -> BlockSums) -> Self {
        let (first, rest) = row.split_at(row.len().min(BLOCK));
        let BlockSums { mut squares, sums, mut largest, pairs } = block(first);
        let mut hash = mixed(row.len() as u64 ^ pairs);
        let mut projection = sums;
        if !rest.is_empty() {
            let mut wide = sums.map(f64::from);
            for (i, values) in rest.chunks(BLOCK).enumerate() {
                let own = block(values);
                squares += own.squares;
                largest = largest.max(own.largest);
                hash = mixed(hash ^ own.pairs);
                let turn = turn(i + 1);
                wide.iter_mut().zip(own.sums).for_each(|(to, from)| *to += turn * f64::from(from));
            }
            projection = wide.map(|v| v as f32);
        }
        if !is_plain(largest) {
            return Self { hash: hash as i64, ..careful(row) };
        }
        Self {
            norm: squares.sqrt() as f32,
            absmax: f32::from_bits(largest),
            projection,
            nonfinite: 0,
            hash: hash as i64,
        }
    }
}

/// The same signs come back in each block, turned by the block's own; the first one's is none.
fn turn(number: usize) -> f64 {
    if number == 0 || mixed(!(number as u64)) >> 63 == 0 { 1.0 } else { -1.0 }
}

/// A row that holds what is not finite, or whose squares f32 doesn't hold: all in f64, without the hash.
#[cold]
pub(super) fn careful(row: &[f32]) -> RowSketch {
    let (mut squares, mut sums, mut largest, mut nonfinite) = (0.0, [0.0; SUMS], 0f32, 0);
    for (number, values) in row.chunks(BLOCK).enumerate() {
        let turn = turn(number);
        for (i, value) in values.iter().enumerate() {
            if !value.is_finite() {
                nonfinite += 1;
                continue;
            }
            squares += f64::from(*value).powi(2);
            sums[i % SUMS] += turn * f64::from(f32::from_bits(value.to_bits() ^ SIGNS[i / SUMS][i % SUMS]));
            largest = largest.max(value.abs());
        }
    }
    let projection = sums.map(|v: f64| v as f32);
    RowSketch { norm: squares.sqrt() as f32, absmax: largest, projection, nonfinite, hash: 0 }
}

/// The hash of a row of `n` values that are no f32, from their bytes in order, four a word; a last one that is not full ends in
/// zeros.
pub(super) fn hash(n: usize, bytes: &[u8]) -> i64 {
    hash_by(n, bytes, simd_row::best_pairs())
}

/// The same, by a given way to sum pairs.
pub(super) fn hash_by(n: usize, bytes: &[u8], pairs: fn(&[[u32; SUMS]]) -> u64) -> i64 {
    // Most rows are short, and clearing a whole block for each would cost more than to hash them.
    if bytes.len() <= 8 * SUMS * 4 {
        hash_in::<8>(n, bytes, pairs)
    } else {
        hash_in::<{ BLOCK / SUMS }>(n, bytes, pairs)
    }
}

/// In a block of L lines: all of them, or as many as hold the bytes.
fn hash_in<const L: usize>(n: usize, bytes: &[u8], pairs: fn(&[[u32; SUMS]]) -> u64) -> i64 {
    let mut lines = [[0; SUMS]; L];
    let mut hash = n as u64;
    // The first block counts even if it is empty, as with f32.
    let rest = bytes.get(BLOCK * 4..).unwrap_or_default();
    for block in std::iter::once(&bytes[..bytes.len() - rest.len()]).chain(rest.chunks(BLOCK * 4)) {
        let count = block.len().div_ceil(SUMS * 4);
        for (line, bytes) in lines.iter_mut().zip(block.chunks(SUMS * 4)) {
            let mut whole = [0; SUMS * 4];
            whole[..bytes.len()].copy_from_slice(bytes);
            line.iter_mut().zip(whole.as_chunks::<4>().0).for_each(|(to, word)| *to = u32::from_le_bytes(*word));
        }
        hash = mixed(hash ^ pairs(&lines[..count]));
    }
    hash as i64
}

/// [`BlockSums::pairs`] of at most a block of words.
pub(super) fn pairs(lines: &[[u32; SUMS]]) -> u64 {
    let one =
        |(words, keys): (&[u32; SUMS], &[u32; SUMS])| paired(&std::array::from_fn(|i| words[i].wrapping_add(keys[i])));
    lines.iter().zip(&KEYS).map(one).fold(0, u64::wrapping_add)
}
