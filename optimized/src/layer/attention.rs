//! The attention half of a block over one segment (spec 2.2 to 2.10).

use karat_seam::{Kv, KvPart, KvRows, Op, Phase, Result, Routing, RowId, Tap};
use rayon::prelude::*;

use super::keys::{IndexKeys, convert};
use super::{Resident, Taps};
use crate::arith::{Panels, product_here};
use crate::ops::compress::CompressorWeights;
use crate::ops::index::Vectors;
use crate::ops::{attend, hc, index, key_value, norm, output, query, rows};
use crate::patches::paged_products;
use crate::plan::{IndexScore, Numerics, Store};
use crate::serving::{Compressor, Segment, Step, Window};

/// KV state of one sequence in one layer and lane.
pub(crate) struct LayerState {
    pub window: Window,
    /// `[T,hd]`.
    pub entries: Vec<f32>,
    pub compressor: Compressor,
    pub keys: IndexKeys,
    pub index_compressor: Compressor,
}

/// KV content that a lane was given in place of its own.
#[derive(Clone, Copy)]
pub(crate) struct GivenKv<'a> {
    window: Option<KvRows<'a>>,
    entries: Option<KvRows<'a>>,
    keys: Option<KvRows<'a>>,
}

impl<'a> GivenKv<'a> {
    pub(crate) fn of(kv: Kv<'a>, seq: u32) -> Self {
        let get = |part| match kv {
            Kv::Own => None,
            Kv::Given(view) => view.rows(seq, part),
        };
        Self { window: get(KvPart::Window), entries: get(KvPart::Entries), keys: get(KvPart::IndexKeys) }
    }
}

/// Row `i` of given rows, when they hold it.
fn given(rows: Option<KvRows<'_>>, i: usize, width: usize) -> Option<&[f32]> {
    let rows = rows?;
    let at = i.checked_sub(rows.first as usize)? * width;
    rows.values.get(at..at + width)
}

/// Identities of the entries `first..end` of a sequence.
pub(crate) fn entry_rows(rows: &[RowId], first: usize, end: usize) -> Vec<RowId> {
    let base = rows.first().copied().unwrap_or(RowId::new(0, 0));
    (first..end).map(|e| RowId { pos: e as u32, ..base }).collect()
}

/// What attention reads besides the query.
pub(crate) struct AttendInput<'a> {
    pub q: &'a [f32],
    pub kv: &'a [f32],
    pub entries: &'a [f32],
    pub selected: &'a [Vec<u32>],
    pub given: GivenKv<'a>,
}

