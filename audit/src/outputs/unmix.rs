//! An error of a layer's streams, taken apart into its branches.

use std::collections::BTreeMap;

use karat_seam::{Data, Error as SeamError, Layer, Op, Recorder, RowId, Site, Streams, Tap, Tensor};

use super::flips::{self, Entries, Scores};
use super::linear::{basis, dot, norm, remove, split};
use crate::facts::LayerFacts;
use crate::{Result, align, own_error};

/// Golden's second half, from attention's result on.
const SECOND_HALF: [Op; 8] = [
    Op::HcAttnPost,
    Op::HcFfnPre,
    Op::FfnNorm,
    Op::Route,
    Op::Experts,
    Op::SharedExpert,
    Op::CombineExperts,
    Op::HcFfnPost,
];
/// Times that golden's second half is run for one solution, at most.
const PASSES: usize = 5;
/// A correction of so little of a row is none: less than one rounding to bf16.
const SETTLED: f64 = 1e-3;
/// The sine under which two ways into the streams are taken for one: such a row says nothing of either branch. What follows from
/// a wrong share of one there is as large as noise, and the solution is another one.
const PARALLEL: f64 = 0.15;
/// Groups of heads whose gains are told apart, at most.
const GROUPS: usize = 8;

/// Golden on one sequence's streams, and what its decisions leave open there.
pub(super) struct Side<'a> {
    layer: &'a dyn Layer,
    at: (u16, u32),
    facts: &'a LayerFacts,
    x: &'a Streams,
    golden: &'a Recorder,
    scores: &'a Scores,
    pub(super) rows: Vec<RowId>,
    hc: usize,
    d: usize,
    entries: Entries,
    /// What groups of heads add to attention's result, `[S,D]` each.
    heads: Vec<Vec<f64>>,
}

/// One branch of all rows.
pub(super) struct Branch {
    /// The error `[S,n]`, less what a changed decision would do.
    pub(super) error: Vec<f64>,
    /// Elements of a row.
    pub(super) width: usize,
    /// Golden's size, by row.
    pub(super) size: Vec<f64>,
    /// By row: the error's size over golden's.
    pub(super) off: Vec<f64>,
    /// Rows in which no decision is open.
    pub(super) is_closed: Vec<bool>,
    /// Parts of golden's value `[S,n]`, less the same: what a gain is told of.
    pub(super) parts: Vec<Vec<f64>>,
    /// By row: an entry, how far the error goes along what its absence changes, and the square of that.
    pub(super) along: Vec<Vec<(usize, f64, f64)>>,
    /// By row: how many times larger than the streams' own, relative to golden, an error of the streams is that goes neither way.
    pub(super) blur: Vec<f64>,
    /// Whether one op makes all parts: each then errs by the branch's share of itself.
    pub(super) is_one_op: bool,
}

/// Attention, experts, and what is neither.
pub(super) type Branches = [Branch; 3];

/// The taps that stand for them.
pub(super) const TAPS: [Tap; 3] = [Tap::AttnOut, Tap::FfnOut, Tap::Out];

impl<'a> Side<'a> {
    /// `None` where golden doesn't show or can't compute what is needed (rows that are no whole cold run).
    pub(super) fn of(
        layer: &'a dyn Layer,
        at: (u16, u32),
        facts: &'a LayerFacts,
        x: &'a Streams,
        golden: &'a Recorder,
        scores: &'a Scores,
    ) -> Result<Option<Self>> {
        let Some(out) = golden.get(Site::layer(at.0, Tap::Out), at.1) else { return Ok(None) };
        let [rows, hc, d] = out.tensor.shape[..] else { return Ok(None) };
        let entries = Entries { open: vec![Vec::new(); rows], shares: vec![Vec::new(); rows] };
        let heads = Vec::new();
        let rows = out.rows.clone();
        let mut side = Self { layer, at, facts, x, golden, scores, rows, hc, d, entries, heads };
        let Some(heads) = side.groups()? else { return Ok(None) };
        side.heads = heads;
        if facts.ratio.is_some() && golden.get(Site::layer(at.0, Tap::AttnSelected), at.1).is_some() {
            let Some(entries) = flips::entries(&side)? else { return Ok(None) };
            side.entries = entries;
        }
        Ok(Some(side))
    }

