//! A small generator of pseudo-random numbers: physical pages are handed out in an order that no code may rely on.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Shuffle(u64);

impl Shuffle {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number under `n`, which must not be 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// True once in `n` times.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Hash of a context that ends in `token`, from the hash of what stood before it.
pub(crate) fn extend(prefix: u64, token: u32) -> u64 {
    mix(prefix.rotate_left(5) ^ u64::from(token).wrapping_add(0x9e37_79b9_7f4a_7c15))
}
