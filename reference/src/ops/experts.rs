//! Experts (spec 2.11).
//!
//! Routed: for every row and slot, expert e = idx: `g = x w1^T`, `u = x w3^T` `[I]`, `act = wt * swiglu(g, u)`
//! (`[S,K,I]`, slots as idx); `routed = sum over slots of act w2^T` `[S,D]`, an f64 accumulator per output, experts in
//! ascending id, rounded once. Shared: the same without a weight. Each expert is decoded once for all the rows of all
//! lanes, block by block as it is multiplied; experts run side by side, in batches whose outputs fit in memory; the shared one takes
//! some pieces of rows at a time. On a backend (`there`) they run one after the other.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use karat_model::Result as Done;
use karat_seam::Later;
use rayon::prelude::*;

use super::swiglu::Swiglu;
use super::{Ctx, rows};
use crate::backend::{Backend, Matrix};
use crate::linalg::{Factor as _, Packed, Real, Stored, Times, matmul, matmul_here, multiply_stored, zip_map};
use crate::linear::Linear;
use crate::made::Made;

mod there;

use there::There;

/// Pieces that go through the shared expert at a time.
const TOGETHER: usize = 8;
/// Rows of one task of its activation.
const ACT_ROWS: usize = 16;
/// Rows of one task of the sum over experts.
const SUM_ROWS: usize = 64;
/// Rows whose outputs are held at a time.
const BATCH_ROWS: usize = 8192;
/// Experts whose codes and scales are looked up and checked side by side, where one after the other is computed.
const AHEAD: usize = 16;

/// w1, w3 and w2 of the shared expert.
pub(crate) struct SharedWeights<'a, T> {
    /// `[I,D]` gate.
    pub(crate) w1: Linear<'a, T>,
    /// `[I,D]` up.
    pub(crate) w3: Linear<'a, T>,
    /// `[D,I]` down.
    pub(crate) w2: Linear<'a, T>,
}

/// A weight that is decoded while it is multiplied, or by a backend.
pub(crate) trait Undecoded<T>: Stored<T> + Send {
    /// As a backend takes it.
    fn matrix(&self) -> Matrix<'_>;
}

/// Matrices of one expert with the same inputs.
pub(crate) enum Matrices<'a, T, const N: usize> {
    /// Decoded already.
    Packed(Arc<[Packed<T>; N]>),
    /// Decoded while they are multiplied.
    Stored([Box<dyn Undecoded<T> + 'a>; N]),
}

impl<T: Real, const N: usize> Matrices<'_, T, N> {
    /// Rows times each of them, `[rows,n]`, on the calling thread.
    fn multiply(&self, ctx: Ctx<'_>, x: &[&[T]], n: usize) -> [Vec<T>; N] {
        let mut out = [(); N].map(|()| vec![T::ZERO; x.len() * n]);
        match self {
            Self::Packed(packed) => {
                packed.iter().zip(&mut out).for_each(|(w, out)| matmul_here(ctx.isa, x, w, out));
            }
            Self::Stored(stored) => {
                let mut products = Vec::with_capacity(N);
                for (w, out) in stored.iter().zip(&mut out) {
                    products.push(Times { w: &**w, n, out });
                }
                multiply_stored(ctx.isa, x, &mut products);
            }
        }
        out
    }

    /// As a backend takes them.
    fn of_backend(&self) -> [Matrix<'_>; N] {
        match self {
            Self::Packed(packed) => packed.each_ref().map(Packed::matrix),
            Self::Stored(stored) => stored.each_ref().map(|w| w.matrix()),
        }
    }
}

/// w1 and w3, and w2, of routed experts by id.
pub(crate) trait ExpertWeights<T>: Sync {
    /// Why an expert can't be had.
    type Error: Send;
    /// w1 and w3 of expert e, each `[I,D]`.
    fn up(&self, e: usize) -> Result<Matrices<'_, T, 2>, Self::Error>;
    /// w2 of expert e, `[D,I]`.
    fn down(&self, e: usize) -> Result<Matrices<'_, T, 1>, Self::Error>;
}

/// Each piece x `[S,D]` to `[S,D]`, computed when it is asked for: here with the pieces after it, since a weight that passes
/// many rows costs as much memory traffic as one that passes few.
pub(crate) fn shared<'a, T: Real>(
    ctx: Ctx<'a>,
    w: &'a SharedWeights<'_, T>,
    pieces: &'a [&'a [T]],
) -> impl Iterator<Item = Made<T>> + 'a {
    pieces.chunks(if ctx.backend.is_some() { 1 } else { TOGETHER }).flat_map(move |pieces| together(ctx, w, pieces))
}