impl Resident<'_> {
    /// Fresh state.
    pub(crate) fn state(&self) -> LayerState {
        let config = self.config();
        LayerState {
            window: Window::new(config.sliding_window, config.head_dim),
            entries: Vec::new(),
            compressor: Compressor::default(),
            keys: IndexKeys::new(self),
            index_compressor: Compressor::default(),
        }
    }

    /// Streams `[S,hc,D]` after the attention half.
    pub(crate) fn attention_half(
        &self,
        taps: &mut Taps<'_>,
        segment: &Segment,
        state: &mut LayerState,
        given: GivenKv<'_>,
        routing: Routing<'_>,
        h: &[f32],
    ) -> Result<Vec<f32>> {
        let (config, rules) = (self.config(), self.rules(segment.phase));
        let position = |s: usize| segment.start() + s as u32;
        let eps = config.rms_norm_eps as f32;

        let mut c = self.coefficients(segment.phase, &self.w.hc_attn, h)?;
        taps.show(Tap::HcAttnPre, &mut c.pre)?;
        taps.show(Tap::HcAttnPost, &mut c.post)?;
        taps.show(Tap::HcAttnComb, &mut c.comb)?;
        let mut x = hc::collapse(rules, config.hc_mult, &c.pre, h);
        taps.show(Tap::HcAttnCollapsed, &mut x)?;
        norm::rms_norm(rules, &mut x, &self.w.attn_norm, eps);
        taps.show(Tap::AttnIn, &mut x)?;

        let mut qr = query::down(rules, config, &self.w.wq_a, &self.w.q_norm, &x);
        taps.show(Tap::AttnQr, &mut qr)?;
        let mut q = query::up(rules, config, &self.w.wq_b, &self.rope, &qr, position);
        taps.show(Tap::AttnQ, &mut q)?;
        let mut kv = key_value::key_value(rules, config, &self.w.wkv, &self.w.kv_norm, &self.rope, &x, position);
        taps.show(Tap::AttnKv, &mut kv)?;

        if let Some(w) = &self.w.compressor {
            let (mut kvp, mut score) = self.project(segment.phase, w, &x)?;
            taps.show(Tap::AttnKvp, &mut kvp)?;
            taps.show(Tap::AttnGateScore, &mut score)?;
            let first = state.entries.len() / config.head_dim;
            let new = self.pool_entries(rules, segment, &mut state.compressor, w, &kvp, &score);
            state.entries.extend_from_slice(&new);
            let entry_rows = entry_rows(taps.rows, first, first + new.len() / config.head_dim);
            if !entry_rows.is_empty() {
                let at = first * config.head_dim;
                taps.show_as(Tap::AttnCkv, &entry_rows, &[config.head_dim], &mut state.entries[at..])?;
            }
        }
        let mut selected = self.select_entries(taps, segment, state, given, routing, &x, &qr)?;
        if self.kind.ratio().is_some() {
            let width = self.entries_after((segment.start() as usize) + segment.rows.len());
            taps.show_selected(&mut selected, width)?;
        }

        let input = AttendInput { q: &q, kv: &kv, entries: &state.entries, selected: &selected, given };
        let (mut o, mut lse) = self.attend_segment(rules, segment, &mut state.window, &input)?;
        taps.show(Tap::AttnO, &mut o)?;
        taps.show(Tap::AttnLse, &mut lse)?;
        let mut z = output::down(rules, config, &self.w.wo_a, &self.rope, &o, position);
        taps.show(Tap::AttnOa, &mut z)?;
        let mut y = output::up(rules, &self.path.adder, &self.w.wo_b, &z);
        taps.show(Tap::AttnOut, &mut y)?;
        let mut out = hc::combine(rules, config.hc_mult, &c.post, &c.comb, &y, h);
        taps.show(Tap::HcAttnOut, &mut out)?;
        for op in ATTENTION_OPS.iter().filter(|op| karat_seam::Layer::has_op(self, **op)) {
            self.path.counters.ran(&self.path.resolved, *op, segment);
        }
        Ok(out)
    }

    /// New main entries `[n,hd]` as the cache stores them, step by step.
    pub(crate) fn pool_entries(
        &self,
        rules: &Numerics,
        segment: &Segment,
        state: &mut Compressor,
        w: &CompressorWeights,
        kvp: &[f32],
        score: &[f32],
    ) -> Vec<f32> {
        let mut out = self.pool(rules, key_value::norm_store(rules), segment, state, w, kvp, score);
        out.chunks_exact_mut(w.head_dim()).for_each(|e| key_value::store_kv(rules, self.config(), e));
        out
    }

    /// New entries `[n,hd]` of one compressor, roped and stored but not quantised.
    pub(crate) fn pool(
        &self,
        rules: &Numerics,
        normed: Store,
        segment: &Segment,
        state: &mut Compressor,
        w: &CompressorWeights,
        kvp: &[f32],
        score: &[f32],
    ) -> Vec<f32> {
        let eps = self.config().rms_norm_eps as f32;
        let mut out = Vec::new();
        for step in &segment.steps {
            for p in step.start..step.end {
                let s = (p - segment.start()) as usize * w.width();
                let window = state.windows;
                if let Some(pooled) = state.push(w, &kvp[s..s + w.width()], &score[s..s + w.width()]) {
                    out.extend(w.finish(rules, normed, eps, &self.rope, pooled, window));
                }
            }
            state.store(rules.compress_state);
        }
        out
    }

    /// The entries that each query of the segment attends to, ascending. Empty lists in a sliding layer.
    fn select_entries(
        &self,
        taps: &mut Taps<'_>,
        segment: &Segment,
        state: &mut LayerState,
        given: GivenKv<'_>,
        routing: Routing<'_>,
        x: &[f32],
        qr: &[f32],
    ) -> Result<Vec<Vec<u32>>> {
        let (config, rules) = (self.config(), self.rules(segment.phase));
        let position = |s: usize| segment.start() + s as u32;
        let rows = segment.rows.len();
        let mut selected: Vec<Vec<u32>> = match &self.w.indexer {
            None => (0..rows).map(|s| (0..self.entries_after(position(s) as usize + 1) as u32).collect()).collect(),
            Some(w) => {
                let (mut kvp, mut score) = self.project(segment.phase, &w.compressor, x)?;
                taps.show(Tap::AttnIndexKvp, &mut kvp)?;
                taps.show(Tap::AttnIndexGateScore, &mut score)?;
                let first = state.keys.len();
                let pending = &mut state.index_compressor;
                let new = self.pool(rules, rules.store, segment, pending, &w.compressor, &kvp, &score);
                state.keys.push(rules, &new);
                state.keys.show(taps, &rules.index, first)?;

                let mut q = index::query(rules, config, &w.wq_b, &self.rope, qr, position);
                let mut values = q.dequantised(config.index_head_dim);
                let all = taps.rows;
                if taps.changed(Tap::AttnIndexQ, all, &mut values)? {
                    q = convert(&rules.index, &rules.index, config.index_head_dim, &values);
                }
                let mut weights = index::weights(rules, config, &w.weights_proj, x);
                taps.show(Tap::AttnIndexW, &mut weights)?;
                let keys = self.scored_keys(state, given, segment.phase);
                let mut scores = self.index_scores(rules, segment, &q, &weights, &keys)?;
                let width = self.entries_after(segment.start() as usize + rows);
                taps.show_as(Tap::AttnIndexScore, all, &[width], &mut scores)?;
                self.select_rows(segment, &scores, width)?
            }
        };
        if let Routing::Forced(choices) = routing
            && let Some(forced) = choices.by_layer.get(&(self.l, segment.seq))
            && !forced.entries.is_empty()
        {
            for (s, list) in selected.iter_mut().enumerate() {
                let visible = self.entries_after(position(s) as usize + 1) as u32;
                let forced = forced.entries.get(position(s) as usize).ok_or_else(|| {
                    karat_seam::Error::Request(format!(
                        "forced entries of layer {} lack position {}",
                        self.l,
                        position(s)
                    ))
                })?;
                *list = forced.iter().copied().filter(|e| *e < visible).collect();
            }
        }
        Ok(selected)
    }

    /// Keys as this phase scores them, with given ones in place of its own.
    fn scored_keys(&self, state: &LayerState, given: GivenKv<'_>, phase: Phase) -> Vectors {
        let rule = self.index_rule(phase);
        let Some(rows) = given.keys else { return state.keys.form(rule).clone() };
        let di = self.config().index_head_dim;
        let first = (rows.first as usize).min(state.keys.len());
        let n = (rows.values.len() / di).min(state.keys.len() - first);
        let own = state.keys.form(rule).from(first, di).dequantised(di);
        let mut keys = state.keys.clone();
        if n > 0 && own[..n * di] != rows.values[..n * di] {
            keys.replace(rule, first, &rows.values[..n * di]);
        }
        keys.form(rule).clone()
    }

    /// Index scores `[S,T]`; what a query may not see is -inf.
    pub(crate) fn index_scores(
        &self,
        rules: &Numerics,
        segment: &Segment,
        q: &Vectors,
        weights: &[f32],
        keys: &Vectors,
    ) -> Result<Vec<f32>> {
        let (di, heads) = (self.config().index_head_dim, self.config().index_n_heads);
        let n = segment.rows.len();
        let width = self.entries_after(segment.start() as usize + n);
        let visible: Vec<usize> = (0..n).map(|s| self.entries_after(segment.start() as usize + s + 1)).collect();
        if let Some(scores) = self.kernel_scores(segment.phase, q, weights, keys, &visible)? {
            return Ok(scores);
        }
        let mut scores = vec![f32::NEG_INFINITY; n * width];
        let panels = Panels::pack(&keys.values[..width * di], di);
        rows(&mut scores, width, |s, row| {
            let visible = visible[s];
            let mut products = vec![0.0; heads * visible];
            let q_row = &q.values[s * heads * di..(s + 1) * heads * di];
            match rules.index.score {
                IndexScore::Folded { page, .. } if page > 0 => {
                    paged_products(page, q_row, &panels, visible, &mut products);
                }
                _ => product_here(q_row, &panels, 0..visible, &mut products),
            }
            let scales = q.scales.get(s * heads..(s + 1) * heads).unwrap_or_default();
            let key_scales = keys.scales.get(..visible).unwrap_or_default();
            let w = &weights[s * heads..(s + 1) * heads];
            index::score(&rules.index, &products, w, scales, key_scales, &mut row[..visible]);
        });
        Ok(scores)
    }

    /// The best entries of each query by its scores `[S,T]`.
    pub(crate) fn select_rows(&self, segment: &Segment, scores: &[f32], width: usize) -> Result<Vec<Vec<u32>>> {
        let topk = self.config().index_topk;
        let all = 0..segment.rows.len();
        let visible: Vec<usize> = all.clone().map(|s| self.entries_after(segment.start() as usize + s + 1)).collect();
        if let Some(chosen) = self.kernel_selection(segment.phase, scores, &visible)? {
            return Ok(chosen);
        }
        let best = |s: usize| index::select(&scores[s * width..s * width + visible[s]], topk);
        Ok(all.into_par_iter().map(best).collect())
    }

    /// Attention over a segment, step by step: output `[S,H,hd]` and log-sum-exp `[S,H]`. The window moves on.
    pub(crate) fn attend_segment(
        &self,
        rules: &Numerics,
        segment: &Segment,
        window: &mut Window,
        input: &AttendInput<'_>,
    ) -> Result<(Vec<f32>, Vec<f32>)> {
        let (config, hd) = (self.config(), self.config().head_dim);
        let heads = config.num_attention_heads;
        if self.by_kernel(segment.phase).is_some_and(|(_, chosen)| chosen.attend.is_some()) {
            return self.attend_by_kernel(segment, window, input);
        }
        let mut o = vec![0.0; segment.rows.len() * heads * hd];
        let mut lse = vec![0.0; segment.rows.len() * heads];
        for step in &segment.steps {
            let lo = (step.start - segment.start()) as usize;
            let hi = (step.end - segment.start()) as usize;
            let own = &input.kv[lo * hd..hi * hd];
            // Decode writes its row first and reads the whole window from the ring (spec section 3).
            if step.phase == Phase::Decode {
                window.write(own);
            }
            let (ring, o, lse) = (&*window, &mut o[lo * heads * hd..hi * heads * hd], &mut lse[lo * heads..hi * heads]);
            o.par_chunks_exact_mut(heads * hd).zip(lse.par_chunks_exact_mut(heads)).enumerate().for_each_init(
                Vec::new,
                |keys, (i, (o, lse))| {
                    self.gather(step, i, ring, own, &input.selected[lo + i], input, keys);
                    let q = &input.q[(lo + i) * heads * hd..(lo + i + 1) * heads * hd];
                    let window = (step.start as usize + i + 1).min(config.sliding_window);
                    attend::attend(rules, config, q, keys, window, &self.w.sink, o, lse);
                },
            );
            if step.phase == Phase::Prefill {
                window.write(own);
            }
        }
        Ok((o, lse))
    }

    /// The same by a kernel, which takes the keys of all queries at once.
    fn attend_by_kernel(
        &self,
        segment: &Segment,
        window: &mut Window,
        input: &AttendInput<'_>,
    ) -> Result<(Vec<f32>, Vec<f32>)> {
        let hd = self.config().head_dim;
        let (mut all, mut from, mut keys) = (Vec::new(), vec![0], Vec::new());
        for step in &segment.steps {
            let lo = (step.start - segment.start()) as usize;
            let own = &input.kv[lo * hd..(step.end - segment.start()) as usize * hd];
            if step.phase == Phase::Decode {
                window.write(own);
            }
            for i in 0..(step.end - step.start) as usize {
                self.gather(step, i, window, own, &input.selected[lo + i], input, &mut keys);
                all.extend_from_slice(&keys);
                from.push(all.len() / hd);
            }
            if step.phase == Phase::Prefill {
                window.write(own);
            }
        }
        let made = self.kernel_attention(segment.phase, input.q, &all, &from)?;
        made.ok_or_else(|| karat_seam::Error::Request("no kernel attends in this phase".into()))
    }

    /// Fills `keys [n,hd]` with those of the step's query `i`: window by position, then entries by index.
    fn gather(
        &self,
        step: &Step,
        i: usize,
        ring: &Window,
        own: &[f32],
        selected: &[u32],
        input: &AttendInput<'_>,
        keys: &mut Vec<f32>,
    ) {
        let hd = self.config().head_dim;
        let position = step.start as usize + i;
        let first = (position + 1).saturating_sub(self.config().sliding_window);
        keys.clear();
        for p in first..=position {
            let row = given(input.given.window, p, hd).unwrap_or_else(|| {
                let new = p.checked_sub(step.start as usize).filter(|_| step.phase == Phase::Prefill);
                new.map_or_else(|| ring.row(p), |s| &own[s * hd..(s + 1) * hd])
            });
            keys.extend_from_slice(row);
        }
        for &e in selected {
            let e = e as usize;
            let row = given(input.given.entries, e, hd).unwrap_or_else(|| &input.entries[e * hd..(e + 1) * hd]);
            keys.extend_from_slice(row);
        }
    }
}

/// Ops of this half, for coverage.
const ATTENTION_OPS: &[Op] = &[
    Op::HcAttnPre,
    Op::AttnNorm,
    Op::QueryDown,
    Op::QueryUp,
    Op::KeyValue,
    Op::CompressProject,
    Op::CompressPool,
    Op::IndexProject,
    Op::IndexPool,
    Op::IndexQuery,
    Op::IndexWeights,
    Op::IndexScore,
    Op::Select,
    Op::Attend,
    Op::OutputDown,
    Op::OutputUp,
    Op::HcAttnPost,
];
