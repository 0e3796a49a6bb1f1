//! All lanes and the whole schedule through one layer.

use std::collections::BTreeMap;

use karat_seam::{Error, Lane, LayerOut, Op, Result, Routing, RowId, Streams, Tap, Tensor, Want, copied, extend};

use super::attention::{GivenKv, LayerState};
use super::experts::Batch;
use super::paged::Pages;
use super::{Resident, Taps};
use crate::ops::{experts, hc, norm, route, rows as rows_of};
use crate::plan::Numerics;
use crate::serving::Segment;

/// A segment between its attention half and the end of its experts.
struct Half {
    lane: usize,
    segment: usize,
    /// Streams after attention.
    h: Vec<f32>,
    post: Vec<f32>,
    comb: Vec<f32>,
}

/// Runs `lanes[i]` through `residents[i]`: the same layer of paths that share its weights. Every expert is decoded once
/// for all of them.
pub(crate) fn run_lanes(residents: &[&Resident<'_>], lanes: &mut [Lane<'_>]) -> Result<()> {
    let Some(first) = residents.first() else { return Ok(()) };
    let mut halves = Vec::new();
    let mut batches = Vec::new();
    let mut states: Vec<Vec<LayerState>> = Vec::new();
    let mut finals: Vec<BTreeMap<usize, LayerState>> = Vec::new();
    for (i, (of, lane)) in residents.iter().zip(lanes.iter_mut()).enumerate() {
        of.path.check_streams(lane.x)?;
        states.push(of.path.requests.seqs.iter().map(|_| of.state()).collect());
        let mut pages = of.path.program.as_ref().map(|program| Pages::new(of, program));
        for (j, segment) in of.path.schedule.segments.iter().enumerate() {
            let mut paged = pages.as_mut().map(|pages| pages.load(j));
            let state = paged.as_mut().unwrap_or_else(|| &mut states[i][segment.seq as usize]);
            let (half, batch) = of.until_experts(lane, (i, j), segment, state)?;
            halves.push(half);
            batches.push(batch);
            if let (Some(pages), Some(state)) = (&mut pages, &paged) {
                pages.save(j, state);
            }
        }
        finals.push(pages.map(Pages::finish).unwrap_or_default());
    }
    first.experts_up(&mut batches)?;
    for (half, batch) in halves.iter().zip(&mut batches) {
        let (of, lane) = (residents[half.lane], &mut lanes[half.lane]);
        let segment = &of.path.schedule.segments[half.segment];
        let mut taps = of.taps(lane.see, &lane.x.rows[segment.rows.clone()]);
        let lacking = batch.lacking(of.late_factor(batch.rules));
        show_times(&mut taps, Tap::FfnExpertAct, &lacking, &mut batch.act)?;
    }
    first.experts_down(&mut batches)?;
    let width = first.config().hc_mult * first.config().hidden_size;
    let mut outs: Vec<Vec<f32>> = lanes.iter().map(|l| Vec::with_capacity(l.x.rows.len() * width)).collect();
    for (half, mut batch) in halves.into_iter().zip(batches) {
        let (of, lane) = (residents[half.lane], &mut lanes[half.lane]);
        let segment = &of.path.schedule.segments[half.segment];
        let rows = &lane.x.rows[segment.rows.clone()];
        let mut taps = of.taps(lane.see, rows);
        let out = of.after_experts(&mut taps, segment, &half.h, &half.post, &half.comb, &mut batch)?;
        extend(&mut outs[half.lane], &out);
        if segment.last {
            let own = finals[half.lane].get(&half.segment);
            let state = own.unwrap_or_else(|| &states[half.lane][segment.seq as usize]);
            of.show_state(&mut taps, segment, state)?;
        }
    }
    for (lane, out) in lanes.iter_mut().zip(outs) {
        let data = Tensor::f32(lane.x.data.shape.clone(), out);
        lane.out = Some(LayerOut { streams: Streams { rows: lane.x.rows.clone(), data } });
    }
    Ok(())
}

