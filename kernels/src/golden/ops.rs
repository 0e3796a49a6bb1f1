//! Golden's ops as steps on a device, each with its operands checked against the sizes that its kernels take.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use karat_model::{Error, Result};
use karat_reference::backend::{
    Attention, Backend, Choosing, Experts, Kept, Matrix, Mixing, Place, Scoring, Sinkhorn, Windows,
};
use karat_seam::Later;

use super::experts::Rows;
use super::run::{Desk, Found, Piece, Runner, Step, Values};
use super::sketch::{self, Lies};
use super::weights::Panels;

pub(super) fn floats(values: &[f32]) -> Piece<'_> {
    Piece::In(Values::F32(values))
}

pub(super) fn indices(values: &[u32]) -> Piece<'_> {
    Piece::In(Values::U32(values))
}

/// An error unless the operands of `op` fit together.
pub(super) fn fit(op: &str, fits: bool) -> Result<()> {
    if fits { Ok(()) } else { Err(Error::input(format!("golden's op {op} on a device: operands do not fit together"))) }
}

/// Rows of `width` values.
pub(super) fn rows(op: &str, len: usize, width: usize) -> Result<usize> {
    fit(op, width > 0 && len.is_multiple_of(width))?;
    Ok(len / width)
}

/// Outputs from which on tiles of them fill a device.
const TILED: usize = 1 << 17;

/// Rows times a weight: the places of x, its panels and y, then S, n, k.
pub(super) fn product(p: [usize; 3], n: [usize; 3]) -> Step {
    if n[0] * n[1] >= TILED && n[2].is_multiple_of(4) { tiled(p, n) } else { whole(p, n) }
}

/// One thread an output.
pub(super) fn whole(p: [usize; 3], n: [usize; 3]) -> Step {
    step("golden_linear", n[0] * n[1], &p, &n, &[])
}

/// Blocks of 32 rows and 64 outputs, 128 threads each; k is a multiple of four.
pub(super) fn tiled(p: [usize; 3], n: [usize; 3]) -> Step {
    step("golden_linear_tiled", n[0].div_ceil(32) * n[1].div_ceil(64) * 128, &p, &n, &[])
}

pub(super) fn step(kernel: &'static str, threads: usize, p: &[usize], n: &[usize], f: &[f64]) -> Step {
    Step { kernel, threads, p: p.to_vec(), n: n.to_vec(), f: f.to_vec() }
}

pub(super) fn values(found: Found) -> Result<Vec<f32>> {
    match found {
        Found::F32(values) => Ok(values),
        other => Err(Error::input(format!("a device gave {other:?} for values"))),
    }
}

/// The only result.
pub(super) fn one(found: Vec<Found>) -> Result<Found> {
    found.into_iter().next().ok_or_else(|| Error::input("a device gave no result"))
}

impl<R: Runner> Desk<R> {
    /// Address of a weight's panels, which are copied or decoded at its first use. It stays valid while `Kept` is held.
    pub(super) fn held(&self, w: Matrix<'_>) -> Result<(Kept, u64)> {
        let kept = w.kept(|| Ok(Arc::new(self.panels(w)?)))?;
        let panels = kept.downcast_ref::<Panels<R>>().filter(|panels| panels.is_of(&self.runner));
        let at = panels.map(|panels| panels.at);
        Ok((kept.clone(), at.ok_or_else(|| Error::input("a weight is kept by another device"))?))
    }

    /// One kernel with one result of f32.
    ///
    /// # Safety
    /// As for [`Desk::run`].
    unsafe fn single(&self, pieces: &[Piece<'_>], step: Step) -> Result<Vec<f32>> {
        // SAFETY: what the caller promises.
        values(one(unsafe { self.run(pieces, &[step]) }?)?)
    }
}

// SAFETY of every block below: the sizes that a kernel is given are those that were checked against the lengths of its
// operands just above it; the head of each kernel says which sizes mean what.
impl<R: Runner> Backend for Desk<R> {
    fn name(&self) -> String {
        let tier = if self.split.is_some() { ", exact-split tier" } else { "" };
        match &self.gather {
            None => format!("{}{tier}", self.runner.name()),
            Some(gather) => format!("{} x {}, {}{tier}", self.others.len() + 1, self.runner.name(), gather.name()),
        }
    }

