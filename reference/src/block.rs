//! One block (spec 2.2): attention half row by row of each sequence with its carried state, then the feed-forward half
//! of all lanes together, so that every expert is decoded once.

use std::borrow::Cow;

use karat_seam::{Block, Error, KvPart, KvView, LayerChoices, Result, RowId, Site, Tap, Visitor, Want};

use crate::eye::Eye;
use crate::linalg::Real;
use crate::made::Made;
use crate::ops::attend::{Keys, attend};
use crate::ops::experts::{self, Routed};
use crate::ops::hc_coefficients::{HcWeights, hc_coefficients};
use crate::ops::rms_norm::rms_norm;
use crate::ops::rope::{Angles, Rope};
use crate::ops::{
    Ctx, compress, hc_coefficients::Coefficients, hc_mix, index, key_value, output, query, route, select,
};
use crate::state::{CompressorState, LayerState};
use crate::weights::BlockWeights;

/// Rows of a sequence that go through an op at a time: their tensors stay in the caches from op to op.
const PIECE: usize = 256;
/// The same where a visitor looks at index scores or selections, whose rows are as long as there are entries at the end
/// of a piece, and doesn't say that few rows will do.
const WIDE_PIECE: usize = 2048;

/// Consecutive rows of one sequence of one lane, from the state that the rows before them left.
pub(crate) struct Part<'a, T> {
    /// Index of the lane's visitor.
    pub(crate) lane: usize,
    /// The rows; the first is at position `state.n`. Behind position 0 with an empty state, they go on from replayed KV.
    pub(crate) rows: &'a [RowId],
    /// Input ids of the rows (hash routing).
    pub(crate) ids: &'a [u32],
    /// Replayed KV.
    pub(crate) given: Option<&'a dyn KvView>,
    /// Replayed decisions of the whole sequence.
    pub(crate) forced: Option<&'a LayerChoices>,
    /// Streams `[S,hc,D]`: in, then out.
    pub(crate) h: Vec<T>,
    /// Carried state.
    pub(crate) state: LayerState<T>,
}

/// A block and what it needs from the model.
pub(crate) struct Resident<'a, T> {
    pub(crate) ctx: Ctx<'a>,
    pub(crate) rope: &'a Rope,
    pub(crate) block: Block,
    pub(crate) weights: &'a BlockWeights<'a, T>,
}

