//! One op on given operands: the same functions as a run, on rows of one sequence.

use karat_seam::{Data, Error, Op, Phase, Result, Routing, RowId, Tap, Tensor};

use super::Resident;
use super::attention::{AttendInput, GivenKv, LayerState};
use super::experts::Batch;
use super::keys::convert;
use super::taps::{entries_of, mask, tail};
use crate::ops::index::Vectors;
use crate::ops::{experts, hc, index, key_value, norm, output, query, route};
use crate::serving::Segment;

/// Operands of one op, by tap.
struct Operands<'a> {
    op: Op,
    given: &'a [(Tap, Tensor)],
}

impl<'a> Operands<'a> {
    fn tensor(&self, tap: Tap) -> Result<&'a Tensor> {
        let found = self.given.iter().find(|(t, _)| *t == tap).map(|(_, tensor)| tensor);
        found.ok_or_else(|| Error::Request(format!("op {} needs operand {}", self.op.spec().name, tap.name())))
    }

    fn at(&self, tap: Tap) -> String {
        format!("op {}, operand {}", self.op.spec().name, tap.name())
    }

    /// Values of an operand with one row a token, for the rows of a segment.
    fn rows(&self, tap: Tap, total: usize, segment: &Segment) -> Result<&'a [f32]> {
        let tensor = self.tensor(tap)?;
        let values = tensor.as_f32(&self.at(tap))?;
        if tensor.rows() != total {
            let mut expected = tensor.shape.clone();
            expected[0] = total;
            return Err(Error::Shape { at: self.at(tap), expected, found: tensor.shape.clone() });
        }
        let width = tensor.width();
        Ok(&values[segment.rows.start * width..segment.rows.end * width])
    }
}

