//! Routed experts on a backend: the rows of all lanes lie there once a call, an expert's matrices go there as they are stored,
//! and what comes back are activations where somebody looks at them, and sums.

use std::ops::Range;

use karat_seam::Later;

use super::{Ctx, Matrices, Routed, Users};
use crate::backend::{Act, Experts, Up};
use crate::linalg::Real;
use crate::made::Made;

/// Rows that an expert takes at a time there.
const ROWS: usize = 8192;

/// Rows of some parts where the experts are computed.
#[derive(Debug)]
pub(super) struct There {
    /// One a rank.
    ranks: Vec<Box<dyn Experts>>,
    /// First row of each part, and the end.
    firsts: Vec<usize>,
    /// Whether the sums are kept there: on one processor.
    sums: bool,
    /// Whether the activations are.
    acts: bool,
}

impl There {
    /// Lays x of the parts there if it is `taken`, and sums where they are `wanted`; `None` where the experts go op by op, or here.
    pub(super) fn begin<T: Real>(ctx: Ctx<'_>, parts: &[Routed<'_, T>], taken: bool, wanted: bool) -> Option<Self> {
        if T::IS_WIDE {
            return None;
        }
        ctx.backend?;
        let d = ctx.config.hidden_size;
        let mut firsts = vec![0];
        firsts.extend(parts.iter().scan(0, |end, part| {
            *end += part.idx.len() / ctx.config.num_experts_per_tok;
            Some(*end)
        }));
        let (count, rows) = (ctx.ranks(), firsts.last().copied().unwrap_or(0));
        let sums = wanted && count == 1;
        if !(taken || sums) || rows == 0 {
            return None;
        }
        let x: Vec<&[f32]> = if taken { parts.iter().map(|part| T::single(part.x)).collect() } else { Vec::new() };
        let begin = |rank| {
            let ctx = Ctx { rank, ..ctx };
            ctx.there::<T, _>(|there| there.experts(&x, d, if sums { rows } else { 0 })).flatten()
        };
        let ranks = (0..count).map(begin).collect::<Option<_>>()?;
        Some(Self { ranks, firsts, sums, acts: false })
    }

    /// The same with room for the activations, which are sketched there; `None` where there is none.
    pub(super) fn keeping<T: Real>(ctx: Ctx<'_>, parts: &[Routed<'_, T>]) -> Option<Self> {
        let mut it = Self::begin(ctx, parts, true, true).filter(|it| it.sums)?;
        let acts = parts.iter().map(|part| part.idx.len()).sum();
        it.acts = ctx.there::<T, _>(|_| it.ranks[0].keep(acts, ctx.config.moe_intermediate_size))?;
        Some(it).filter(|it| it.acts)
    }

    /// Sketches of each part's activations once every expert has passed; `None` once the backend failed.
    pub(super) fn sketches<T: Real>(&self, ctx: Ctx<'_>) -> Option<Vec<Box<dyn Later>>> {
        let each = ctx.config.num_experts_per_tok;
        let one = |pair: &[usize]| ctx.there::<T, _>(|_| self.ranks[0].sketch(pair[0]..pair[1], each)).flatten();
        self.firsts.windows(2).map(one).collect()
    }

    /// Pieces of an expert's users: which, and their rows there.
    fn pieces<'u>(
        &self,
        k: usize,
        users: &'u [(usize, usize)],
    ) -> impl Iterator<Item = (&'u [(usize, usize)], Vec<u32>)> {
        users.chunks(ROWS).map(move |users| {
            let rows = users.iter().map(|&(p, slot)| (self.firsts[p] + slot / k) as u32);
            (users, rows.collect())
        })
    }

    /// Weighted activations `[users, I]`; nothing once the backend failed.
    pub(super) fn act<T: Real>(
        &self,
        ctx: Ctx<'_>,
        parts: &[Routed<'_, T>],
        users: &Users,
        up: &Matrices<'_, T, 2>,
    ) -> Option<Vec<T>> {
        let mut out = Vec::new();
        for (users, rows) in self.pieces(ctx.config.num_experts_per_tok, users) {
            let wt = weights(parts, users);
            let done = ctx.there::<T, _>(|_| self.ranks[ctx.rank].act(&rows, first_half(ctx, up, &wt)))?;
            append(&mut out, T::of_singles(done));
        }
        Some(out)
    }

    /// What leaves an expert: `[users, D]`, or nothing where it was added to the sums; also once the backend failed.
    pub(super) fn whole<T: Real>(
        &self,
        ctx: Ctx<'_>,
        parts: &[Routed<'_, T>],
        users: &Users,
        up: &Matrices<'_, T, 2>,
        down: &Matrices<'_, T, 1>,
    ) -> Vec<T> {
        let mut out = Vec::new();
        let ([w2], k) = (down.of_backend(), ctx.config.num_experts_per_tok);
        for (users, rows) in self.pieces(k, users) {
            let wt = weights(parts, users);
            let kept: Vec<u32> =
                users.iter().filter(|_| self.acts).map(|&(p, slot)| (self.firsts[p] * k + slot) as u32).collect();
            let act = Act::Made(Up { kept: &kept, ..first_half(ctx, up, &wt) });
            let done = ctx.there::<T, _>(|_| self.ranks[ctx.rank].down(&rows, act, w2));
            append(&mut out, T::of_singles(done.unwrap_or_default()));
        }
        self.filled(ctx, users, out)
    }

    /// The same from activations, one slice a user.
    pub(super) fn down<T: Real>(&self, ctx: Ctx<'_>, users: &Users, act: &[&[T]], down: &Matrices<'_, T, 1>) -> Vec<T> {
        let mut out = Vec::new();
        let [w2] = down.of_backend();
        for ((_, rows), act) in self.pieces(ctx.config.num_experts_per_tok, users).zip(act.chunks(ROWS)) {
            let act = act.concat();
            let done = ctx.there::<T, _>(|_| self.ranks[ctx.rank].down(&rows, Act::Given(T::single(&act)), w2));
            append(&mut out, T::of_singles(done.unwrap_or_default()));
        }
        self.filled(ctx, users, out)
    }

    /// As many values as whoever asked expects: of a backend that failed the path refuses the result.
    fn filled<T: Real>(&self, ctx: Ctx<'_>, users: &Users, mut out: Vec<T>) -> Vec<T> {
        if !self.sums {
            out.resize(users.len() * ctx.config.hidden_size, T::ZERO);
        }
        out
    }

    /// Whether [`There::sums`] has the sums.
    pub(super) fn has_sums(&self) -> bool {
        self.sums
    }

    /// Sums of each part once every expert has passed.
    pub(super) fn sums<T: Real>(&self, ctx: Ctx<'_>) -> Vec<Made<T>> {
        let d = ctx.config.hidden_size;
        let one = |rows: Range<usize>| {
            let there = ctx.values(|_| self.ranks[0].sums(rows.clone()));
            there.unwrap_or_else(|| vec![T::ZERO; rows.len() * d].into())
        };
        self.firsts.windows(2).map(|pair| one(pair[0]..pair[1])).collect()
    }
}

/// The first piece is what most experts have: it is not copied.
fn append<T>(all: &mut Vec<T>, piece: Vec<T>) {
    if all.is_empty() { *all = piece } else { all.extend(piece) }
}

fn weights<T: Real>(parts: &[Routed<'_, T>], users: &[(usize, usize)]) -> Vec<f32> {
    users.iter().map(|&(p, slot)| T::single(parts[p].wt)[slot]).collect()
}

fn first_half<'a, T: Real>(ctx: Ctx<'_>, up: &'a Matrices<'_, T, 2>, wt: &'a [f32]) -> Up<'a> {
    Up { weights: up.of_backend(), wt, limit: ctx.config.swiglu_limit as f32, kept: &[] }
}