impl Resident<'_> {
    fn taps<'a>(&'a self, see: &'a mut dyn karat_seam::Visitor, rows: &'a [RowId]) -> Taps<'a> {
        Taps { see, block: self.block(), config: self.config(), kind: self.kind, rows }
    }

    fn until_experts<'a>(
        &'a self,
        lane: &mut Lane<'_>,
        (i, j): (usize, usize),
        segment: &Segment,
        state: &mut LayerState,
    ) -> Result<(Half, Batch<'a>)> {
        let (config, rules) = (self.config(), self.rules(segment.phase));
        let width = config.hc_mult * config.hidden_size;
        let x = lane.x.data.as_f32("streams")?;
        let h = &x[segment.rows.start * width..segment.rows.end * width];
        let rows = &lane.x.rows[segment.rows.clone()];
        let given = GivenKv::of(lane.kv, segment.seq);
        let mut taps = self.taps(lane.see, rows);
        let h = self.attention_half(&mut taps, segment, state, given, lane.routing, h)?;

        let mut c = self.coefficients(segment.phase, &self.w.hc_ffn, &h)?;
        taps.show(Tap::HcFfnPre, &mut c.pre)?;
        taps.show(Tap::HcFfnPost, &mut c.post)?;
        taps.show(Tap::HcFfnComb, &mut c.comb)?;
        let mut x = hc::collapse(rules, config.hc_mult, &c.pre, &h);
        taps.show(Tap::HcFfnCollapsed, &mut x)?;
        norm::rms_norm(rules, &mut x, &self.w.ffn_norm, config.rms_norm_eps as f32);
        taps.show(Tap::FfnIn, &mut x)?;
        let mut logits = route::logits(rules, &self.w.gate, &x);
        taps.show(Tap::FfnRouterLogits, &mut logits)?;
        let (mut idx, mut wt) = self.route_rows(rules, rows, &logits, lane.routing)?;
        let k = config.num_experts_per_tok;
        taps.show_i64(Tap::FfnIdx, &[rows.len(), k], &mut idx)?;
        // Routing weights as if they carried the scaling factor that the sum over the experts will bring.
        let late = vec![self.late_factor(rules); wt.len()];
        show_times(&mut taps, Tap::FfnWt, &late, &mut wt)?;
        let idx = self.checked_experts(&idx)?;
        let by = self.experts_run_as_kernel(segment.phase).then_some((self, segment.phase));
        let batch = Batch { rules, x, idx, wt, act: Vec::new(), routed: Vec::new(), by };
        Ok((Half { lane: i, segment: j, h, post: c.post, comb: c.comb }, batch))
    }

    /// What the sum over the experts is multiplied by.
    pub(super) fn late_factor(&self, rules: &Numerics) -> f32 {
        if rules.scaling.combine { self.config().routed_scaling_factor as f32 } else { 1.0 }
    }

    /// Experts and weights of some rows from their logits `[S,E]`.
    pub(super) fn route_rows(
        &self,
        rules: &Numerics,
        rows: &[RowId],
        logits: &[f32],
        routing: Routing<'_>,
    ) -> Result<(Vec<i64>, Vec<f32>)> {
        let config = self.config();
        let (k, experts) = (config.num_experts_per_tok, config.n_routed_experts);
        let (mut idx, mut wt) = (Vec::with_capacity(rows.len() * k), Vec::with_capacity(rows.len() * k));
        for (row, logits) in rows.iter().zip(logits.chunks_exact(experts)) {
            let forced = self.forced_experts(routing, *row)?;
            let id = self.path.id_of(*row)?;
            let (i, w) = route::choose(rules.scaling, config, &self.w.chooser, logits, id, forced);
            idx.extend(i.into_iter().map(i64::from));
            wt.extend(w);
        }
        Ok((idx, wt))
    }

    fn forced_experts<'c>(&self, routing: Routing<'c>, row: RowId) -> Result<Option<&'c [u32]>> {
        let Routing::Forced(choices) = routing else { return Ok(None) };
        let forced = choices.by_layer.get(&(self.l, row.seq)).filter(|c| !c.experts.is_empty());
        let Some(forced) = forced else { return Ok(None) };
        let k = self.config().num_experts_per_tok;
        let at = row.pos as usize * k;
        let list =
            forced.experts.get(at..at + k).filter(|l| l.iter().all(|e| (*e as usize) < self.config().n_routed_experts));
        list.map(Some).ok_or_else(|| {
            Error::Request(format!("forced experts of layer {} lack position {} or are out of range", self.l, row.pos))
        })
    }

    /// Experts as a visitor or an operand left them, refused when out of range.
    pub(super) fn checked_experts(&self, idx: &[i64]) -> Result<Vec<u32>> {
        let count = self.config().n_routed_experts;
        idx.iter()
            .map(|&e| match u32::try_from(e) {
                Ok(e) if (e as usize) < count => Ok(e),
                _ => Err(Error::Request(format!("layer {}: expert {e} of {count}", self.l))),
            })
            .collect()
    }

    fn after_experts(
        &self,
        taps: &mut Taps<'_>,
        segment: &Segment,
        h: &[f32],
        post: &[f32],
        comb: &[f32],
        batch: &mut Batch<'_>,
    ) -> Result<Vec<f32>> {
        let (config, rules) = (self.config(), batch.rules);
        taps.show(Tap::FfnRouted, &mut batch.routed)?;
        let mut shared = experts::shared(rules, &self.path.adder, config, &self.w.shared, &batch.x);
        taps.show(Tap::FfnShared, &mut shared)?;
        let mut y = experts::combine(rules, &batch.routed, &shared);
        taps.show(Tap::FfnOut, &mut y)?;
        let mut out = hc::combine(rules, config.hc_mult, post, comb, &y, h);
        taps.show(Tap::Out, &mut out)?;
        for op in FFN_OPS {
            self.path.counters.ran(&self.path.resolved, *op, segment);
        }
        Ok(out)
    }

    /// KV content after the last row, in the canonical form of the seam.
    fn show_state(&self, taps: &mut Taps<'_>, segment: &Segment, state: &LayerState) -> Result<()> {
        let last = [taps.rows[taps.rows.len() - 1]];
        let mut taps = Taps { see: &mut *taps.see, rows: &last, ..*taps };
        let show = |taps: &mut Taps<'_>, tap: Tap, values: &[f32]| {
            let tail = super::taps::tail(taps.config, taps.kind, tap);
            taps.show_as(tap, &last, &tail, &mut values.to_vec())
        };
        let (win, mut positions) = state.window.canonical();
        show(&mut taps, Tap::StateWin, &win)?;
        let count = [positions.len()];
        taps.show_i64(Tap::StateWinPos, &count, &mut positions)?;
        if self.w.compressor.is_none() {
            return Ok(());
        }
        show(&mut taps, Tap::StateCkv, &state.entries)?;
        show(&mut taps, Tap::StatePendKvp, &state.compressor.pend_kvp)?;
        show(&mut taps, Tap::StatePendScore, &state.compressor.pend_score)?;
        if !state.compressor.prev_kvp.is_empty() {
            show(&mut taps, Tap::StatePrevKvp, &state.compressor.prev_kvp)?;
            show(&mut taps, Tap::StatePrevScore, &state.compressor.prev_score)?;
        }
        if self.w.indexer.is_none() {
            return Ok(());
        }
        let keys = state.keys.form(self.index_rule(segment.phase)).dequantised(self.config().index_head_dim);
        show(&mut taps, Tap::StateIndexK, &keys)?;
        show(&mut taps, Tap::StateIndexPendKvp, &state.index_compressor.pend_kvp)?;
        show(&mut taps, Tap::StateIndexPendScore, &state.index_compressor.pend_score)?;
        if !state.index_compressor.prev_kvp.is_empty() {
            show(&mut taps, Tap::StateIndexPrevKvp, &state.index_compressor.prev_kvp)?;
            show(&mut taps, Tap::StateIndexPrevScore, &state.index_compressor.prev_score)?;
        }
        Ok(())
    }
}

