//! Sink attention over the sliding window and the selected entries (spec 2.9).
//!
//! Keys of the query at position t, in order: raw kv at positions max(0, t-W+1)..=t, then the selected entries by index.
//! `s[h,k] = (q[t,h] . key_k) * hd^-0.5` (scale after the dot product), `m = max_k s`,
//! `den[h] = sum_k exp(s-m) + exp(sink[h] - m)`, `o[t,h] = sum_k exp(s-m) key_k / den`. Value = key.
//! `lse[t,h] = ln(den) + m`. The sink is a logit with a zero value vector and takes no part in m. When every score is
//! -inf, m = sink and o = 0. Shapes: q `[S,H,hd]`, o `[S,H,hd]` BEFORE the inverse rope, lse `[S,H]`.

use karat_model::Result;
use rayon::prelude::*;

use super::Ctx;
use crate::backend::{Attention, Backend};
use crate::lent::{Lent, List, listed};
use crate::linalg::{Packed, Real, SinkSoftmax, matmul_here, mix_rows};
use crate::made::Made;

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

/// Buffers of a query.
#[derive(Default)]
struct Buffers<T> {
    q: Packed<T>,
    /// `[n,H]`: scores, then weights.
    scores: Vec<T>,
    max: Vec<T>,
    den: Vec<f64>,
}

/// (o, lse) of rows at positions `first..first+S`.
pub(crate) fn attend<T: Real>(
    ctx: Ctx<'_>,
    q: &[T],
    keys: Keys<'_, T>,
    sink: &[T],
    first: usize,
) -> (Made<T>, Made<T>) {
    let (heads, width) = (ctx.config.num_attention_heads, ctx.config.num_attention_heads * ctx.config.head_dim);
    if let Some((o, lse)) = ctx.there::<T, _>(|there| attend_there(there, ctx, q, keys, sink, first)) {
        return (ctx.made(o), ctx.made(lse));
    }
    let (mut o, mut lse) = (vec![T::ZERO; q.len()], vec![T::ZERO; q.len() / width * heads]);
    let init = || (Lent::<List<T>>::take(), Lent::take());
    let out = o.par_chunks_exact_mut(width).zip(lse.par_chunks_exact_mut(heads));
    let queries = q.par_chunks_exact(width).zip(out).enumerate();
    queries.for_each_init(init, |(list, buffers), (t, (q, (o, lse)))| {
        listed(list, |rows| {
            list_keys(ctx, keys, (t, first + t), rows);
            one_query(ctx, buffers, q, rows, sink, (o, lse));
        });
    });
    (o.into(), lse.into())
}

/// The same on a backend, which gets all keys once and a list of each query's.
fn attend_there<T: Real>(
    there: &dyn Backend,
    ctx: Ctx<'_>,
    q: &[T],
    keys: Keys<'_, T>,
    sink: &[T],
    first: usize,
) -> Result<(Vec<f32>, Vec<f32>)> {
    let hd = ctx.config.head_dim;
    let (window, total) = ((keys.window.len() / hd) as u32, keys.entries.len() / hd);
    let (mut list, mut from) = (Vec::new(), vec![0]);
    for t in 0..q.len() / (sink.len() * hd) {
        let pos = first + t;
        let start = (pos + 1).saturating_sub(ctx.config.sliding_window);
        list.extend((start - keys.first) as u32..(pos + 1 - keys.first) as u32);
        let chosen = keys.selected[t * total..(t + 1) * total].iter().enumerate().filter(|(_, chosen)| **chosen != 0);
        list.extend(chosen.map(|(w, _)| window + w as u32));
        from.push(list.len() as u32);
    }
    there.attend(Attention {
        q: T::single(q),
        keys: &[T::single(keys.window), T::single(keys.entries)].concat(),
        list: &list,
        from: &from,
        sink: T::single(sink),
        width: hd,
        scale: (1.0 / (hd as f64).sqrt()) as f32,
    })
}

/// Keys of row t, which is at position `pos`, in key order.
fn list_keys<'a, T: Real>(ctx: Ctx<'_>, keys: Keys<'a, T>, (t, pos): (usize, usize), rows: &mut Vec<&'a [T]>) {
    let hd = ctx.config.head_dim;
    let total = keys.entries.len() / hd;
    let from = (pos + 1).saturating_sub(ctx.config.sliding_window);
    rows.extend(keys.window[(from - keys.first) * hd..(pos + 1 - keys.first) * hd].chunks_exact(hd));
    // Few of many entries are chosen: look at eight at once.
    for (i, chosen) in keys.selected[t * total..(t + 1) * total].chunks(8).enumerate() {
        if chosen.iter().any(|&chosen| chosen != 0) {
            let here = chosen.iter().enumerate().filter(|(_, chosen)| **chosen != 0);
            rows.extend(here.map(|(j, _)| &keys.entries[(8 * i + j) * hd..][..hd]));
        }
    }
}

/// Softmax over the keys, then the weighted sum, for all heads of one query at once: (o, lse).
fn one_query<T: Real>(
    ctx: Ctx<'_>,
    buffers: &mut Buffers<T>,
    q: &[T],
    rows: &[&[T]],
    sink: &[T],
    (o, lse): (&mut [T], &mut [T]),
) {
    let (heads, hd) = (sink.len(), ctx.config.head_dim);
    let Buffers { q: packed, scores, max, den } = buffers;
    packed.refill(heads, hd, q);
    // All of them are written.
    scores.resize(rows.len() * heads, T::ZERO);
    max.resize(heads, T::ZERO);
    den.resize(heads, 0.0);
    matmul_here(ctx.isa, rows, packed, scores);
    SinkSoftmax { scores, scale: T::of(1.0 / (hd as f64).sqrt()), sink, max, den }.run_on(ctx.isa);
    for ((lse, max), den) in lse.iter_mut().zip(max.iter()).zip(den.iter()) {
        *lse = T::of(libm::log(*den) + max.wide());
    }
    mix_rows(ctx.isa, scores, heads, rows, Some(den), o);
}