    pub(super) fn tap(&self, tap: Tap) -> Option<&'a Tensor> {
        self.golden.get(Site::layer(self.at.0, tap), self.at.1).map(|r| &r.tensor)
    }

    pub(super) fn facts(&self) -> &LayerFacts {
        self.facts
    }

    pub(super) fn scores(&self) -> &Scores {
        self.scores
    }

    pub(super) fn width(&self) -> usize {
        self.d
    }

    /// Golden's op on what golden shows, and on `made` where that has an operand. `None` where it can't be asked.
    pub(super) fn run(&self, op: Op, made: &BTreeMap<Tap, Tensor>) -> Result<Option<Vec<(Tap, Tensor)>>> {
        self.run_rows(op, made, &self.rows)
    }

    /// The same on some rows, whose operands are all in `made`.
    pub(super) fn run_rows(
        &self,
        op: Op,
        made: &BTreeMap<Tap, Tensor>,
        rows: &[RowId],
    ) -> Result<Option<Vec<(Tap, Tensor)>>> {
        let made = own_error::operands(op.spec(), self.layer, made, self.at, self.x, self.golden);
        let Some((operands, _)) = made else { return Ok(None) };
        match self.layer.op(op, &operands, rows) {
            Ok(made) => Ok(Some(made)),
            Err(SeamError::Unsupported { .. } | SeamError::Request(_) | SeamError::Shape { .. }) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// Attention's result of a tensor that stands for `attn.o`.
    pub(super) fn project(&self, o: Tensor) -> Result<Option<Vec<f64>>> {
        let mut made = BTreeMap::from([(Tap::AttnO, o)]);
        for op in [Op::OutputDown, Op::OutputUp] {
            let Some(written) = self.run(op, &made)? else { return Ok(None) };
            made.extend(written);
        }
        Ok(made.get(&Tap::AttnOut).and_then(wide))
    }

    /// What groups of heads add to attention's result: it is linear in what they give.
    fn groups(&self) -> Result<Option<Vec<Vec<f64>>>> {
        let Some(o) = self.tap(Tap::AttnO) else { return Ok(None) };
        let ([_, heads, of_head], Ok(values)) = (&o.shape[..], o.as_f32("attn.o")) else { return Ok(None) };
        let groups = GROUPS.min(*heads);
        let mut out = Vec::new();
        for group in 0..groups {
            let is_in = |i: usize| (i / of_head) % heads * groups / heads == group;
            let own = values.iter().enumerate().map(|(i, v)| if is_in(i) { *v } else { 0.0 }).collect();
            let Some(part) = self.project(Tensor::f32(o.shape.clone(), own))? else { return Ok(None) };
            out.push(part);
        }
        Ok(Some(out))
    }

    /// Takes apart what these streams `[S,hc,D]` differ from golden's by.
    pub(super) fn branches(&self, out: &Tensor) -> Result<Option<Branches>> {
        let needed = [Tap::Out, Tap::HcAttnPost, Tap::HcFfnComb, Tap::HcFfnPost, Tap::AttnOut].map(|t| self.tap(t));
        let [Some(right), Some(post), Some(comb), Some(post2), Some(attn)] = needed.map(|t| t.and_then(wide)) else {
            return Ok(None);
        };
        let Some(theirs) = wide(out).filter(|v| v.len() == right.len()) else { return Ok(None) };
        let (d, wide_d) = (self.d, self.hc * self.d);
        let all: Vec<usize> = (0..self.rows.len()).collect();
        let [mut error, mut own, mut rest] = self.split(&theirs, &right, [&post, &comb, &post2], &all);
        let is_parallel: Vec<bool> = all.iter().map(|s| self.sine([&post, &comb, &post2], *s) < PARALLEL).collect();
        // Golden's second half on what attention seems to have given: what is left is the experts' alone. The coefficients
        // follow from attention too, so what a row gave is solved for again, with those that follow, until it stays.
        let mut made: BTreeMap<Tap, Tensor> = BTreeMap::new();
        let (size, mut least) = (norms(&attn, d), vec![f64::INFINITY; all.len()]);
        let mut moving = all;
        for pass in 1..=PASSES {
            let of_row = |s: &usize| (*s * d..(*s + 1) * d).map(|i| (attn[i] + error[i]) as f32);
            let Some(half) = self.second_half(moving.iter().flat_map(of_row).collect(), &moving)? else {
                return Ok(None);
            };
            let of = |tap| half.get(&tap).and_then(wide);
            let now = [Tap::Out, Tap::HcFfnComb, Tap::HcFfnPost].map(of);
            let [Some(right), Some(comb), Some(post2)] = now else { return Ok(None) };
            let pick = |values: &[f64], width: usize| -> Vec<f64> {
                moving.iter().flat_map(|s| values[s * width..(s + 1) * width].iter().copied()).collect()
            };
            let ways = [&pick(&post, self.hc)[..], &comb, &post2];
            let rows: Vec<usize> = (0..moving.len()).collect();
            let [more, of_experts, of_rest] = self.split(&pick(&theirs, wide_d), &right, ways, &rows);
            let (mut still, mut taken) = (Vec::new(), Vec::new());
            for (n, s) in moving.iter().copied().enumerate() {
                let (more, left) = (&more[n * d..(n + 1) * d], &of_rest[n * wide_d..(n + 1) * wide_d]);
                // What leaves more than before explains less.
                if norm(left) >= least[s] {
                    continue;
                }
                least[s] = norm(left);
                taken.push((n, s));
                error[s * d..(s + 1) * d].iter_mut().zip(more).for_each(|(e, more)| *e += more);
                own[s * d..(s + 1) * d].copy_from_slice(&of_experts[n * d..(n + 1) * d]);
                rest[s * wide_d..(s + 1) * wide_d].copy_from_slice(left);
                if norm(more) > SETTLED * size[s] {
                    still.push(s);
                }
            }
            if pass == 1 {
                made = half;
            } else {
                half.iter().for_each(|(tap, rows)| made.get_mut(tap).into_iter().for_each(|of| put(of, rows, &taken)));
            }
            moving = still;
            if moving.is_empty() {
                break;
            }
        }
        let of = |tap| made.get(&tap).and_then(wide);
        let taps = [Tap::Out, Tap::HcFfnComb, Tap::HcFfnPost, Tap::FfnOut, Tap::FfnRouted, Tap::FfnShared];
        let [Some(right), Some(comb), Some(post2), Some(ffn), Some(routed), Some(shared)] = taps.map(of) else {
            return Ok(None);
        };
        let mut blur = self.blur([&post, &comb, &post2], is_parallel.into_iter());
        let mut heads = self.heads.clone();
        let beside = self.beside(&ffn);
        for values in heads.iter_mut().chain([&mut error]) {
            for ((row, open), beside) in values.chunks_exact_mut(d).zip(&self.entries.open).zip(&beside) {
                remove(row, open);
                remove(row, beside);
            }
        }
        let Some(open) = flips::experts(self, &made)? else { return Ok(None) };
        let closed = |open: &[Vec<Vec<f64>>]| open.iter().map(Vec::is_empty).collect::<Vec<bool>>();
        let is_closed = closed(&self.entries.open);
        let all: Vec<bool> = is_closed.iter().zip(closed(&open)).map(|(a, b)| *a && b).collect();
        let along = |((error, shares), beside): ((&[f64], &Vec<(usize, Vec<f64>)>), &Vec<Vec<f64>>)| {
            let of = |(entry, share): &(usize, Vec<f64>)| {
                let off: f64 = beside.iter().map(|beside| dot(share, beside).powi(2)).sum();
                (*entry, dot(error, share), dot(share, share) - off)
            };
            shares.iter().map(of).collect()
        };
        let along = error.chunks_exact(d).zip(&self.entries.shares).zip(&beside).map(along).collect();
        let whole = norms(&right, self.hc * self.d);
        let mut blur = |size: &[f64]| -> Vec<f64> {
            let rows = blur.next().unwrap_or_default();
            rows.iter().zip(size.iter().zip(&whole)).map(|(blur, (size, whole))| blur * whole / size).collect()
        };
        let off_attention = off(&error, self.d, &size);
        let attention = Branch {
            blur: blur(&size),
            error,
            width: self.d,
            size,
            off: off_attention,
            is_closed,
            parts: heads,
            along,
            is_one_op: true,
        };
        let size = norms(&ffn, self.d);
        let mut parts = vec![routed, shared];
        for values in parts.iter_mut().chain([&mut own]) {
            values.chunks_exact_mut(self.d).zip(&open).for_each(|(row, basis)| remove(row, basis));
        }
        let experts = Branch {
            blur: blur(&size),
            off: off(&own, self.d, &size),
            error: own,
            width: self.d,
            size,
            is_closed: all.clone(),
            parts,
            along: Vec::new(),
            is_one_op: false,
        };
        let width = self.hc * self.d;
        let size = norms(&right, width);
        let rest = Branch {
            blur: blur(&size),
            off: off(&rest, width, &size),
            error: rest,
            width,
            size,
            is_closed: all,
            parts: Vec::new(),
            along: Vec::new(),
            is_one_op: false,
        };
        Ok(Some([attention, experts, rest]))
    }

    /// By row: the direction of the experts' sum `[S,D]`, less what open entries would change. By which coefficients that sum goes
    /// into the streams follows from attention's result, noise and all; what they are off by is a multiple of the sum in every
    /// stream, and the split has as much of it in attention as the two ways are near to each other. One direction, which says
    /// nothing of attention.
    fn beside(&self, ffn: &[f64]) -> Vec<Vec<Vec<f64>>> {
        let of = |(sum, open): (&[f64], &Vec<Vec<f64>>)| {
            let mut sum = sum.to_vec();
            remove(&mut sum, open);
            basis([sum])
        };
        ffn.chunks_exact(self.d).zip(&self.entries.open).map(of).collect()
    }

    /// The sine of the angle between the two ways of row `s`.
    fn sine(&self, ways: [&[f64]; 3], s: usize) -> f64 {
        let (c, p) = self.ways(ways, s);
        let (cc, cp, pp) = (dot(&c, &c), dot(&c, p), dot(p, p));
        ((cc * pp - cp * cp).max(0.0) / (cc * pp)).sqrt()
    }

    /// By branch and row: how much of an error of the streams passes for the branch's. Of what is nearly parallel all.
    fn blur(
        &self,
        [post, comb, post2]: [&[f64]; 3],
        is_parallel: impl Iterator<Item = bool>,
    ) -> std::array::IntoIter<Vec<f64>, 3> {
        let mut all: [Vec<f64>; 3] = Default::default();
        for (s, is_parallel) in is_parallel.enumerate() {
            let (c, p) = self.ways([post, comb, post2], s);
            let (cc, cp, pp) = (dot(&c, &c), dot(&c, p), dot(p, p));
            let det = (cc * pp - cp * cp).max(0.0);
            let of = [(pp / det).sqrt(), (cc / det).sqrt(), 1.0];
            all.iter_mut().zip(of).for_each(|(all, of)| all.push(if is_parallel { f64::INFINITY } else { of }));
        }
        all.into_iter()
    }

    /// By which coefficients attention and the experts go into the streams of row `s`.
    fn ways<'c>(&self, [post, comb, post2]: [&'c [f64]; 3], s: usize) -> (Vec<f64>, &'c [f64]) {
        let hc = self.hc;
        let (post, comb) = (&post[s * hc..(s + 1) * hc], &comb[s * hc * hc..(s + 1) * hc * hc]);
        // comb is [in, out]: attention goes through the second mixing too.
        let through = (0..hc).map(|k| (0..hc).map(|j| post[j] * comb[j * hc + k]).sum()).collect();
        (through, &post2[s * hc..(s + 1) * hc])
    }

    /// Golden's second half on `given` `[n,D]`, attention's result of these rows.
    fn second_half(&self, given: Vec<f32>, which: &[usize]) -> Result<Option<BTreeMap<Tap, Tensor>>> {
        let rows: Vec<RowId> = which.iter().map(|s| self.rows[*s]).collect();
        let mut made = BTreeMap::from([(Tap::AttnOut, Tensor::f32(vec![rows.len(), self.d], given))]);
        // What it reads of the layer's first half.
        let first = [Tap::HcAttnPost, Tap::HcAttnComb].map(|tap| self.tap(tap).map(|of| (tap, of)));
        for (tap, of) in first.into_iter().flatten() {
            let Some(of) = align::gather(&self.rows, of, &rows) else { return Ok(None) };
            made.insert(tap, of.into_owned());
        }
        let Some(x) = align::gather(&self.x.rows, &self.x.data, &rows) else { return Ok(None) };
        // The streams that enter, until the last op writes those that leave.
        made.insert(Tap::Out, x.into_owned());
        for op in SECOND_HALF {
            let Some(written) = self.run_rows(op, &made, &rows)? else { return Ok(None) };
            made.extend(written);
        }
        Ok(Some(made))
    }

    /// `[n,D]`, `[n,D]`, `[n,hc,D]`: the error of attention, of the experts, and the rest, of these rows.
    fn split(&self, theirs: &[f64], right: &[f64], ways: [&[f64]; 3], rows: &[usize]) -> [Vec<f64>; 3] {
        let width = self.hc * self.d;
        let mut all: [Vec<f64>; 3] = Default::default();
        for s in rows.iter().copied() {
            let e: Vec<f64> = (s * width..(s + 1) * width).map(|i| theirs[i] - right[i]).collect();
            let (through, into) = self.ways(ways, s);
            let parts = split(&e, &through, into);
            all.iter_mut().zip(parts).for_each(|(all, part)| all.extend(part));
        }
        all
    }
}

