//! Random numbers that are the same bits everywhere.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;
use sha2::{Digest, Sha256};

/// One tensor's random stream.
pub(super) struct Stream(Pcg64);

impl Stream {
    /// The stream of `name` under `seed`. Names and seeds do not interfere: the name picks the increment.
    pub(super) fn new(seed: u64, name: &str) -> Self {
        let digest = Sha256::digest(name.as_bytes());
        let mut increment = [0; 16];
        increment.copy_from_slice(&digest[..16]);
        Self(Pcg64::new(u128::from(seed), u128::from_le_bytes(increment)))
    }

    /// Nearly standard normal: twelve 16-bit uniforms summed as integers, their mean taken off, over 2^16.
    /// Variance 1 - 2^-32, range +-6; the sum is below 2^20, so the f32 is exact.
    pub(super) fn normal(&mut self) -> f32 {
        let mut sum = -6 * 65535_i64;
        for _ in 0..3 {
            let bits = self.0.next_u64();
            sum += (0..4).map(|i| ((bits >> (16 * i)) & 0xffff) as i64).sum::<i64>();
        }
        sum as f32 / 65536.0
    }

    /// Uniform in [0, 1) with 24 bits.
    pub(super) fn uniform(&mut self) -> f32 {
        (self.0.next_u64() >> 40) as f32 / 16_777_216.0
    }

    /// Uniform in 0..n by the high half of a product (n is small: the bias is below n/2^32).
    pub(super) fn below(&mut self, n: usize) -> usize {
        (((self.0.next_u64() >> 32) * n as u64) >> 32) as usize
    }
}
