//! An error of a layer's streams, taken apart into its branches.

use std::collections::BTreeMap;

use karat_seam::{Error as SeamError, Layer, Op, Recorder, RowId, Site, Streams, Tap, Tensor};

use super::flips::{self, Entries, Scores};
use super::linear::{dot, norm, remove, split};
use crate::facts::LayerFacts;
use crate::{Result, own_error};

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
        let made = own_error::operands(op.spec(), self.layer, made, self.at, self.x, self.golden);
        let Some((operands, _)) = made else { return Ok(None) };
        match self.layer.op(op, &operands, &self.rows) {
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
        let [mut error, ..] = self.split(&theirs, &right, &post, &comb, &post2);
        // Golden's second half on what attention seems to have given: what is left is the experts' alone. The coefficients
        // follow from attention too, so what it gave is solved for again, with those that follow, until it stays.
        let mut pass = 0;
        let mut before = norms(&error, self.d);
        let (made, mut own, rest, [ffn, routed, shared, right], mut blur) = loop {
            let given = attn.iter().zip(&error).map(|(a, e)| (a + e) as f32).collect();
            let mut made = BTreeMap::from([(Tap::AttnOut, Tensor::f32(vec![self.rows.len(), self.d], given))]);
            for op in SECOND_HALF {
                let Some(written) = self.run(op, &made)? else { return Ok(None) };
                made.extend(written);
            }
            let of = |tap| made.get(&tap).and_then(wide);
            let [Some(right), Some(comb), Some(post2), Some(ffn), Some(routed), Some(shared)] =
                [Tap::Out, Tap::HcFfnComb, Tap::HcFfnPost, Tap::FfnOut, Tap::FfnRouted, Tap::FfnShared].map(of)
            else {
                return Ok(None);
            };
            let [more, own, rest] = self.split(&theirs, &right, &post, &comb, &post2);
            error.iter_mut().zip(&more).for_each(|(e, more)| *e += more);
            pass += 1;
            let (left, size) = (norms(&more, self.d), norms(&attn, self.d));
            let moves: Vec<bool> = left.iter().zip(&size).map(|(left, size)| *left > SETTLED * size).collect();
            if pass == PASSES || moves.iter().all(|moves| !moves) {
                // A row whose corrections don't shrink has no solution near the first one.
                let is_lost = moves.iter().zip(left.iter().zip(&before)).map(|(moves, (a, b))| *moves && 2.0 * a > *b);
                let blur = self.blur([&post, &comb, &post2], is_lost);
                break (made, own, rest, [ffn, routed, shared, right], blur);
            }
            before = left;
        };
        let size = norms(&attn, self.d);
        let mut heads = self.heads.clone();
        for values in heads.iter_mut().chain([&mut error]) {
            values.chunks_exact_mut(self.d).zip(&self.entries.open).for_each(|(row, basis)| remove(row, basis));
        }
        let Some(open) = flips::experts(self, &made)? else { return Ok(None) };
        let closed = |open: &[Vec<Vec<f64>>]| open.iter().map(Vec::is_empty).collect::<Vec<bool>>();
        let is_closed = closed(&self.entries.open);
        let all: Vec<bool> = is_closed.iter().zip(closed(&open)).map(|(a, b)| *a && b).collect();
        let along = |(error, shares): (&[f64], &Vec<(usize, Vec<f64>)>)| {
            shares.iter().map(|(entry, share)| (*entry, dot(error, share), dot(share, share))).collect()
        };
        let along = error.chunks_exact(self.d).zip(&self.entries.shares).map(along).collect();
        let whole = norms(&right, self.hc * self.d);
        let mut blur = |size: &[f64]| -> Vec<f64> {
            let rows = blur.next().unwrap_or_default();
            rows.iter().zip(size.iter().zip(&whole)).map(|(blur, (size, whole))| blur * whole / size).collect()
        };
        let attention =
            Branch { blur: blur(&size), error, width: self.d, size, is_closed, parts: heads, along, is_one_op: true };
        let size = norms(&ffn, self.d);
        let mut parts = vec![routed, shared];
        for values in parts.iter_mut().chain([&mut own]) {
            values.chunks_exact_mut(self.d).zip(&open).for_each(|(row, basis)| remove(row, basis));
        }
        let experts = Branch {
            blur: blur(&size),
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

    /// By branch and row: how much of an error of the streams passes for the branch's. What is nearly parallel is hardly told
    /// apart, what is lost not at all.
    fn blur(
        &self,
        [post, comb, post2]: [&[f64]; 3],
        is_lost: impl Iterator<Item = bool>,
    ) -> std::array::IntoIter<Vec<f64>, 3> {
        let mut all: [Vec<f64>; 3] = Default::default();
        for (s, is_lost) in is_lost.enumerate() {
            let (c, p) = self.ways([post, comb, post2], s);
            let (cc, cp, pp) = (dot(&c, &c), dot(&c, p), dot(p, p));
            let det = (cc * pp - cp * cp).max(0.0);
            let of = [(pp / det).sqrt(), (cc / det).sqrt(), 1.0];
            all.iter_mut().zip(of).for_each(|(all, of)| all.push(if is_lost { f64::INFINITY } else { of }));
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

    /// `[S,D]`, `[S,D]`, `[S,hc,D]`: the error of attention, of the experts, and the rest.
    fn split(&self, theirs: &[f64], right: &[f64], post: &[f64], comb: &[f64], post2: &[f64]) -> [Vec<f64>; 3] {
        let width = self.hc * self.d;
        let mut all: [Vec<f64>; 3] = Default::default();
        for s in 0..self.rows.len() {
            let e: Vec<f64> = (s * width..(s + 1) * width).map(|i| theirs[i] - right[i]).collect();
            let (through, into) = self.ways([post, comb, post2], s);
            let parts = split(&e, &through, into);
            all.iter_mut().zip(parts).for_each(|(all, part)| all.extend(part));
        }
        all
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
