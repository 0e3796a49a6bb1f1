//! Histograms over powers of two.

/// Number of buckets.
const BUCKETS: usize = 64;
/// Slots: buckets, zeros, nowhere; rounded up so that any byte below it is one.
const SLOTS: usize = 128;
/// Slot of exact zeros.
pub(super) const ZERO: usize = BUCKETS;
/// Slot of what is not counted (padding, pairs that are not finite).
pub(super) const NOWHERE: usize = BUCKETS + 1;
/// Exponent of the lowest bucket of `|d|/|x|`.
pub(super) const RELATIVE_LOWEST: i32 = -48;
/// Exponent of the lowest bucket of ULP distance.
pub(super) const ULP_LOWEST: i32 = -32;
/// Offset of the highest bucket.
pub(super) const LAST: i32 = BUCKETS as i32 - 1;

/// Counts by slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counts([u64; SLOTS]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; SLOTS])
    }
}

impl Counts {
    /// Counts one element a slot number.
    #[inline]
    pub(super) fn add(&mut self, slots: &[u8]) {
        for slot in slots {
            // No slot number reaches SLOTS; the mask only spares the bounds check.
            self.0[usize::from(*slot) % SLOTS] += 1;
        }
    }

    /// Counts many in one slot.
    pub(super) fn add_many(&mut self, slot: usize, count: u64) {
        self.0[slot % SLOTS] += count;
    }

    pub(crate) fn merge(&mut self, later: &Self) {
        for (a, b) in self.0.iter_mut().zip(later.0) {
            *a += b;
        }
    }
}

/// How many values lie in each `[2^e, 2^(e+1))`. The lowest bucket also holds all that is smaller (but not zero), the
/// highest all that is larger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    lowest: i32,
    pub(super) counts: Counts,
}

impl Histogram {
    /// Empty histogram of `|d|/|x|`: 2^-48 to 2^16. `x = 0` with `d` not zero is in the highest bucket.
    pub fn relative() -> Self {
        Self { lowest: RELATIVE_LOWEST, counts: Counts::default() }
    }

    /// Empty histogram of ULP distance: 2^-32 to 2^32.
    pub fn ulp() -> Self {
        Self { lowest: ULP_LOWEST, counts: Counts::default() }
    }

    /// A stored histogram read back: counts of exact zeros and of each bucket from exponent `lowest` up.
    pub fn from_counts(lowest: i32, zeros: u64, buckets: &[u64]) -> Option<Self> {
        let mut counts = Counts::default();
        counts.0.get_mut(..BUCKETS)?.get_mut(..buckets.len())?.copy_from_slice(buckets);
        counts.0[ZERO] = zeros;
        Some(Self { lowest, counts })
    }

    /// Exponent of the lowest bucket.
    pub fn lowest(&self) -> i32 {
        self.lowest
    }

    /// Exact zeros.
    pub fn zeros(&self) -> u64 {
        self.counts.0[ZERO]
    }

    /// Counts of the buckets; entry `i` is `[2^(lowest+i), 2^(lowest+i+1))`.
    pub fn buckets(&self) -> &[u64] {
        &self.counts.0[..BUCKETS]
    }

    /// Values counted.
    pub fn len(&self) -> u64 {
        self.zeros() + self.buckets().iter().sum::<u64>()
    }

    /// True when nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds another histogram of the same kind.
    pub fn merge(&mut self, other: &Self) {
        debug_assert_eq!(self.lowest, other.lowest, "histograms of one kind");
        self.counts.merge(&other.counts);
    }

    /// The value below which a share `q` (0 to 1) of all values lies, linear within a bucket (so right to within a
    /// factor of 2); `None` when nothing was counted.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        if self.is_empty() {
            return None;
        }
        let rank = q.clamp(0.0, 1.0) * self.len() as f64;
        let mut below = self.zeros() as f64;
        if rank <= below {
            return Some(0.0);
        }
        let mut edge = 0.0;
        for (i, &count) in self.buckets().iter().enumerate().filter(|(_, count)| **count > 0) {
            let low = f64::exp2(f64::from(self.lowest) + i as f64);
            edge = 2.0 * low;
            if rank <= below + count as f64 {
                return Some(low + low * (rank - below) / count as f64);
            }
            below += count as f64;
        }
        Some(edge)
    }
}