impl Resident<'_> {
    pub(super) fn run_op(&self, op: Op, operands: &[(Tap, Tensor)], rows: &[RowId]) -> Result<Vec<(Tap, Tensor)>> {
        if !karat_seam::Layer::has_op(self, op) {
            let what = format!("op {} in layer {}", op.spec().name, self.l);
            return Err(Error::Unsupported { what, by: "this layer".into() });
        }
        let operands = Operands { op, given: operands };
        self.check_operands(&operands, rows)?;
        let segments = Segment::of_rows(rows, |r| self.path.schedule.phase_of(r));
        let sequential = matches!(op, Op::CompressPool | Op::IndexPool | Op::IndexScore | Op::Select | Op::Attend);
        if sequential && rows.iter().enumerate().any(|(i, r)| r.pos as usize != i) {
            return Err(Error::Request(format!("op {} needs all rows from position 0", op.spec().name)));
        }
        let mut state = self.state();
        let mut parts: Vec<Vec<Tensor>> = Vec::new();
        for segment in &segments {
            parts.push(self.op_segment(&operands, rows, segment, &mut state)?);
        }
        let writes = op.spec().writes;
        let mut out = Vec::new();
        for (i, tap) in writes.iter().enumerate() {
            out.push((*tap, join(*tap, parts.iter().map(|p| &p[i]))));
        }
        Ok(out)
    }

    /// Refuses an operand whose row has another size than its tap's.
    fn check_operands(&self, operands: &Operands<'_>, rows: &[RowId]) -> Result<()> {
        if rows.is_empty() || rows.iter().any(|r| r.seq != rows[0].seq) {
            return Err(Error::Request("an op runs on at least one row, all of one sequence".into()));
        }
        for (tap, tensor) in operands.given {
            if tap.is_ragged() {
                continue;
            }
            let tail = tail(self.config(), self.kind, *tap);
            if tensor.shape.len() != tail.len() + 1 || tensor.shape[1..] != tail {
                let expected = std::iter::once(rows.len()).chain(tail).collect();
                return Err(Error::Shape { at: operands.at(*tap), expected, found: tensor.shape.clone() });
            }
        }
        Ok(())
    }

    /// Results of one segment, in the order of the graph's `writes`.
    fn op_segment(
        &self,
        operands: &Operands<'_>,
        rows: &[RowId],
        segment: &Segment,
        state: &mut LayerState,
    ) -> Result<Vec<Tensor>> {
        let (config, rules, w) = (self.config(), self.rules(segment.phase), &self.w);
        let (hc, eps) = (config.hc_mult, config.rms_norm_eps as f32);
        let position = |s: usize| rows[segment.rows.start + s].pos;
        let n = segment.rows.len();
        let get = |tap| operands.rows(tap, rows.len(), segment);
        let make = |tap: Tap, values: Vec<f32>| {
            let tail = tail(config, self.kind, tap);
            let width = tail.iter().product::<usize>().max(1);
            let shape: Vec<usize> = std::iter::once(values.len() / width).chain(tail).collect();
            Tensor::f32(shape, values)
        };
        let normed = |tap, weight| -> Result<Vec<f32>> {
            let mut x = get(tap)?.to_vec();
            norm::rms_norm(rules, &mut x, weight, eps);
            Ok(x)
        };
        let pre = |weights, h: &[f32]| -> Result<[Vec<f32>; 4]> {
            let c = self.coefficients(segment.phase, weights, h)?;
            let x = hc::collapse(rules, hc, &c.pre, h);
            Ok([c.pre, c.post, c.comb, x])
        };
        let values: Vec<Vec<f32>> = match operands.op {
            Op::HcAttnPre => pre(&w.hc_attn, get(Tap::Out)?)?.into(),
            Op::HcFfnPre => pre(&w.hc_ffn, get(Tap::HcAttnOut)?)?.into(),
            Op::AttnNorm => vec![normed(Tap::HcAttnCollapsed, &w.attn_norm)?],
            Op::FfnNorm => vec![normed(Tap::HcFfnCollapsed, &w.ffn_norm)?],
            Op::QueryDown => vec![query::down(rules, config, &w.wq_a, &w.q_norm, get(Tap::AttnIn)?)],
            Op::QueryUp => vec![query::up(rules, config, &w.wq_b, &self.rope, get(Tap::AttnQr)?, position)],
            Op::KeyValue => {
                let x = get(Tap::AttnIn)?;
                vec![key_value::key_value(rules, config, &w.wkv, &w.kv_norm, &self.rope, x, position)]
            }
            Op::CompressProject | Op::IndexProject => {
                let main = operands.op == Op::CompressProject;
                let compressor = if main { w.compressor.as_ref() } else { w.indexer.as_ref().map(|i| &i.compressor) };
                let compressor = compressor.expect("has_op was asked");
                let (kvp, score) = self.project(segment.phase, compressor, get(Tap::AttnIn)?)?;
                vec![kvp, score]
            }
            Op::CompressPool => {
                let compressor = w.compressor.as_ref().expect("has_op was asked");
                let (kvp, score) = (get(Tap::AttnKvp)?, get(Tap::AttnGateScore)?);
                vec![self.pool_entries(rules, segment, &mut state.compressor, compressor, kvp, score)]
            }
            Op::IndexPool => {
                let compressor = &w.indexer.as_ref().expect("has_op was asked").compressor;
                let (kvp, score) = (get(Tap::AttnIndexKvp)?, get(Tap::AttnIndexGateScore)?);
                let pending = &mut state.index_compressor;
                let roped = self.pool(rules, rules.store, segment, pending, compressor, kvp, score);
                let first = state.keys.len();
                state.keys.push(rules, &roped);
                let di = config.index_head_dim;
                vec![state.keys.form(&rules.index).from(first, di).dequantised(di)]
            }
            Op::IndexQuery => {
                let indexer = w.indexer.as_ref().expect("has_op was asked");
                let q = index::query(rules, config, &indexer.wq_b, &self.rope, get(Tap::AttnQr)?, position);
                vec![q.dequantised(config.index_head_dim)]
            }
            Op::IndexWeights => {
                let indexer = w.indexer.as_ref().expect("has_op was asked");
                vec![index::weights(rules, config, &indexer.weights_proj, get(Tap::AttnIn)?)]
            }
            Op::IndexScore => {
                let q = convert(&rules.index, &rules.index, config.index_head_dim, get(Tap::AttnIndexQ)?);
                let keys = self.operand_keys(operands, rows, segment.phase)?;
                let scores = self.index_scores(rules, segment, &q, get(Tap::AttnIndexW)?, &keys)?;
                let width = self.entries_after(segment.start() as usize + n);
                return Ok(vec![Tensor::f32([n, width], scores)]);
            }
            Op::Select => return Ok(vec![self.op_select(operands, rows, segment)?]),
            Op::Attend => {
                let (o, lse) = self.op_attend(operands, rows, segment, state)?;
                vec![o, lse]
            }
            Op::OutputDown => vec![output::down(rules, config, &w.wo_a, &self.rope, get(Tap::AttnO)?, position)],
            Op::OutputUp => vec![output::up(rules, &self.path.adder, &w.wo_b, get(Tap::AttnOa)?)],
            Op::HcAttnPost => {
                let (post, comb, y) = (get(Tap::HcAttnPost)?, get(Tap::HcAttnComb)?, get(Tap::AttnOut)?);
                vec![hc::combine(rules, hc, post, comb, y, get(Tap::Out)?)]
            }
            Op::HcFfnPost => {
                let (post, comb, y) = (get(Tap::HcFfnPost)?, get(Tap::HcFfnComb)?, get(Tap::FfnOut)?);
                vec![hc::combine(rules, hc, post, comb, y, get(Tap::HcAttnOut)?)]
            }
            Op::Route => {
                let logits = route::logits(rules, &w.gate, get(Tap::FfnIn)?);
                let (idx, mut wt) = self.route_rows(rules, &rows[segment.rows.clone()], &logits, Routing::Free)?;
                wt.iter_mut().for_each(|w| *w *= self.late_factor(rules));
                let idx = Tensor::i64([n, config.num_experts_per_tok], idx);
                return Ok(vec![make(Tap::FfnRouterLogits, logits), idx, make(Tap::FfnWt, wt)]);
            }
            Op::Experts => {
                let k = config.num_experts_per_tok;
                let idx = operands.tensor(Tap::FfnIdx)?.as_i64(&operands.at(Tap::FfnIdx))?;
                let idx = idx.get(segment.rows.start * k..segment.rows.end * k).unwrap_or_default();
                let late = self.late_factor(rules);
                let x = get(Tap::FfnIn)?.to_vec();
                let wt: Vec<f32> = get(Tap::FfnWt)?.iter().map(|w| w / late).collect();
                let idx = self.checked_experts(idx)?;
                if idx.len() != wt.len() {
                    return Err(Error::Request("op ffn.experts: as many experts as weights are needed".into()));
                }
                let by = self.experts_run_as_kernel(segment.phase).then_some((self, segment.phase));
                let mut batch = [Batch { rules, x, idx, wt, act: Vec::new(), routed: Vec::new(), by }];
                self.experts_up(&mut batch)?;
                self.experts_down(&mut batch)?;
                let [mut batch] = batch;
                let part = config.moe_intermediate_size;
                let lacking = batch.lacking(late);
                for (act, factor) in batch.act.chunks_exact_mut(part).zip(lacking) {
                    act.iter_mut().for_each(|a| *a *= factor);
                }
                vec![batch.act, batch.routed]
            }
            Op::SharedExpert => vec![experts::shared(rules, &self.path.adder, config, &w.shared, get(Tap::FfnIn)?)],
            Op::CombineExperts => vec![experts::combine(rules, get(Tap::FfnRouted)?, get(Tap::FfnShared)?)],
            Op::HeadCollapse | Op::HeadLogits => Vec::new(),
        };
        Ok(operands.op.spec().writes.iter().zip(values).map(|(tap, v)| make(*tap, v)).collect())
    }

    /// Keys from an operand, each in its emitting phase's form, as `phase` scores them.
    fn operand_keys(&self, operands: &Operands<'_>, rows: &[RowId], phase: Phase) -> Result<Vectors> {
        let tensor = operands.tensor(Tap::AttnIndexK)?;
        let (values, di) = (tensor.as_f32(&operands.at(Tap::AttnIndexK))?, self.config().index_head_dim);
        let entries = self.entries_after(rows.len());
        if tensor.rows() < entries {
            let (at, found) = (operands.at(Tap::AttnIndexK), tensor.shape.clone());
            return Err(Error::Shape { at, expected: vec![entries, di], found });
        }
        let mut keys = Vectors::default();
        let ratio = self.kind.ratio().unwrap_or(1);
        for (e, key) in values.chunks_exact(di).take(entries).enumerate() {
            let emitted = self.path.schedule.phase_of(rows[(e + 1) * ratio - 1]);
            keys.extend(&convert(self.index_rule(emitted), self.index_rule(phase), di, key));
        }
        Ok(keys)
    }

    fn op_select(&self, operands: &Operands<'_>, rows: &[RowId], segment: &Segment) -> Result<Tensor> {
        let width = self.entries_after(segment.start() as usize + segment.rows.len());
        if !self.kind.has_indexer() {
            let visible = |s: usize| self.entries_after(segment.start() as usize + s + 1) as u32;
            let lists: Vec<Vec<u32>> = (0..segment.rows.len()).map(|s| (0..visible(s)).collect()).collect();
            return Ok(mask(&lists, width));
        }
        let tensor = operands.tensor(Tap::AttnIndexScore)?;
        let scores = operands.rows(Tap::AttnIndexScore, rows.len(), segment)?;
        if tensor.width() < width {
            let at = operands.at(Tap::AttnIndexScore);
            return Err(Error::Shape { at, expected: vec![rows.len(), width], found: tensor.shape.clone() });
        }
        Ok(mask(&self.select_rows(segment, scores, tensor.width())?, width))
    }

    fn op_attend(
        &self,
        operands: &Operands<'_>,
        rows: &[RowId],
        segment: &Segment,
        state: &mut LayerState,
    ) -> Result<(Vec<f32>, Vec<f32>)> {
        let rules = self.rules(segment.phase);
        let q = operands.rows(Tap::AttnQ, rows.len(), segment)?;
        let kv = operands.rows(Tap::AttnKv, rows.len(), segment)?;
        let (mut entries, mut selected): (&[f32], _) = (&[], vec![Vec::new(); segment.rows.len()]);
        if self.kind.ratio().is_some() && self.entries_after(rows.len()) > 0 {
            let ckv = operands.tensor(Tap::AttnCkv)?;
            entries = ckv.as_f32(&operands.at(Tap::AttnCkv))?;
            let tensor = operands.tensor(Tap::AttnSelected)?;
            let marks = tensor.as_u8(&operands.at(Tap::AttnSelected))?;
            let width = tensor.width();
            if tensor.rows() != rows.len() || width > ckv.rows() {
                let expected = vec![rows.len(), ckv.rows()];
                return Err(Error::Shape { at: operands.at(Tap::AttnSelected), expected, found: tensor.shape.clone() });
            }
            for (s, list) in selected.iter_mut().enumerate() {
                let at = (segment.rows.start + s) * width;
                *list = entries_of(&marks[at..at + width]);
            }
        }
        let given = GivenKv::of(karat_seam::Kv::Own, segment.seq);
        let input = AttendInput { q, kv, entries, selected: &selected, given };
        self.attend_segment(rules, segment, &mut state.window, &input)
    }
}