    fn identity(&self) -> String {
        let whole = match &self.gather {
            None => self.runner.identity(),
            Some(gather) => format!("{}, {} ranks, {}", self.runner.identity(), self.ranks(), gather.name()),
        };
        match &self.split {
            None => whole,
            Some(split) => format!("{whole}, {}", split.identity()),
        }
    }

    fn floor(&self) -> f64 {
        self.split.as_ref().map_or(0.0, |split| split.stated())
    }

    fn ranks(&self) -> usize {
        self.others.len() + 1
    }

    fn rank(&self, rank: usize) -> Option<&dyn Backend> {
        self.others.get(rank.checked_sub(1)?).map(|desk| desk as &dyn Backend)
    }

    fn gather(&self, shares: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        match &self.gather {
            None => Ok(shares),
            Some(gather) => gather.gather(&shares),
        }
    }

    fn place(&self, values: &[f32]) -> Option<Place> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner).place(values)
    }

    fn sketch(&self, place: Place, values: Range<usize>, rows: usize, ragged: bool) -> Result<Option<Box<dyn Later>>> {
        if !self.room.lock().unwrap_or_else(PoisonError::into_inner).holds(place) || !self.runner.sketches() {
            return Ok(None);
        }
        sketch::want(&self.runner, &self.room, Lies::Room(place.start), &values, (rows, ragged)).map(Some)
    }

    fn linear(&self, x: &[f32], w: Matrix<'_>) -> Result<Vec<f32>> {
        let s = rows("linear", x.len(), w.k)?;
        let (kept, at) = self.held(w)?;
        if let Some(y) = self.split_product(x, (s, w.n, w.k), (&kept, at))? {
            return Ok(y);
        }
        // SAFETY: as said above; a weight that is held has all of its panels.
        unsafe { self.single(&[floats(x), Piece::Held(at), Piece::F32(s * w.n)], product([0, 1, 2], [s, w.n, w.k])) }
    }

    fn inverse_rms(&self, x: &[f32], n: usize, eps: f64) -> Result<Vec<f32>> {
        let s = rows("inverse_rms", x.len(), n)?;
        // SAFETY: as said above.
        unsafe { self.single(&[floats(x), Piece::F32(s)], step("golden_inverse_rms", s, &[0, 1], &[s, n], &[eps])) }
    }

    fn rms_norm(&self, x: &[f32], n: usize, w: Option<&[f32]>, eps: f64) -> Result<Vec<f32>> {
        let s = rows("rms_norm", x.len(), n)?;
        fit("rms_norm", w.is_none_or(|w| w.len() == n))?;
        let pieces = [floats(x), Piece::Room(4 * s), w.map_or(Piece::Nothing, floats), Piece::F32(x.len())];
        let steps = [
            step("golden_inverse_rms", s, &[0, 1], &[s, n], &[eps]),
            step("golden_norm", x.len(), &[0, 1, 2, 3], &[s, n], &[]),
        ];
        // SAFETY: as said above.
        values(one(unsafe { self.run(&pieces, &steps) }?)?)
    }

    fn rotate(&self, x: &[f32], width: usize, turns: &[f32], half: usize, back: bool) -> Result<Vec<f32>> {
        let s = rows("rotate", turns.len(), 2 * half)?;
        let row = x.len().checked_div(s).unwrap_or(width);
        fit("rotate", x.len() == s * row && row > 0 && row % width == 0 && 2 * half <= width)?;
        let sizes = [x.len(), width, half, row, usize::from(back)];
        let step = step("golden_rotate", x.len(), &[0, 1, 2], &sizes, &[]);
        // SAFETY: as said above.
        unsafe { self.single(&[floats(x), floats(turns), Piece::F32(x.len())], step) }
    }

    fn scale(&self, x: &[f32], factor: f32) -> Result<Vec<f32>> {
        let step = step("golden_scale", x.len(), &[0, 1], &[x.len()], &[f64::from(factor)]);
        // SAFETY: as said above.
        unsafe { self.single(&[floats(x), Piece::F32(x.len())], step) }
    }

    fn coefficients(&self, m: &[f32], r: &[f32], base: &[f32], scale: &[f32], size: Sinkhorn) -> Result<Mixing> {
        let Sinkhorn { hc, iters, eps } = size;
        let (s, n) = (r.len(), (2 + hc) * hc);
        fit("coefficients", m.len() == s * n && base.len() == n && scale.len() == 3)?;
        let room = [Piece::F32(s * hc), Piece::F32(s * hc), Piece::F32(s * hc * hc)];
        let pieces = [floats(m), floats(r), floats(base), floats(scale), room[0], room[1], room[2]];
        let (sizes, eps) = ([s, hc, iters.max(1)], [f64::from(eps)]);
        let step = step("golden_coefficients", s, &[0, 1, 2, 3, 4, 5, 6], &sizes, &eps);
        // SAFETY: as said above.
        let mut found = unsafe { self.run(&pieces, &[step]) }?.into_iter().map(values);
        let mut next = || found.next().unwrap_or_else(|| Ok(Vec::new()));
        Ok((next()?, next()?, next()?))
    }

    fn head_weights(&self, m: &[f32], r: &[f32], base: &[f32], scale: f32, eps: f32) -> Result<Vec<f32>> {
        let (s, hc) = (r.len(), base.len());
        fit("head_weights", m.len() == s * hc)?;
        let factors = [f64::from(scale), f64::from(eps)];
        let step = step("golden_head_weights", s * hc, &[0, 1, 2, 3], &[s, hc], &factors);
        // SAFETY: as said above.
        unsafe { self.single(&[floats(m), floats(r), floats(base), Piece::F32(s * hc)], step) }
    }

    fn collapse(&self, pre: &[f32], h: &[f32], hc: usize) -> Result<Vec<f32>> {
        let s = rows("collapse", pre.len(), hc)?;
        let d = rows("collapse", h.len(), pre.len().max(1))?;
        let step = step("golden_collapse", s * d, &[0, 1, 2], &[s, hc, d], &[]);
        // SAFETY: as said above.
        unsafe { self.single(&[floats(pre), floats(h), Piece::F32(s * d)], step) }
    }

    fn combine(&self, comb: &[f32], post: &[f32], h: &[f32], y: &[f32], hc: usize) -> Result<Vec<f32>> {
        let s = rows("combine", post.len(), hc)?;
        let d = rows("combine", y.len(), s.max(1))?;
        fit("combine", comb.len() == s * hc * hc && h.len() == s * hc * d)?;
        let pieces = [floats(comb), floats(post), floats(h), floats(y), Piece::F32(h.len())];
        // SAFETY: as said above.
        unsafe { self.single(&pieces, step("golden_combine", h.len(), &[0, 1, 2, 3, 4], &[s, hc, d], &[])) }
    }

    fn pool(&self, it: Windows<'_>) -> Result<(Vec<f32>, Vec<f32>)> {
        let (r, width) = (it.ratio, it.width);
        let columns = rows("pool", it.ape.len(), r)?;
        let n = rows("pool", it.kvp.len(), r * columns)?;
        fit("pool", it.score.len() == it.kvp.len() && (columns == width || columns == 2 * width) && width > 0)?;
        fit("pool", it.before.is_none_or(|rows| rows.iter().all(|rows| rows.len() == r * width)))?;
        let [kvp, score] = it.before.map_or([Piece::Nothing; 2], |before| before.map(floats));
        let pieces = [
            floats(it.kvp),
            floats(it.score),
            floats(it.ape),
            kvp,
            score,
            Piece::F32(n * width),
            Piece::F32(it.score.len()),
        ];
        let steps = [
            step("golden_ape", it.score.len(), &[1, 2, 6], &[it.score.len(), r * columns], &[]),
            step("golden_pool", n * width, &[0, 6, 3, 4, 5], &[n, r, columns, width], &[]),
        ];
        // SAFETY: as said above.
        let mut found = unsafe { self.run(&pieces, &steps) }?.into_iter().map(values);
        let mut next = || found.next().unwrap_or_else(|| Ok(Vec::new()));
        Ok((next()?, next()?))
    }

    fn index_scores(&self, it: Scoring<'_>) -> Result<Vec<f32>> {
        let s = rows("index_scores", it.w.len(), it.heads)?;
        let d = rows("index_scores", it.q.len(), it.w.len().max(1))?;
        let total = rows("index_scores", it.k.len(), d.max(1))?;
        fit("index_scores", it.ratio > 0)?;
        let sizes = [s, total, it.heads, d, it.first, it.ratio];
        let step = step("golden_index_scores", s * total, &[0, 1, 2, 3], &sizes, &[]);
        // SAFETY: as said above.
        unsafe { self.single(&[floats(it.q), floats(it.k), floats(it.w), Piece::F32(s * total)], step) }
    }

    fn select(&self, it: Choosing<'_>) -> Result<Vec<u8>> {
        let n = it.rows * it.total;
        fit("select", it.ratio > 0 && it.scores.is_none_or(|scores| scores.len() == n))?;
        let sizes = [it.rows, it.total, it.topk, it.first, it.ratio];
        let pieces = [it.scores.map_or(Piece::Nothing, floats), Piece::U8(n)];
        // SAFETY: as said above.
        match one(unsafe { self.run(&pieces, &[step("golden_select", n, &[0, 1], &sizes, &[])]) }?)? {
            Found::U8(mask) => Ok(mask),
            other => Err(Error::input(format!("a device gave {other:?} for a mask"))),
        }
    }

    fn attend(&self, it: Attention<'_>) -> Result<(Vec<f32>, Vec<f32>)> {
        let (heads, d) = (it.sink.len(), it.width);
        let s = rows("attend", it.q.len(), heads * d)?;
        let n = rows("attend", it.keys.len(), d)?;
        let c = it.list.len();
        fit("attend", it.from.len() == s + 1 && it.from.windows(2).all(|pair| pair[0] <= pair[1]))?;
        fit("attend", it.from.first() == Some(&0) && it.from.last().is_some_and(|&last| last as usize == c))?;
        fit("attend", it.list.iter().all(|&row| (row as usize) < n))?;
        let mut row = Vec::with_capacity(c);
        for (t, pair) in it.from.windows(2).enumerate() {
            row.extend((pair[0]..pair[1]).map(|_| t as u32));
        }
        let pieces = [
            floats(it.q),
            floats(it.keys),
            indices(it.list),
            indices(&row),
            indices(it.from),
            floats(it.sink),
            Piece::Room(4 * c * heads),
            Piece::Room(8 * s * heads),
            Piece::F32(it.q.len()),
            Piece::F32(s * heads),
        ];
        let scale = [f64::from(it.scale)];
        let steps = [
            step("golden_scores", c * heads, &[0, 1, 2, 3, 6], &[c, heads, d], &scale),
            step("golden_weights", s * heads, &[6, 4, 5, 7, 9], &[s, heads], &[]),
            step("golden_values", it.q.len(), &[6, 4, 2, 1, 7, 8], &[s, heads, d], &[]),
        ];
        // SAFETY: as said above; every index of `list` and `from` was checked.
        let mut found = unsafe { self.run(&pieces, &steps) }?.into_iter().map(values);
        let mut next = || found.next().unwrap_or_else(|| Ok(Vec::new()));
        Ok((next()?, next()?))
    }

    fn choose(&self, logits: &[f32], bias: &[f32], k: usize) -> Result<Vec<u32>> {
        let s = rows("choose", logits.len(), bias.len())?;
        fit("choose", k <= bias.len())?;
        let pieces = [floats(logits), floats(bias), Piece::Room(4 * logits.len()), Piece::U32(s * k)];
        let steps = [
            step("golden_affinities", logits.len(), &[0, 1, 2], &[s, bias.len()], &[]),
            step("golden_choose", logits.len(), &[2, 3], &[s, bias.len(), k], &[]),
        ];
        // SAFETY: as said above; an expert's place is below k only for k of them.
        match one(unsafe { self.run(&pieces, &steps) }?)? {
            Found::U32(idx) => Ok(idx),
            other => Err(Error::input(format!("a device gave {other:?} for indices"))),
        }
    }

    fn route_weights(&self, logits: &[f32], experts: usize, idx: &[u32], k: usize, factor: f64) -> Result<Vec<f32>> {
        let s = rows("route_weights", idx.len(), k)?;
        fit("route_weights", logits.len() == s * experts && idx.iter().all(|&e| (e as usize) < experts))?;
        let (sizes, factor) = ([s, experts, k], [factor]);
        let step = step("golden_route_weights", idx.len(), &[0, 1, 2], &sizes, &factor);
        // SAFETY: as said above; every index was checked.
        unsafe { self.single(&[floats(logits), indices(idx), Piece::F32(idx.len())], step) }
    }

    fn swiglu(&self, g: &[f32], u: &[f32], limit: f32, wt: Option<(&[f32], usize)>) -> Result<Vec<f32>> {
        let inner = wt.map_or(1, |(_, inner)| inner);
        let s = rows("swiglu", g.len(), inner)?;
        fit("swiglu", u.len() == g.len() && wt.is_none_or(|(wt, _)| wt.len() == s))?;
        let pieces = [floats(g), floats(u), wt.map_or(Piece::Nothing, |(wt, _)| floats(wt)), Piece::F32(g.len())];
        let (sizes, limit) = ([g.len(), inner], [f64::from(limit)]);
        // SAFETY: as said above.
        unsafe { self.single(&pieces, step("golden_swiglu", g.len(), &[0, 1, 2, 3], &sizes, &limit)) }
    }

    fn sum_experts(&self, out: &[f32], order: &[u32], k: usize, d: usize) -> Result<Vec<f32>> {
        let s = rows("sum_experts", order.len(), k)?;
        fit("sum_experts", out.len() == s * k * d && order.iter().all(|&slot| (slot as usize) < k))?;
        let step = step("golden_sum_experts", s * d, &[0, 1, 2], &[s, k, d], &[]);
        // SAFETY: as said above; every slot was checked.
        unsafe { self.single(&[floats(out), indices(order), Piece::F32(s * d)], step) }
    }

    fn experts(&self, x: &[&[f32]], d: usize, sums: usize) -> Result<Option<Box<dyn Experts>>> {
        Ok(Rows::begin(self, x, d, sums)?.map(|rows| Box::new(rows) as Box<dyn Experts>))
    }

    fn add(&self, a: &[f32], b: &[f32], d: usize, repeat: usize) -> Result<Vec<f32>> {
        rows("add", b.len(), d)?;
        fit("add", repeat > 0 && a.len() == b.len() * repeat)?;
        let step = step("golden_add", a.len(), &[0, 1, 2], &[a.len(), d, repeat], &[]);
        // SAFETY: as said above.
        unsafe { self.single(&[floats(a), floats(b), Piece::F32(a.len())], step) }
    }
}