impl<T: Real> Resident<'_, T> {
    /// Runs every part through the block.
    pub(crate) fn run(&self, sees: &mut [&mut dyn Visitor], parts: &mut [Part<'_, T>]) -> Result<()> {
        for part in parts.iter_mut() {
            let resumes = part.state.n > 0 && part.state.win.is_empty();
            if let Some(view) = part.given.filter(|_| resumes) {
                let (seq, n) = (part.rows[0].seq, part.state.n);
                part.state =
                    LayerState::resumed(view, (seq, n, n + part.rows.len()), self.weights.kind, self.ctx.config)?;
            }
            let stride = self.ctx.config.hc_mult * self.ctx.config.hidden_size;
            let see = &mut *sees[part.lane];
            let ragged = self.wanted(see, Tap::AttnIndexScore) || self.wanted(see, Tap::AttnSelected);
            let piece = if ragged && !see.takes_few_rows() { WIDE_PIECE } else { PIECE };
            for (i, rows) in part.rows.chunks(piece).enumerate() {
                let mut eye = Eye { see: &mut *see, block: self.block, rows };
                let range = i * piece * stride..(i * piece + rows.len()) * stride;
                let after =
                    self.attention(&mut eye, part.given, part.forced, &mut part.state, &part.h[range.clone()])?;
                part.h[range].copy_from_slice(&after);
            }
            if resumes {
                part.state.forget();
            }
        }
        self.feed_forward(sees, parts)
    }

    fn wanted(&self, see: &dyn Visitor, tap: Tap) -> bool {
        see.want(Site { block: self.block, tap }) != Want::Skip
    }

    /// Coefficients and collapse; `taps` are pre, post, comb, collapsed.
    fn mix_in(
        &self,
        eye: &mut Eye<'_>,
        w: &HcWeights<T>,
        h: &[T],
        taps: [Tap; 4],
    ) -> Result<(Coefficients<T>, Made<T>)> {
        let (hc, d) = (self.ctx.config.hc_mult, self.ctx.config.hidden_size);
        let mut mix = hc_coefficients(self.ctx, w, h);
        eye.tap(taps[0], &[hc], &mut mix.pre)?;
        eye.tap(taps[1], &[hc], &mut mix.post)?;
        eye.tap(taps[2], &[hc, hc], &mut mix.comb)?;
        let mut x = hc_mix::collapse(self.ctx, &mix.pre, h);
        eye.tap(taps[3], &[d], &mut x)?;
        Ok((mix, x))
    }

    fn attention(
        &self,
        eye: &mut Eye<'_>,
        given: Option<&dyn KvView>,
        forced: Option<&LayerChoices>,
        state: &mut LayerState<T>,
        h: &[T],
    ) -> Result<Made<T>> {
        let (ctx, c, w) = (self.ctx, self.ctx.config, &self.weights.attn);
        let (heads, hd) = (c.num_attention_heads, c.head_dim);
        let (s, first, seq) = (eye.rows.len(), state.n, eye.rows[0].seq);
        let taps = [Tap::HcAttnPre, Tap::HcAttnPost, Tap::HcAttnComb, Tap::HcAttnCollapsed];
        let (mix, collapsed) = self.mix_in(eye, &self.weights.hc_attn, h, taps)?;
        let mut x = rms_norm(ctx, &collapsed, &w.norm, c.rms_norm_eps);
        eye.tap(Tap::AttnIn, &[c.hidden_size], &mut x)?;

        let angles = Angles::at(self.rope, eye.rows.iter().map(|row| row.pos));
        let mut qr = query::query_down(ctx, &x, &w.wq_a, &w.q_norm);
        eye.tap(Tap::AttnQr, &[c.q_lora_rank], &mut qr)?;
        let mut q = query::query_up(ctx, &qr, &w.wq_b, &angles);
        eye.tap(Tap::AttnQ, &[heads, hd], &mut q)?;
        let mut kv = key_value::key_value(ctx, &x, &w.wkv, &w.kv_norm, &angles);
        eye.tap(Tap::AttnKv, &[hd], &mut kv)?;

        if let Some(compressor) = &w.compressor {
            let taps = [Tap::AttnKvp, Tap::AttnGateScore, Tap::AttnCkv];
            self.compress(eye, compressor, &mut state.main, &x, taps)?;
        }
        let entries = given_rows(given, seq, KvPart::Entries, hd, 0, &state.main.entries)?;
        let total = entries.len() / hd;
        let mut scores = None;
        if let Some(indexer) = &w.indexer {
            let taps = [Tap::AttnIndexKvp, Tap::AttnIndexGateScore, Tap::AttnIndexK];
            self.compress(eye, &indexer.compressor, &mut state.index, &x, taps)?;
            let mut iq = index::index_query(ctx, &qr, &indexer.wq_b, &angles);
            eye.tap(Tap::AttnIndexQ, &[c.index_n_heads, c.index_head_dim], &mut iq)?;
            let mut iw = index::index_weights(ctx, &x, &indexer.weights_proj);
            eye.tap(Tap::AttnIndexW, &[c.index_n_heads], &mut iw)?;
            let ik = given_rows(given, seq, KvPart::IndexKeys, c.index_head_dim, 0, &state.index.entries)?;
            let mut score = index::index_score(ctx, &iq, &ik, &iw, first, indexer.compressor.ratio);
            eye.tap(Tap::AttnIndexScore, &[total], &mut score)?;
            scores = Some(score);
        }
        let mut selected = Vec::new();
        if let Some(compressor) = &w.compressor {
            selected = match forced.filter(|f| !f.entries.is_empty()) {
                Some(forced) => forced_entries(forced, first, s, total)?,
                None => select::select(ctx, scores.as_deref(), c.index_topk, s, total, first, compressor.ratio),
            };
            eye.mask(Tap::AttnSelected, total, &mut selected)?;
        }

        let kept = state.win.len() / hd;
        state.win.extend_from_slice(&kv);
        let window = given_rows(given, seq, KvPart::Window, hd, first - kept, &state.win)?;
        let keys = Keys { first: first - kept, window: &window, entries: &entries, selected: &selected };
        let (mut o, mut lse) = attend(ctx, &q, keys, &w.sink, first);
        eye.tap(Tap::AttnO, &[heads, hd], &mut o)?;
        eye.tap(Tap::AttnLse, &[heads], &mut lse)?;
        let surplus = (kept + s).saturating_sub(c.sliding_window - 1);
        state.win.drain(..surplus * hd);
        state.n += s;

        let mut oa = output::output_down(ctx, o, &w.wo_a, &angles);
        eye.tap(Tap::AttnOa, &[c.o_groups * c.o_lora_rank], &mut oa)?;
        let mut y = output::output_up(ctx, &oa, &w.wo_b);
        eye.tap(Tap::AttnOut, &[c.hidden_size], &mut y)?;
        let mut after = hc_mix::combine(ctx, &mix, h, &y);
        eye.tap(Tap::HcAttnOut, &[c.hc_mult, c.hidden_size], &mut after)?;
        Ok(after)
    }

    /// Projection and pooling; `taps` are kvp, score, entries.
    fn compress(
        &self,
        eye: &mut Eye<'_>,
        w: &compress::CompressorWeights<T>,
        state: &mut CompressorState<T>,
        x: &[T],
        taps: [Tap; 3],
    ) -> Result<()> {
        let (mut kvp, mut score) = compress::project(self.ctx, w, x);
        eye.tap(taps[0], &[w.columns()], &mut kvp)?;
        eye.tap(taps[1], &[w.columns()], &mut score)?;
        let first = state.entries.len() / w.width();
        let mut fresh = compress::pool(self.ctx, w, self.rope, state, &kvp, &score);
        let unknown = state.unknown.saturating_sub(first).min(fresh.len() / w.width());
        eye.entries(taps[2], first + unknown, w.width(), fresh.behind(unknown * w.width()))?;
        state.entries.extend_from_slice(&fresh);
        Ok(())
    }

    fn feed_forward(&self, sees: &mut [&mut dyn Visitor], parts: &mut [Part<'_, T>]) -> Result<()> {
        let (ctx, c, w) = (self.ctx, self.ctx.config, self.weights);
        let d = c.hidden_size;
        let stride = c.hc_mult * d;
        let pieces: Vec<Vec<FfnPiece<T>>> =
            parts.iter().map(|part| self.ffn_in(&mut *sees[part.lane], part)).collect::<Result<_>>()?;
        let mut sums = self.experts(sees, parts, &pieces)?.into_iter();
        let x: Vec<&[T]> = pieces.iter().flatten().map(|piece| &*piece.x).collect();
        let mut shared = experts::shared(ctx, &w.shared, &x);

        for (part, pieces) in parts.iter_mut().zip(&pieces) {
            let h = part.h.chunks_mut(PIECE * stride);
            for ((rows, piece), (h, mut sum)) in part.rows.chunks(PIECE).zip(pieces).zip(h.zip(sums.by_ref())) {
                let mut eye = Eye { see: &mut *sees[part.lane], block: self.block, rows };
                eye.tap(Tap::FfnRouted, &[d], &mut sum)?;
                let mut shared = shared.next().expect("each piece has a result");
                eye.tap(Tap::FfnShared, &[d], &mut shared)?;
                let mut y = experts::combine(ctx, &sum, &shared);
                eye.tap(Tap::FfnOut, &[d], &mut y)?;
                let mut after = hc_mix::combine(ctx, &piece.mix, h, &y);
                eye.tap(Tap::Out, &[c.hc_mult, d], &mut after)?;
                h.copy_from_slice(&after);
            }
        }
        Ok(())
    }

    /// Routed branch of every piece; their activations are shown before.
    fn experts(
        &self,
        sees: &mut [&mut dyn Visitor],
        parts: &[Part<'_, T>],
        pieces: &[Vec<FfnPiece<T>>],
    ) -> Result<Vec<Made<T>>> {
        let (ctx, w) = (self.ctx, &self.weights.experts);
        let (k, inner) = (ctx.config.num_experts_per_tok, ctx.config.moe_intermediate_size);
        let mut routed = Vec::new();
        for piece in pieces.iter().flatten() {
            routed.push(Routed { x: &piece.x, idx: &piece.idx, wt: &piece.wt });
        }
        let site = Site { block: self.block, tap: Tap::FfnExpertAct };
        let wants: Vec<Want> = sees.iter().map(|see| see.want(site)).collect();
        if wants.iter().all(|want| *want == Want::Skip) {
            return experts::routed(ctx, &routed, w).map_err(Error::source);
        }
        let changed = wants.contains(&Want::Write);
        let mut shown_to = sees.iter().zip(&wants).filter(|(_, want)| **want != Want::Skip);
        let sketched = !changed && shown_to.all(|(see, _)| see.takes_sketches(site, k * inner));
        let shown = parts.iter().zip(pieces).flat_map(|(part, pieces)| {
            let rows = part.rows.chunks(PIECE).take(pieces.len());
            rows.map(|rows| (part.lane, rows))
        });
        // Who only reads them is shown them when the sums are made too, which takes one pass over the experts.
        if sketched && let Some((lines, sums)) = experts::routed_and_sketched(ctx, &routed, w).map_err(Error::source)? {
            for ((lane, rows), lines) in shown.zip(lines) {
                Eye { see: &mut *sees[lane], block: self.block, rows }.lines(Tap::FfnExpertAct, lines)?;
            }
            return Ok(sums);
        }
        let (mut acts, sums) = if changed {
            (experts::expert_act(ctx, &routed, w).map_err(Error::source)?, None)
        } else {
            let (acts, sums) = experts::routed_and_act(ctx, &routed, w).map_err(Error::source)?;
            (acts, Some(sums))
        };
        for ((lane, rows), act) in shown.zip(&mut acts) {
            Eye { see: &mut *sees[lane], block: self.block, rows }.tap(Tap::FfnExpertAct, &[k, inner], act)?;
        }
        sums.map_or_else(|| experts::expert_sum(ctx, &routed, &acts, w).map_err(Error::source), Ok)
    }

    /// The feed-forward half of a part up to its experts.
    fn ffn_in(&self, see: &mut dyn Visitor, part: &Part<'_, T>) -> Result<Vec<FfnPiece<T>>> {
        let (ctx, c, w) = (self.ctx, self.ctx.config, self.weights);
        let (d, k, experts) = (c.hidden_size, c.num_experts_per_tok, c.n_routed_experts);
        let mut first = part.state.n - part.rows.len();
        let ids = |i: usize, n: usize| part.ids.get(i * PIECE..i * PIECE + n).unwrap_or_default();
        let mut pieces = Vec::new();
        for (i, (rows, h)) in part.rows.chunks(PIECE).zip(part.h.chunks(PIECE * c.hc_mult * d)).enumerate() {
            let mut eye = Eye { see: &mut *see, block: self.block, rows };
            let taps = [Tap::HcFfnPre, Tap::HcFfnPost, Tap::HcFfnComb, Tap::HcFfnCollapsed];
            let (mix, collapsed) = self.mix_in(&mut eye, &w.hc_ffn, h, taps)?;
            let mut x = rms_norm(ctx, &collapsed, &w.ffn_norm, c.rms_norm_eps);
            eye.tap(Tap::FfnIn, &[d], &mut x)?;
            let mut logits = route::router_logits(ctx, &x, &w.router);
            eye.tap(Tap::FfnRouterLogits, &[experts], &mut logits)?;
            let mut idx = match part.forced.filter(|f| !f.experts.is_empty()) {
                Some(forced) => forced_experts(forced, first, rows.len(), k, experts)?,
                None => route::choose(ctx, &logits, &w.router, ids(i, rows.len())),
            };
            eye.indices(Tap::FfnIdx, k, experts, &mut idx)?;
            let mut wt = route::weights(ctx, &logits, &idx);
            eye.tap(Tap::FfnWt, &[k], &mut wt)?;
            first += rows.len();
            pieces.push(FfnPiece { mix, x, idx, wt });
        }
        Ok(pieces)
    }
}

/// What some rows bring to the experts, and the coefficients that they leave with.
struct FfnPiece<T> {
    mix: Coefficients<T>,
    /// `[S,D]`
    x: Made<T>,
    /// `[S,K]`
    idx: Vec<u32>,
    /// `[S,K]`
    wt: Made<T>,
}

fn forced_entries(forced: &LayerChoices, first: usize, s: usize, total: usize) -> Result<Vec<u8>> {
    let short = || Error::Request(format!("forced entries end before position {}", first + s));
    let mut mask = vec![0u8; s * total];
    for (t, entries) in forced.entries.get(first..first + s).ok_or_else(short)?.iter().enumerate() {
        for &w in entries {
            let past = || Error::Request(format!("position {}: forced entry {w} of {total}", first + t));
            *mask[t * total..(t + 1) * total].get_mut(w as usize).ok_or_else(past)? = 1;
        }
    }
    Ok(mask)
}

fn forced_experts(forced: &LayerChoices, first: usize, s: usize, k: usize, limit: usize) -> Result<Vec<u32>> {
    let short = || Error::Request(format!("forced experts end before position {}", first + s));
    let idx = forced.experts.get(first * k..(first + s) * k).ok_or_else(short)?;
    match idx.iter().find(|&&e| e as usize >= limit) {
        Some(e) => Err(Error::Request(format!("forced expert {e} of {limit}"))),
        None => Ok(idx.to_vec()),
    }
}

/// Own rows, the first with position or index `first`, under those that a view holds.
fn given_rows<'o, T: Real>(
    given: Option<&dyn KvView>,
    seq: u32,
    part: KvPart,
    width: usize,
    first: usize,
    own: &'o [T],
) -> Result<Cow<'o, [T]>> {
    let Some(rows) = given.and_then(|view| view.rows(seq, part)) else { return Ok(Cow::Borrowed(own)) };
    if rows.values.len() % width != 0 {
        let found = vec![rows.values.len()];
        return Err(Error::Shape { at: format!("given {part:?}"), expected: vec![0, width], found });
    }
    let mut mixed = own.to_vec();
    for (i, row) in rows.values.chunks_exact(width).enumerate() {
        let at = rows.first as usize + i;
        if let Some(own) = at.checked_sub(first).and_then(|i| mixed.get_mut(i * width..(i + 1) * width)) {
            for (own, &v) in own.iter_mut().zip(row) {
                *own = T::of(f64::from(v));
            }
        }
    }
    Ok(Cow::Owned(mixed))
}