/// Writes rows of a tensor: of each pair the first of `rows`, to where the second says.
fn put(of: &mut Tensor, rows: &Tensor, which: &[(usize, usize)]) {
    fn copy<T: Copy>(to: &mut [T], from: &[T], width: usize, which: &[(usize, usize)]) {
        let row = |s: usize| s * width..(s + 1) * width;
        which.iter().for_each(|(n, s)| to[row(*s)].copy_from_slice(&from[row(*n)]));
    }
    let width = rows.width();
    match (&mut of.data, &rows.data) {
        (Data::F32(to), Data::F32(from)) => copy(to, from, width, which),
        (Data::F64(to), Data::F64(from)) => copy(to, from, width, which),
        (Data::I64(to), Data::I64(from)) => copy(to, from, width, which),
        (Data::U8(to), Data::U8(from)) => copy(to, from, width, which),
        _ => {}
    }
}

/// Values in f64.
pub(super) fn wide(tensor: &Tensor) -> Option<Vec<f64>> {
    tensor.as_f32("values").ok().map(|v| v.iter().map(|v| f64::from(*v)).collect())
}

/// ‖row‖ by row.
fn norms(values: &[f64], width: usize) -> Vec<f64> {
    values.chunks_exact(width.max(1)).map(norm).collect()
}

/// ‖error‖ over ‖golden‖ by row.
fn off(error: &[f64], width: usize, size: &[f64]) -> Vec<f64> {
    norms(error, width).iter().zip(size).map(|(e, size)| e / size.max(f64::MIN_POSITIVE)).collect()
}