/// Pieces of one tap joined along axis 0; ragged pieces are widened with what "not visible" is.
fn join<'a>(tap: Tap, pieces: impl Iterator<Item = &'a Tensor>) -> Tensor {
    let pieces: Vec<&Tensor> = pieces.collect();
    let mut shape = pieces[0].shape.clone();
    shape[0] = pieces.iter().map(|t| t.rows()).sum();
    if tap.is_ragged() {
        shape[1] = pieces.iter().map(|t| t.width()).max().unwrap_or(0);
    }
    let width = shape[1..].iter().product();
    let data = match &pieces[0].data {
        Data::I64(_) => Data::I64(widened(&pieces, width, -1, |d| if let Data::I64(v) = d { v } else { &[] })),
        Data::U8(_) => Data::U8(widened(&pieces, width, 0, |d| if let Data::U8(v) = d { v } else { &[] })),
        _ => Data::F32(widened(&pieces, width, f32::NEG_INFINITY, |d| if let Data::F32(v) = d { v } else { &[] })),
    };
    Tensor::new(shape, data)
}

fn widened<T: Copy>(pieces: &[&Tensor], width: usize, fill: T, values: impl Fn(&Data) -> &[T]) -> Vec<T> {
    let mut out = Vec::new();
    for piece in pieces {
        let (own, values) = (piece.width(), values(&piece.data));
        for r in 0..piece.rows() {
            out.extend_from_slice(&values[r * own..(r + 1) * own]);
            out.resize(out.len() + width - own, fill);
        }
    }
    out
}
