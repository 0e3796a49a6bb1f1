//! Seeded numbers, quick enough for hundreds of millions of them.

use half::bf16;

/// A generator (splitmix64): the same numbers for a seed on every machine.
pub(super) struct Random(u64);

impl Random {
    /// Starts at a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// 64 bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number in 0..n.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(n)) >> 32) as u32
    }

    /// About normal, deviation 1: the sum of four uniform numbers, bounded by 3.5.
    pub(super) fn normal(&mut self) -> f32 {
        let bits = self.bits();
        let sum: i64 = (0..4).map(|i| ((bits >> (16 * i)) & 0xffff) as i64).sum();
        (sum - 131_070) as f32 * (1.732 / 65_536.0)
    }

    /// `n` of them times `scale`, f32.
    pub(super) fn f32s(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.normal() * scale).collect()
    }

    /// `n` of them, bits of bf16.
    pub(super) fn bf16s(&mut self, n: usize) -> Vec<u16> {
        // A table of many thousand numbers, walked in a random order: conversions would take longer than everything else.
        let table: Vec<u16> = (0..1 << 16).map(|_| to_bf16(self.normal())).collect();
        let mut out = Vec::with_capacity(n + 4);
        while out.len() < n {
            let bits = self.bits();
            out.extend((0..4).map(|i| table[((bits >> (16 * i)) & 0xffff) as usize]));
        }
        out.truncate(n);
        out
    }
}

/// Bits of the nearest bf16.
pub(super) fn to_bf16(v: f32) -> u16 {
    bf16::from_f32(v).to_bits()
}

/// Value of bf16 bits.
pub(super) fn from_bf16(bits: u16) -> f32 {
    bf16::from_bits(bits).to_f32()
}

/// A f32 matrix as bf16 terms, largest first: [terms, n].
pub(super) fn terms(values: &[f32], count: usize) -> Vec<u16> {
    let mut rest = values.to_vec();
    let mut out = Vec::with_capacity(values.len() * count);
    for _ in 0..count {
        for v in &mut rest {
            let bits = to_bf16(*v);
            out.push(bits);
            *v -= from_bf16(bits);
        }
    }
    out
}