/// The shared expert of some pieces.
fn together<T: Real>(ctx: Ctx<'_>, w: &SharedWeights<'_, T>, pieces: &[&[T]]) -> Vec<Made<T>> {
    let (d, inner) = (ctx.config.hidden_size, w.w1.n());
    if let [x] = pieces {
        let there = ctx.values(|there| {
            let up = [w.w1.matrix(), w.w3.matrix()];
            there.linear(&activation_there(ctx, there, T::single(x), up, None)?, w.w2.matrix())
        });
        if let Some(y) = there {
            return vec![y];
        }
    }
    let x: Vec<&[T]> = pieces.iter().flat_map(|x| rows(x, d)).collect();
    let (mut act, u) = (matmul(ctx.isa, &x, &w.w1), matmul(ctx.isa, &x, &w.w3));
    let tasks = act.par_chunks_mut(ACT_ROWS * inner.max(1)).zip(u.par_chunks(ACT_ROWS * inner.max(1)));
    tasks.for_each(|(g, u)| activate(ctx, g, u));
    let y = matmul(ctx.isa, &rows(&act, inner), &w.w2);
    let mut left = &*y;
    let part = |x: &&[T]| {
        let (part, behind) = left.split_at(x.len());
        left = behind;
        part
    };
    let parts: Vec<&[T]> = pieces.iter().map(part).collect();
    parts.into_par_iter().map(|y| Made::from(y.to_vec())).collect()
}

/// `swiglu(g, u)`: `[rows, I]`, in place of g.
fn activation<T: Real>(ctx: Ctx<'_>, mut g: Vec<T>, u: &[T]) -> Vec<T> {
    activate(ctx, &mut g, u);
    g
}

/// The same where g lies.
fn activate<T: Real>(ctx: Ctx<'_>, g: &mut [T], u: &[T]) {
    zip_map(ctx.isa, g, u, Swiglu { limit: T::of(ctx.config.swiglu_limit) });
}

/// `swiglu(x w1^T, x w3^T)` on a backend, each row times its `wt` where there is one.
fn activation_there(
    ctx: Ctx<'_>,
    there: &dyn Backend,
    x: &[f32],
    [w1, w3]: [Matrix<'_>; 2],
    wt: Option<&[f32]>,
) -> Done<Vec<f32>> {
    let (g, u) = (there.linear(x, w1)?, there.linear(x, w3)?);
    there.swiglu(&g, &u, ctx.config.swiglu_limit as f32, wt.map(|wt| (wt, w1.n)))
}

/// Rows of several lanes that go through the experts together.
pub(crate) struct Routed<'a, T> {
    /// `[S,D]`
    pub(crate) x: &'a [T],
    /// `[S,K]`
    pub(crate) idx: &'a [u32],
    /// `[S,K]`
    pub(crate) wt: &'a [T],
}

/// The rows of one expert as (part, row * K + slot), in that order.
type Users = Vec<(usize, usize)>;

/// Each expert that some row chose, with its rows.
fn by_expert<T>(ctx: Ctx<'_>, parts: &[Routed<'_, T>]) -> Vec<(usize, Users)> {
    let mut users = vec![Vec::new(); ctx.config.n_routed_experts];
    for (p, part) in parts.iter().enumerate() {
        for (slot, &e) in part.idx.iter().enumerate() {
            users[e as usize].push((p, slot));
        }
    }
    users.into_iter().enumerate().filter(|(_, users)| !users.is_empty()).collect()
}

/// Ranges of experts that run side by side: at least one a thread, otherwise no more than BATCH_ROWS rows.
fn batches(experts: &[(usize, Users)]) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    let mut held = 0;
    for (i, (_, users)) in experts.iter().enumerate() {
        held += users.len();
        match out.last_mut() {
            Some(range) if range.len() < rayon::current_num_threads() || held <= BATCH_ROWS => range.end = i + 1,
            _ => {
                out.push(i..i + 1);
                held = users.len();
            }
        }
    }
    out
}

/// `run(expert, users)` for every expert of a batch, side by side; the error is that of the lowest expert.
fn side_by_side<T: Real, E: Send>(
    batch: &[(usize, Users)],
    run: impl Fn(usize, &Users) -> Result<Vec<T>, E> + Sync,
) -> Result<Vec<Vec<T>>, E> {
    let tasks = batch.par_iter().with_max_len(1);
    let done: Vec<_> = tasks.map(|(e, users)| run(*e, users)).collect();
    done.into_iter().collect()
}

