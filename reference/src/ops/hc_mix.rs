//! Collapse of the streams into a branch and combination after it (spec 2.2).
//!
//! collapse: `x[t,:] = sum_j pre[t,j] * h[t,j,:]`, `[S,D]`.
//! combine: `h'[t,k,:] = post[t,k] * y[t,:] + sum_j comb[t,j,k] * h[t,j,:]`, `[S,hc,D]`: comb is summed over its FIRST
//! index, and h is the stream state that entered this part. Order of the sums: normative text of `linalg`.

use rayon::prelude::*;

use super::Ctx;
use super::hc_coefficients::Coefficients;
use crate::linalg::{Real, Scratch, mix_rows};

/// `[S,hc]` x `[S,hc,D]` to `[S,D]`.
pub(crate) fn collapse<T: Real>(ctx: Ctx<'_>, pre: &[T], h: &[T]) -> Vec<T> {
    let (hc, d) = (ctx.config.hc_mult, ctx.config.hidden_size);
    let mut x = vec![T::ZERO; h.len() / hc];
    let init = || (Scratch::default(), vec![0f64; d]);
    x.par_chunks_exact_mut(d).enumerate().with_min_len(16).for_each_init(init, |(scratch, sums), (t, x)| {
        let streams: Vec<&[T]> = h[t * hc * d..(t + 1) * hc * d].chunks_exact(d).collect();
        mix_rows(ctx.isa, &[&pre[t * hc..(t + 1) * hc]], &streams, d, sums, scratch);
        round(sums, x);
    });
    x
}

/// Streams after the part: `[S,hc,D]`.
pub(crate) fn combine<T: Real>(ctx: Ctx<'_>, mix: &Coefficients<T>, h: &[T], y: &[T]) -> Vec<T> {
    let (hc, d) = (ctx.config.hc_mult, ctx.config.hidden_size);
    let mut out = vec![T::ZERO; h.len()];
    let init = || (Scratch::default(), vec![0f64; hc * d], vec![T::ZERO; hc * (hc + 1)]);
    out.par_chunks_exact_mut(hc * d).enumerate().with_min_len(16).for_each_init(
        init,
        |(scratch, sums, a), (t, out)| {
            let comb = &mix.comb[t * hc * hc..(t + 1) * hc * hc];
            for (k, a) in a.chunks_exact_mut(hc + 1).enumerate() {
                for j in 0..hc {
                    a[j] = comb[j * hc + k];
                }
                a[hc] = mix.post[t * hc + k];
            }
            let a: Vec<&[T]> = a.chunks_exact(hc + 1).collect();
            let mut rows: Vec<&[T]> = h[t * hc * d..(t + 1) * hc * d].chunks_exact(d).collect();
            rows.push(&y[t * d..(t + 1) * d]);
            mix_rows(ctx.isa, &a, &rows, d, sums, scratch);
            round(sums, out);
        },
    );
    out
}

fn round<T: Real>(sums: &[f64], out: &mut [T]) {
    for (v, &sum) in out.iter_mut().zip(sums) {
        *v = T::of(sum);
    }
}
