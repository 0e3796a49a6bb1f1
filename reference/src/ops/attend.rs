//! Sink attention over the sliding window and the selected entries (spec 2.9).
//!
//! Keys of the query at position t, in order: raw kv at positions max(0, t-W+1)..=t, then the selected entries by index.
//! `s[h,k] = (q[t,h] . key_k) * hd^-0.5` (scale after the dot product), `m = max_k s`,
//! `den[h] = sum_k exp(s-m) + exp(sink[h] - m)`, `o[t,h] = sum_k exp(s-m) key_k / den`. Value = key.
//! `lse[t,h] = ln(den) + m`. The sink is a logit with a zero value vector and takes no part in m. When every score is
//! -inf, m = sink and o = 0. Shapes: q `[S,H,hd]`, o `[S,H,hd]` BEFORE the inverse rope, lse `[S,H]`.

use rayon::prelude::*;

use super::Ctx;
use crate::linalg::{Packed, Real, Scratch, matmul_here, mix_rows};

/// What a piece of rows attends to.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a, T> {
    /// Position of the first window row.
    pub(crate) first: usize,
    /// `[n,hd]` raw kv by position.
    pub(crate) window: &'a [T],
    /// `[T,hd]` entries.
    pub(crate) entries: &'a [T],
    /// `[S,T]`, 1 where a row attends.
    pub(crate) selected: &'a [u8],
}

/// Buffers of one task.
struct Task<T> {
    q: Packed<T>,
    scores: Vec<T>,
    p: Vec<T>,
    num: Vec<f64>,
    scratch: Scratch<T>,
}

/// (o, lse) of rows at positions `first..first+S`.
pub(crate) fn attend<T: Real>(ctx: Ctx<'_>, q: &[T], keys: Keys<'_, T>, sink: &[T], first: usize) -> (Vec<T>, Vec<T>) {
    let (heads, hd) = (ctx.config.num_attention_heads, ctx.config.head_dim);
    let s = q.len() / (heads * hd);
    let total = keys.entries.len() / hd;
    let scale = T::of(1.0 / (hd as f64).sqrt());
    let (mut o, mut lse) = (vec![T::ZERO; q.len()], vec![T::ZERO; s * heads]);
    let init = || Task {
        q: Packed::default(),
        scores: Vec::new(),
        p: Vec::new(),
        num: vec![0.0; heads * hd],
        scratch: Scratch::default(),
    };
    let rows = o.par_chunks_exact_mut(heads * hd).zip(lse.par_chunks_exact_mut(heads));
    rows.enumerate().for_each_init(init, |task, (t, (o, lse))| {
        let mut list = Vec::new();
        let last = first + t;
        let from = (last + 1).saturating_sub(ctx.config.sliding_window);
        list.extend(keys.window[(from - keys.first) * hd..(last + 1 - keys.first) * hd].chunks_exact(hd));
        let selected = &keys.selected[t * total..(t + 1) * total];
        let entries = keys.entries.chunks_exact(hd).zip(selected);
        list.extend(entries.filter(|(_, selected)| **selected != 0).map(|(entry, _)| entry));
        one_query(ctx, task, &q[t * heads * hd..(t + 1) * heads * hd], &list, sink, scale, o, lse);
    });
    (o, lse)
}

fn one_query<T: Real>(
    ctx: Ctx<'_>,
    task: &mut Task<T>,
    q: &[T],
    keys: &[&[T]],
    sink: &[T],
    scale: T,
    o: &mut [T],
    lse: &mut [T],
) {
    let (heads, hd, n) = (sink.len(), ctx.config.head_dim, keys.len());
    task.q.refill(heads, hd, q);
    task.scores.clear();
    task.scores.resize(n * heads, T::ZERO);
    matmul_here(ctx.isa, keys, &task.q, &mut task.scores);
    task.p.clear();
    task.p.resize(heads * n, T::ZERO);
    let mut den = vec![0f64; heads];
    for (h, p) in task.p.chunks_exact_mut(n).enumerate() {
        let mut m = T::NEG_INFINITY;
        for (p, scores) in p.iter_mut().zip(task.scores.chunks_exact(heads)) {
            *p = scores[h] * scale;
            if *p > m {
                m = *p;
            }
        }
        let m = if m == T::NEG_INFINITY { sink[h] } else { m };
        for p in p.iter_mut() {
            *p = (*p - m).exp();
            den[h] += p.wide();
        }
        den[h] += (sink[h] - m).exp().wide();
        lse[h] = T::of(libm::log(den[h]) + m.wide());
    }
    let p: Vec<&[T]> = task.p.chunks_exact(n).collect();
    mix_rows(ctx.isa, &p, keys, hd, &mut task.num, &mut task.scratch);
    for ((o, num), den) in o.chunks_exact_mut(hd).zip(task.num.chunks_exact(hd)).zip(&den) {
        for (o, num) in o.iter_mut().zip(num) {
            *o = T::of(num / den);
        }
    }
}