/// Weighted activations `[users, I]` of one expert.
fn weighted<T: Real>(
    ctx: Ctx<'_>,
    parts: &[Routed<'_, T>],
    there: Option<&There>,
    users: &Users,
    up: &Matrices<'_, T, 2>,
) -> Vec<T> {
    if let Some(act) = there.and_then(|there| there.act(ctx, parts, users, up)) {
        return act;
    }
    let (d, k, inner) = (ctx.config.hidden_size, ctx.config.num_experts_per_tok, ctx.config.moe_intermediate_size);
    let x: Vec<&[T]> = users.iter().map(|&(p, slot)| &parts[p].x[slot / k * d..(slot / k + 1) * d]).collect();
    let there = ctx.values(|there| {
        let wt: Vec<T> = users.iter().map(|&(p, slot)| parts[p].wt[slot]).collect();
        activation_there(ctx, there, T::single(&x.concat()), up.of_backend(), Some(T::single(&wt)))
    });
    if let Some(act) = there {
        return act.into_vec();
    }
    let [g, u] = up.multiply(ctx, &x, inner);
    let mut act = activation(ctx, g, &u);
    for (&(p, slot), act) in users.iter().zip(act.chunks_exact_mut(inner)) {
        let wt = parts[p].wt[slot];
        act.iter_mut().for_each(|a| *a = wt * *a);
    }
    act
}

/// Routed branch `[S,D]` of each part, without holding the activations of all experts.
pub(crate) fn routed<T: Real, W: ExpertWeights<T>>(
    ctx: Ctx<'_>,
    parts: &[Routed<'_, T>],
    w: &W,
) -> Result<Vec<Made<T>>, W::Error> {
    routed_and_kept(ctx, parts, w, There::begin(ctx, parts, true, true).as_ref(), None)
}

/// Sketches of each part's activations, and the routed branches.
type Sketched<T> = (Vec<Box<dyn Later>>, Vec<Made<T>>);

/// The same, and sketches of the weighted activations `[S,K,I]` of each part, which stay on a backend; `None` where none keeps them.
pub(crate) fn routed_and_sketched<T: Real, W: ExpertWeights<T>>(
    ctx: Ctx<'_>,
    parts: &[Routed<'_, T>],
    w: &W,
) -> Result<Option<Sketched<T>>, W::Error> {
    let Some(there) = There::keeping(ctx, parts) else { return Ok(None) };
    let sums = routed_and_kept(ctx, parts, w, Some(&there), None)?;
    Ok(there.sketches::<T>(ctx).map(|lines| (lines, sums)))
}

/// The same, and the weighted activations `[S,K,I]` of each part for who only reads them: in one pass over the experts.
pub(crate) fn routed_and_act<T: Real, W: ExpertWeights<T>>(
    ctx: Ctx<'_>,
    parts: &[Routed<'_, T>],
    w: &W,
) -> Result<(Vec<Vec<T>>, Vec<Made<T>>), W::Error> {
    let inner = ctx.config.moe_intermediate_size;
    let acts = Mutex::new(no_acts(ctx, parts));
    let keep = |users: &Users, act: &[T]| {
        // A panic elsewhere ends the run.
        let mut acts = acts.lock().unwrap_or_else(PoisonError::into_inner);
        put(&mut acts, users, act, inner);
    };
    let sums = routed_and_kept(ctx, parts, w, There::begin(ctx, parts, true, true).as_ref(), Some(&keep))?;
    Ok((acts.into_inner().unwrap_or_else(PoisonError::into_inner), sums))
}

/// Each part's activations before any is known.
fn no_acts<T: Real>(ctx: Ctx<'_>, parts: &[Routed<'_, T>]) -> Vec<Vec<T>> {
    parts.iter().map(|part| vec![T::ZERO; part.idx.len() * ctx.config.moe_intermediate_size]).collect()
}

/// An expert's activations `[users,I]` where the parts have them.
fn put<T: Real>(acts: &mut [Vec<T>], users: &Users, act: &[T], inner: usize) {
    for (&(p, slot), act) in users.iter().zip(act.chunks_exact(inner)) {
        acts[p][slot * inner..(slot + 1) * inner].copy_from_slice(act);
    }
}

/// Who is given each expert's rows and activations.
type Keep<'a, T> = Option<&'a (dyn Fn(&Users, &[T]) + Sync)>;

/// Routed branch of each part, on a backend where its rows lie `there`.
fn routed_and_kept<T: Real, W: ExpertWeights<T>>(
    ctx: Ctx<'_>,
    parts: &[Routed<'_, T>],
    w: &W,
    there: Option<&There>,
    keep: Keep<'_, T>,
) -> Result<Vec<Made<T>>, W::Error> {
    let load = |e| Ok((w.up(e)?, w.down(e)?));
    sum_over_experts(ctx, parts, there, load, |e, users, (up, w2)| {
        let ctx = ctx.of_expert(e);
        if let (Some(there), None) = (there, keep) {
            return there.whole(ctx, parts, users, &up, &w2);
        }
        let act = weighted(ctx, parts, there, users, &up);
        if let Some(keep) = keep {
            keep(users, &act);
        }
        let act = rows(&act, ctx.config.moe_intermediate_size);
        there.map_or_else(|| down(ctx, &act, &w2), |there| there.down(ctx, users, &act, &w2))
    })
}

/// Weighted activations `[S,K,I]` of each part: the first half of [`routed`].
pub(crate) fn expert_act<T: Real, W: ExpertWeights<T>>(
    ctx: Ctx<'_>,
    parts: &[Routed<'_, T>],
    w: &W,
) -> Result<Vec<Vec<T>>, W::Error> {
    let inner = ctx.config.moe_intermediate_size;
    let mut acts = no_acts(ctx, parts);
    let there = There::begin(ctx, parts, true, false);
    let experts = by_expert(ctx, parts);
    for batch in batches(&experts) {
        let batch = &experts[batch];
        let of_experts = side_by_side(batch, |e, users| {
            let up = w.up(e)?;
            Ok(weighted(ctx.of_expert(e), parts, there.as_ref(), users, &up))
        })?;
        for ((_, users), act) in batch.iter().zip(of_experts) {
            put(&mut acts, users, &act, inner);
        }
    }
    Ok(acts)
}

/// Routed branch `[S,D]` of each part from its weighted activations: the second half of [`routed`].
pub(crate) fn expert_sum<T: Real, W: ExpertWeights<T>>(
    ctx: Ctx<'_>,
    parts: &[Routed<'_, T>],
    acts: &[Vec<T>],
    w: &W,
) -> Result<Vec<Made<T>>, W::Error> {
    let inner = ctx.config.moe_intermediate_size;
    let there = There::begin(ctx, parts, false, true);
    sum_over_experts(
        ctx,
        parts,
        there.as_ref(),
        |e| w.down(e),
        |e, users, w2| {
            let act: Vec<&[T]> = users.iter().map(|&(p, slot)| &acts[p][slot * inner..(slot + 1) * inner]).collect();
            let ctx = ctx.of_expert(e);
            there.as_ref().map_or_else(|| down(ctx, &act, &w2), |there| there.down(ctx, users, &act, &w2))
        },
    )
}

fn down<T: Real>(ctx: Ctx<'_>, act: &[&[T]], w2: &Matrices<'_, T, 1>) -> Vec<T> {
    if let Some(y) = ctx.values(|there| there.linear(T::single(&act.concat()), w2.of_backend()[0])) {
        return y.into_vec();
    }
    let [y] = w2.multiply(ctx, act, ctx.config.hidden_size);
    y
}

/// Sums of the outputs `[users,D]` that `run(expert, users, its matrices)` gives, experts in ascending id.
fn sum_over_experts<T: Real, E: Send, L: Send>(
    ctx: Ctx<'_>,
    parts: &[Routed<'_, T>],
    there: Option<&There>,
    load: impl Fn(usize) -> Result<L, E> + Sync,
    run: impl Fn(usize, &Users, L) -> Vec<T> + Sync,
) -> Result<Vec<Made<T>>, E> {
    let (d, k) = (ctx.config.hidden_size, ctx.config.num_experts_per_tok);
    let experts = by_expert(ctx, parts);
    if let Some(there) = there.filter(|there| there.has_sums()) {
        in_order(&experts, &load, &run)?;
        return Ok(there.sums(ctx));
    }
    if ctx.backend.is_some() && !T::IS_WIDE {
        return sum_there(ctx, parts, experts, load, run);
    }
    let mut sums: Vec<Vec<f64>> = parts.iter().map(|part| vec![0f64; part.idx.len() / k * d]).collect();
    for batch in batches(&experts) {
        let batch = &experts[batch];
        let outs = side_by_side(batch, |e, users| Ok(run(e, users, load(e)?)))?;
        for (p, sums) in sums.iter_mut().enumerate() {
            sums.par_chunks_mut(SUM_ROWS * d).enumerate().for_each(|(i, sums)| {
                let (first, end) = ((p, i * SUM_ROWS * k), (p, (i + 1) * SUM_ROWS * k));
                for ((_, users), out) in batch.iter().zip(&outs) {
                    let range = users.partition_point(|user| *user < first)..users.partition_point(|user| *user < end);
                    for (&(_, slot), out) in users[range.clone()].iter().zip(out[range.start * d..].chunks_exact(d)) {
                        let row = slot / k - i * SUM_ROWS;
                        for (sum, v) in sums[row * d..(row + 1) * d].iter_mut().zip(out) {
                            *sum += v.wide();
                        }
                    }
                }
            });
        }
    }
    let round = |sums: Vec<f64>| {
        let mut out = vec![T::ZERO; sums.len()];
        out.par_chunks_mut(SUM_ROWS * d).zip(sums.par_chunks(SUM_ROWS * d)).for_each(|(out, sums)| {
            for (v, &sum) in out.iter_mut().zip(sums) {
                *v = T::of(sum);
            }
        });
        out
    };
    Ok(sums.into_iter().map(round).map(Made::from).collect())
}

/// `run` for one expert after the other, while the matrices of the next ones are looked up.
fn in_order<T: Real, E: Send, L: Send>(
    experts: &[(usize, Users)],
    load: &(impl Fn(usize) -> Result<L, E> + Sync),
    run: &(impl Fn(usize, &Users, L) -> Vec<T> + Sync),
) -> Result<Vec<Vec<T>>, E> {
    let mut outs = Vec::with_capacity(experts.len());
    for some in experts.chunks(AHEAD) {
        let loaded: Vec<_> = some.par_iter().with_max_len(1).map(|(e, _)| load(*e)).collect();
        for ((e, users), loaded) in some.iter().zip(loaded) {
            outs.push(run(*e, users, loaded?));
        }
    }
    Ok(outs)
}

/// The same on a backend: the outputs by slot, whichever rank they come from, each row's slots in ascending order of their
/// experts.
fn sum_there<T: Real, E: Send, L: Send>(
    ctx: Ctx<'_>,
    parts: &[Routed<'_, T>],
    experts: Vec<(usize, Users)>,
    load: impl Fn(usize) -> Result<L, E> + Sync,
    run: impl Fn(usize, &Users, L) -> Vec<T> + Sync,
) -> Result<Vec<Made<T>>, E> {
    let (d, k) = (ctx.config.hidden_size, ctx.config.num_experts_per_tok);
    // Each rank computes its experts one after the other, the ranks side by side.
    let mut ranks = vec![Vec::new(); ctx.ranks()];
    experts.into_iter().for_each(|(e, users)| ranks[ctx.of_expert(e).rank].push((e, users)));
    let share = |experts: &Vec<(usize, Users)>| in_order(experts, &load, &run).map(|outs| outs.concat());
    let shares: Vec<_> = ranks.par_iter().with_max_len(1).map(share).collect();
    let shares: Vec<Vec<T>> = shares.into_iter().collect::<Result<_, E>>()?;
    let gathered = ctx.there::<T, _>(|there| there.gather(shares.iter().map(|s| T::single(s).to_vec()).collect()));
    // A backend that failed: the path refuses its result.
    let shares = gathered.map_or(shares, |all| all.into_iter().map(T::of_singles).collect());
    let mut slots: Vec<Vec<T>> = parts.iter().map(|part| vec![T::ZERO; part.idx.len() * d]).collect();
    for (experts, share) in ranks.iter().zip(&shares) {
        let users = experts.iter().flat_map(|(_, users)| users);
        for (&(p, slot), out) in users.zip(share.chunks_exact(d)) {
            slots[p][slot * d..(slot + 1) * d].copy_from_slice(out);
        }
    }
    let sum = |(part, slots): (&Routed<'_, T>, Vec<T>)| {
        let mut order: Vec<u32> = Vec::with_capacity(part.idx.len());
        for idx in part.idx.chunks_exact(k) {
            let mut row: Vec<u32> = (0..k as u32).collect();
            row.sort_by_key(|&slot| idx[slot as usize]);
            order.extend(row);
        }
        let there = ctx.values(|there| there.sum_experts(T::single(&slots), &order, k, d));
        // A backend that failed: the path refuses its result.
        there.unwrap_or_else(|| vec![T::ZERO; part.idx.len() / k * d].into())
    };
    Ok(parts.iter().zip(slots).map(sum).collect())
}

/// `routed + shared`.
pub(crate) fn combine<T: Real>(ctx: Ctx<'_>, routed: &[T], shared: &[T]) -> Made<T> {
    let there = ctx.values(|there| there.add(T::single(routed), T::single(shared), ctx.config.hidden_size, 1));
    if let Some(sum) = there {
        return sum;
    }
    routed.iter().zip(shared).map(|(&r, &s)| r + s).collect::<Vec<T>>().into()
}
