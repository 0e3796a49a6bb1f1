//! Counting of a pass: in which histogram buckets a pair lies.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller in simd.rs")]

use super::histogram::{Counts, LAST, NOWHERE, RELATIVE_LOWEST, ULP_LOWEST, ZERO};
use super::offenders::Worst;
use super::{BIAS, Format};
use crate::quad::KEY_ZERO;

const SIGN: u64 = 1 << 63;
/// Neighbours often fall in one bucket, and its next count would wait for the last one's store.
const TABLES: usize = 4;

/// What one unit of work counts with.
pub(crate) struct Tally {
    /// By [`crate::quad::Quad::keys`].
    keys: [[u32; 256]; TABLES],
    pub(super) relative: Counts,
    pub(super) ulp: Counts,
    pub(super) offenders: Worst,
}

impl Default for Tally {
    fn default() -> Self {
        let (relative, ulp) = (Counts::default(), Counts::default());
        Self { keys: [[0; 256]; TABLES], relative, ulp, offenders: Worst::default() }
    }
}

impl Tally {
    /// Counts each key.
    #[inline(always)]
    pub(super) fn count(&mut self, keys: &[[u8; 8]]) {
        for group in keys {
            for (i, key) in group.iter().enumerate() {
                let count = &mut self.keys[i % TABLES][usize::from(*key)];
                *count = count.wrapping_add(1);
            }
        }
    }

    /// Takes back a key that was counted, and counts these slots of the histograms.
    #[inline(always)]
    pub(super) fn move_one(&mut self, key: u8, (relative, ulp): (u8, u8)) {
        // Which table counted it does not matter: only their sum does.
        let count = &mut self.keys[0][usize::from(key)];
        *count = count.wrapping_sub(1);
        self.relative.add(&[relative]);
        self.ulp.add(&[ulp]);
    }

    /// Both histograms' counts.
    pub(super) fn settle(mut self, format: Format) -> (Counts, Counts) {
        for key in 0..256 {
            let count = u64::from(self.keys.iter().fold(0u32, |sum, table| sum.wrapping_add(table[key])));
            if count == 0 {
                continue;
            }
            let (mut relative, mut ulp) = (ZERO, ZERO);
            if key > 0 {
                let sum = key as i32 - KEY_ZERO;
                let e = (sum + 1).div_euclid(2);
                relative = (sum - e - RELATIVE_LOWEST).clamp(0, LAST) as usize;
                ulp = (e + format.mantissa - ULP_LOWEST).clamp(0, LAST) as usize;
            }
            self.relative.add_many(relative, count);
            self.ulp.add_many(ulp, count);
        }
        (self.relative, self.ulp)
    }
}

/// Buckets of one pair at a time.
#[derive(Clone, Copy)]
pub(super) struct Sort {
    lowest_ulp: i32,
    mantissa: i32,
}

impl Sort {
    /// Slots of a pair that is not counted.
    pub(super) const NOWHERE: (u8, u8) = (NOWHERE as u8, NOWHERE as u8);

    pub(super) fn of(format: Format) -> Self {
        Self { lowest_ulp: format.min_exponent + BIAS, mantissa: format.mantissa }
    }

    /// Slots in the histograms of |d|/|x| and of ulp. The difference of two positive f64 bit patterns, shifted right by
    /// the 52 bits of mantissa, is floor(log2 d/x): exactly, and without a division.
    #[inline(always)]
    pub(super) fn slots(self, x: f64, d: f64) -> (u8, u8) {
        let (x, d) = (x.to_bits() & !SIGN, d.to_bits() & !SIGN);
        let (high_x, high_d) = ((x >> 32) as i32, (d >> 32) as i32);
        let ratio = ((d.wrapping_sub(x) >> 32) as i32 >> 20) - RELATIVE_LOWEST;
        let spacing = (high_x >> 20).max(self.lowest_ulp) - self.mantissa;
        let distance = (high_d >> 20) - spacing - ULP_LOWEST;
        if d == 0 {
            return (ZERO as u8, ZERO as u8);
        }
        (ratio.clamp(0, LAST) as u8, distance.clamp(0, LAST) as u8)
    }
}
