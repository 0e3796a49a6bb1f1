//! Sink attention over the sliding window and the selected entries (spec 2.9).
//!
//! Keys of the query at position t, in order: raw kv at positions max(0, t-W+1)..=t, then the selected entries by index.
//! `s[h,k] = (q[t,h] . key_k) * hd^-0.5` (scale after the dot product), `m = max_k s`,
//! `den[h] = sum_k exp(s-m) + exp(sink[h] - m)`, `o[t,h] = sum_k exp(s-m) key_k / den`. Value = key.
//! `lse[t,h] = ln(den) + m`. The sink is a logit with a zero value vector and takes no part in m. When every score is
//! -inf, m = sink and o = 0. Shapes: q `[S,H,hd]`, o `[S,H,hd]` BEFORE the inverse rope, lse `[S,H]`.

use std::ops::Range;

use rayon::prelude::*;

use super::Ctx;
use crate::linalg::{LANES, Packed, Real, Scratch, matmul_here, mix_rows};

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
    let (heads, width) = (ctx.config.num_attention_heads, ctx.config.num_attention_heads * ctx.config.head_dim);
    let (mut o, mut lse) = (vec![T::ZERO; q.len()], vec![T::ZERO; q.len() / width * heads]);
    // Neighbouring queries share most keys: together they fill the lanes of one panel.
    let group = (LANES / heads).max(1);
    let init = || Task {
        q: Packed::default(),
        scores: Vec::new(),
        p: Vec::new(),
        num: vec![0.0; width],
        scratch: Scratch::default(),
    };
    let out = o.par_chunks_mut(group * width).zip(lse.par_chunks_mut(group * heads));
    let groups = q.par_chunks(group * width).zip(out).enumerate();
    groups.for_each_init(init, |task, (g, (q, (o, lse)))| {
        let t = g * group..g * group + lse.len() / heads;
        let list = union(ctx, keys, first, t.clone());
        let rows: Vec<&[T]> = list.iter().map(|(_, row)| *row).collect();
        task.q.refill(lse.len(), ctx.config.head_dim, q);
        task.scores.clear();
        task.scores.resize(rows.len() * lse.len(), T::ZERO);
        matmul_here(ctx.isa, &rows, &task.q, &mut task.scores);
        for (i, (o, lse)) in o.chunks_exact_mut(width).zip(lse.chunks_exact_mut(heads)).enumerate() {
            one_query(ctx, task, &list, (t.start + i, first), (i * heads, t.len() * heads), keys, sink, o, lse);
        }
    });
    (o, lse)
}

/// A key row and what it is.
#[derive(Clone, Copy)]
enum Key {
    /// Raw kv at this position.
    Window(usize),
    /// Entry with this index.
    Entry(usize),
}

/// Keys of at least one of the rows t, in key order.
fn union<'a, T: Real>(ctx: Ctx<'_>, keys: Keys<'a, T>, first: usize, t: Range<usize>) -> Vec<(Key, &'a [T])> {
    let hd = ctx.config.head_dim;
    let total = keys.entries.len() / hd;
    let (from, end) = (window_start(ctx, first + t.start), first + t.end);
    let window = keys.window[(from - keys.first) * hd..(end - keys.first) * hd].chunks_exact(hd);
    let mut list: Vec<_> = (from..end).map(Key::Window).zip(window).collect();
    let chosen = |w: usize| t.clone().any(|t| keys.selected[t * total + w] != 0);
    let entries = keys.entries.chunks_exact(hd).enumerate().filter(|(w, _)| chosen(*w));
    list.extend(entries.map(|(w, entry)| (Key::Entry(w), entry)));
    list
}

fn window_start(ctx: Ctx<'_>, pos: usize) -> usize {
    (pos + 1).saturating_sub(ctx.config.sliding_window)
}

/// Row t at position `first + t`: softmax over its keys among `list`, then the weighted sum. Its heads are columns
/// `column..column+H` of the scores, which have `stride` columns.
fn one_query<T: Real>(
    ctx: Ctx<'_>,
    task: &mut Task<T>,
    list: &[(Key, &[T])],
    (t, first): (usize, usize),
    (column, stride): (usize, usize),
    keys: Keys<'_, T>,
    sink: &[T],
    o: &mut [T],
    lse: &mut [T],
) {
    let (heads, hd) = (sink.len(), ctx.config.head_dim);
    let scale = T::of(1.0 / (hd as f64).sqrt());
    let (pos, from) = (first + t, window_start(ctx, first + t));
    let total = keys.entries.len() / hd;
    let mine = |key: Key| match key {
        Key::Window(at) => from <= at && at <= pos,
        Key::Entry(w) => keys.selected[t * total + w] != 0,
    };
    let scores = list.iter().zip(task.scores.chunks_exact(stride)).filter(|((key, _), _)| mine(*key));
    let (rows, scores): (Vec<&[T]>, Vec<&[T]>) =
        scores.map(|((_, row), scores)| (*row, &scores[column..column + heads])).unzip();
    let n = rows.len();
    task.p.clear();
    task.p.resize(heads * n, T::ZERO);
    let mut den = vec![0f64; heads];
    for (h, p) in task.p.chunks_exact_mut(n).enumerate() {
        let mut m = T::NEG_INFINITY;
        for (p, scores) in p.iter_mut().zip(&scores) {
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
    mix_rows(ctx.isa, &p, &rows, hd, &mut task.num, &mut task.scratch);
    for ((o, num), den) in o.chunks_exact_mut(hd).zip(task.num.chunks_exact(hd)).zip(&den) {
        for (o, num) in o.iter_mut().zip(num) {
            *o = T::of(num / den);
        }
    }
}
