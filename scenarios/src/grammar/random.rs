//! A small seeded generator (SplitMix64) with the draws that the grammar needs.

/// Seeded random numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator of one row of one stream: `seed` names the stream.
    pub fn new(seed: u64, row: u64) -> Self {
        let mut r = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ row.wrapping_mul(0xd1b5_4a32_d192_ed03));
        r.next();
        r
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, which is at least 1.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high.max(low) - low + 1)
    }

    /// True with this probability.
    pub fn chance(&mut self, p: f64) -> bool {
        ((self.next() >> 11) as f64 / (1_u64 << 53) as f64) < p
    }

    /// One of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// `n` distinct items in random order (all of them if there are fewer).
    pub fn some<T: Clone>(&mut self, items: &[T], n: usize) -> Vec<T> {
        let mut all = items.to_vec();
        self.shuffle(&mut all);
        all.truncate(n);
        all
    }

    /// Random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
