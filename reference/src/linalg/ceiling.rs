//! What this processor's multiply-add units give when nothing else is asked of it: the ceiling that products are held against.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use std::hint::black_box;
use std::time::Instant;

use rayon::prelude::*;

use super::simd::{Job, dispatch};
use super::simd_vector::{Machine, Vector};
use super::{LANES, Pool};

/// Independent chains at most; an instruction set runs as many as its registers hold.
const CHAINS: usize = 24;

/// Chains of fused multiply-adds that never leave the registers; their number goes to `flops`.
struct Chains<'a> {
    steps: usize,
    flops: &'a mut f64,
}

impl Job for Chains<'_> {
    #[inline(always)]
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(self) {
        let (a, b) = (M::Panel::<f32>::splat(black_box(0.999_999)), M::Panel::<f32>::splat(black_box(1e-6)));
        let mut chains = [M::Panel::<f32>::splat(1.0); CHAINS];
        for _ in 0..self.steps {
            for chain in &mut chains[..R * P] {
                *chain = chain.fma(a, b);
            }
        }
        let sum = chains[1..R * P].iter().fold(chains[0], |sum, chain| sum.add(*chain));
        let mut out = [0.0; LANES];
        sum.store(&mut out);
        black_box(out);
        *self.flops = (2 * LANES * R * P * self.steps) as f64;
    }
}

/// GFLOP/s of `threads` threads together: the best of five tries of some ten milliseconds.
///
/// # Errors
/// The threads can't be started.
pub fn ceiling(threads: usize) -> karat_model::Result<f64> {
    let pool = Pool::new(threads)?;
    let isa = pool.isa();
    let once = |steps: usize| {
        let start = Instant::now();
        let one = |_| {
            let mut flops = 0.0;
            dispatch(isa, Chains { steps, flops: &mut flops });
            flops
        };
        let flops: f64 = pool.install(|| (0..threads.max(1)).into_par_iter().with_max_len(1).map(one).sum());
        flops / start.elapsed().as_secs_f64() / 1e9
    };
    once(10_000);
    Ok((0..5).map(|_| once(300_000)).fold(0.0, f64::max))
}