/// Shows values times the factors that will reach them later, one factor for each equal part of the values: a tap means
/// the same whatever the place of a factor.
fn show_times(taps: &mut Taps<'_>, tap: Tap, factors: &[f32], values: &mut [f32]) -> Result<()> {
    if factors.iter().all(|f| *f == 1.0) || taps.want(tap) == Want::Skip {
        return taps.show(tap, values);
    }
    let part = values.len() / factors.len();
    let mut shown = copied(values);
    rows_of(&mut shown, part, |i, shown| shown.iter_mut().for_each(|v| *v *= factors[i]));
    let rows = taps.rows;
    if taps.changed(tap, rows, &mut shown)? {
        for ((values, shown), factor) in values.chunks_exact_mut(part).zip(shown.chunks_exact(part)).zip(factors) {
            // What a factor of zero hides can't be told, and has no effect.
            values.iter_mut().zip(shown).filter(|_| *factor != 0.0).for_each(|(v, s)| *v = s / factor);
        }
    }
    Ok(())
}

/// Ops of the feed-forward half, for coverage.
const FFN_OPS: &[Op] =
    &[Op::HcFfnPre, Op::FfnNorm, Op::Route, Op::Experts, Op::SharedExpert, Op::CombineExperts, Op::HcFfnPost];
