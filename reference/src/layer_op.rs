//! One op on given operands: golden on the candidate's numbers. The ops are those that a run uses.

use karat_model::config::LayerKind;
use karat_seam::{Error, Op, Part, Result, RowId, Tap, Tensor};

use crate::layer::GoldenLayer;
use crate::linalg::Real;
use crate::made::Made;
use crate::ops::attend::{Keys, attend};
use crate::ops::compress::{self, CompressorWeights};
use crate::ops::experts::{self, Routed};
use crate::ops::hc_coefficients::{Coefficients, HcWeights, hc_coefficients};
use crate::ops::head::{head_collapse, head_logits};
use crate::ops::rms_norm::rms_norm;
use crate::ops::rope::Angles;
use crate::ops::{hc_mix, index, key_value, output, query, route, select};
use crate::state::CompressorState;
use crate::weights::IndexerWeights;

/// Whether a layer of this kind has the op. The head's ops belong to no layer (but any layer answers them).
pub(crate) fn has(kind: LayerKind, op: Op) -> bool {
    match op {
        Op::CompressProject | Op::CompressPool | Op::Select => kind.ratio().is_some(),
        Op::IndexProject | Op::IndexPool | Op::IndexQuery | Op::IndexWeights | Op::IndexScore => kind.has_indexer(),
        other => other.spec().part != Part::Head,
    }
}

type Outputs = Vec<(Tap, Tensor)>;

struct Call<'a, T> {
    layer: &'a GoldenLayer<'a, T>,
    op: Op,
    operands: &'a [(Tap, Tensor)],
    rows: &'a [RowId],
}

/// See [`karat_seam::Layer::op`].
pub(crate) fn run<T: Real>(
    layer: &GoldenLayer<'_, T>,
    op: Op,
    operands: &[(Tap, Tensor)],
    rows: &[RowId],
) -> Result<Outputs> {
    if rows.is_empty() || rows.iter().any(|row| row.seq != rows[0].seq) {
        return Err(Error::Request(format!("op {}: rows of exactly one sequence are needed", op.spec().name)));
    }
    if !has(layer.weights.kind, op) && op.spec().part != Part::Head {
        return Err(Error::Unsupported { what: format!("op {}", op.spec().name), by: format!("layer {}", layer.l) });
    }
    Call { layer, op, operands, rows }.run()
}

impl<T: Real> Call<'_, T> {
    fn run(&self) -> Result<Outputs> {
        let ctx = self.layer.golden.ctx();
        let (c, w) = (ctx.config, &self.layer.weights);
        let (d, hc, hd, heads) = (c.hidden_size, c.hc_mult, c.head_dim, c.num_attention_heads);
        let (k, inner) = (c.num_experts_per_tok, c.moe_intermediate_size);
        Ok(match self.op {
            Op::HcAttnPre => self.mix_in(&w.hc_attn, Tap::Out)?,
            Op::HcFfnPre => self.mix_in(&w.hc_ffn, Tap::HcAttnOut)?,
            Op::AttnNorm => {
                let x = self.values(Tap::HcAttnCollapsed, &[d])?;
                self.out([(&[d], rms_norm(ctx, x, &w.attn.norm, c.rms_norm_eps))])
            }
            Op::FfnNorm => {
                let x = self.values(Tap::HcFfnCollapsed, &[d])?;
                self.out([(&[d], rms_norm(ctx, x, &w.ffn_norm, c.rms_norm_eps))])
            }
            Op::QueryDown => {
                let x = self.values(Tap::AttnIn, &[d])?;
                self.out([(&[c.q_lora_rank], query::query_down(ctx, x, &w.attn.wq_a, &w.attn.q_norm))])
            }
            Op::QueryUp => {
                let qr = self.values(Tap::AttnQr, &[c.q_lora_rank])?;
                self.out([(&[heads, hd], query::query_up(ctx, qr, &w.attn.wq_b, &self.angles()))])
            }
            Op::KeyValue => {
                let x = self.values(Tap::AttnIn, &[d])?;
                self.out([(&[hd], key_value::key_value(ctx, x, &w.attn.wkv, &w.attn.kv_norm, &self.angles()))])
            }
            Op::CompressProject => self.project(self.compressor()?)?,
            Op::IndexProject => self.project(&self.indexer()?.compressor)?,
            Op::CompressPool => self.pool(self.compressor()?, [Tap::AttnKvp, Tap::AttnGateScore])?,
            Op::IndexPool => self.pool(&self.indexer()?.compressor, [Tap::AttnIndexKvp, Tap::AttnIndexGateScore])?,
            Op::IndexQuery => {
                let qr = self.values(Tap::AttnQr, &[c.q_lora_rank])?;
                let iq = index::index_query(ctx, qr, &self.indexer()?.wq_b, &self.angles());
                self.out([(&[c.index_n_heads, c.index_head_dim], iq)])
            }
            Op::IndexWeights => {
                let x = self.values(Tap::AttnIn, &[d])?;
                self.out([(&[c.index_n_heads], index::index_weights(ctx, x, &self.indexer()?.weights_proj))])
            }
            Op::IndexScore => {
                self.cold()?;
                let iq = self.values(Tap::AttnIndexQ, &[c.index_n_heads, c.index_head_dim])?;
                let (total, ratio) = self.entries()?;
                let ik = self.per_entry(Tap::AttnIndexK, c.index_head_dim, total)?;
                let iw = self.values(Tap::AttnIndexW, &[c.index_n_heads])?;
                self.out([(&[total], index::index_score(ctx, iq, ik, iw, 0, ratio))])
            }
            Op::Select => {
                let (rows, ratio) = (self.rows, w.kind.ratio().ok_or_else(|| self.absent())?);
                let last = rows.iter().map(|row| row.pos as usize + 1).max().unwrap_or(0);
                let total = last / ratio;
                let indexed = w.kind.has_indexer();
                let scores = if indexed { Some(self.values(Tap::AttnIndexScore, &[total])?) } else { None };
                // Queries don't meet: any rows will do, a run of consecutive ones at a time.
                let mut mask = Vec::with_capacity(rows.len() * total);
                let mut start = 0;
                for run in rows.chunk_by(|a, b| a.pos + 1 == b.pos) {
                    let own = scores.map(|scores| &scores[start * total..(start + run.len()) * total]);
                    mask.extend(select::select(ctx, own, c.index_topk, run.len(), total, run[0].pos as usize, ratio));
                    start += run.len();
                }
                vec![(Tap::AttnSelected, Tensor::u8(vec![rows.len(), total], mask))]
            }
            Op::Attend => {
                self.cold()?;
                let (q, window) = (self.values(Tap::AttnQ, &[heads, hd])?, self.values(Tap::AttnKv, &[hd])?);
                let (mut entries, mut selected): (&[T], &[u8]) = (&[], &[]);
                if w.kind.ratio().is_some() {
                    let (total, _) = self.entries()?;
                    entries = self.per_entry(Tap::AttnCkv, hd, total)?;
                    let mask = self.tensor(Tap::AttnSelected)?;
                    self.shape(Tap::AttnSelected, mask, &[self.rows.len(), total])?;
                    selected = mask.as_u8(Tap::AttnSelected.name())?;
                }
                let (o, lse) = attend(ctx, q, Keys { first: 0, window, entries, selected }, &w.attn.sink, 0);
                self.out([(&[heads, hd][..], o), (&[heads], lse)])
            }
            Op::OutputDown => {
                let o = self.values(Tap::AttnO, &[heads, hd])?.to_vec().into();
                self.out([(&[c.o_groups * c.o_lora_rank], output::output_down(ctx, o, &w.attn.wo_a, &self.angles()))])
            }
            Op::OutputUp => {
                let oa = self.values(Tap::AttnOa, &[c.o_groups * c.o_lora_rank])?;
                self.out([(&[d], output::output_up(ctx, oa, &w.attn.wo_b))])
            }
            Op::HcAttnPost => self.mix_out([Tap::Out, Tap::HcAttnPost, Tap::HcAttnComb, Tap::AttnOut])?,
            Op::HcFfnPost => self.mix_out([Tap::HcAttnOut, Tap::HcFfnPost, Tap::HcFfnComb, Tap::FfnOut])?,
            Op::Route => {
                let x = self.values(Tap::FfnIn, &[d])?;
                let logits = route::router_logits(ctx, x, &w.router);
                let runs = self.rows.chunk_by(|a, b| a.pos + 1 == b.pos);
                let ids = runs.map(|run| self.layer.golden.ids(run)).collect::<Result<Vec<_>>>()?.concat();
                let idx = route::choose(ctx, &logits, &w.router, &ids);
                let wt = route::weights(ctx, &logits, &idx);
                let [logits, wt] =
                    [(vec![c.n_routed_experts], logits), (vec![k], wt)].map(|(tail, v)| self.one(&tail, v.into_vec()));
                let idx = Tensor::i64(vec![self.rows.len(), k], idx.into_iter().map(i64::from).collect());
                vec![(Tap::FfnRouterLogits, logits), (Tap::FfnIdx, idx), (Tap::FfnWt, wt)]
            }
            Op::Experts => {
                let (x, wt) = (self.values(Tap::FfnIn, &[d])?, self.values(Tap::FfnWt, &[k])?);
                let idx = self.experts(k)?;
                let parts = [Routed { x, idx: &idx, wt }];
                let act = experts::expert_act(ctx, &parts, &w.experts).map_err(Error::source)?;
                let sum = experts::expert_sum(ctx, &parts, &act, &w.experts).map_err(Error::source)?;
                let (act, sum) = (act.into_iter().next().unwrap_or_default(), sum.into_iter().next());
                let sum = sum.unwrap_or_else(|| Vec::new().into());
                self.out([(&[k, inner][..], Made::from(act)), (&[d], sum)])
            }
            Op::SharedExpert => {
                let x = self.values(Tap::FfnIn, &[d])?;
                let y = experts::shared(ctx, &w.shared, &[x]).next();
                self.out([(&[d], y.unwrap_or_else(|| Vec::new().into()))])
            }
            Op::CombineExperts => {
                let (routed, shared) = (self.values(Tap::FfnRouted, &[d])?, self.values(Tap::FfnShared, &[d])?);
                self.out([(&[d], experts::combine(ctx, routed, shared))])
            }
            Op::HeadCollapse => {
                let h = self.values(Tap::HFinal, &[hc, d])?;
                let head = self.layer.golden.loader("").head().map_err(Error::source)?;
                self.out([(&[d], head_collapse(ctx, &head, h))])
            }
            Op::HeadLogits => {
                let x = self.values(Tap::HeadCollapsed, &[d])?;
                let head = self.layer.golden.loader("").head().map_err(Error::source)?;
                let table = self.layer.golden.head_table()?;
                let mut logits = head_logits(ctx, &head, &table, &[x]).map_err(Error::source)?;
                self.out([(&[c.vocab_size], logits.pop().unwrap_or_else(|| Vec::new().into()))])
            }
        })
    }

    fn mix_in(&self, w: &HcWeights<T>, streams: Tap) -> Result<Outputs> {
        let ctx = self.layer.golden.ctx();
        let (hc, d) = (ctx.config.hc_mult, ctx.config.hidden_size);
        let h = self.values(streams, &[hc, d])?;
        let mix = hc_coefficients(ctx, w, h);
        let x = hc_mix::collapse(ctx, &mix.pre, h);
        Ok(self.out([(&[hc][..], mix.pre), (&[hc], mix.post), (&[hc, hc], mix.comb), (&[d], x)]))
    }

    fn mix_out(&self, [streams, post, comb, y]: [Tap; 4]) -> Result<Outputs> {
        let ctx = self.layer.golden.ctx();
        let (hc, d) = (ctx.config.hc_mult, ctx.config.hidden_size);
        let h = self.values(streams, &[hc, d])?;
        let post = self.values(post, &[hc])?.to_vec();
        let comb = self.values(comb, &[hc, hc])?.to_vec();
        let mix = Coefficients { pre: Vec::new().into(), post: post.into(), comb: comb.into() };
        Ok(self.out([(&[hc, d], hc_mix::combine(ctx, &mix, h, self.values(y, &[d])?))]))
    }

    fn project(&self, w: &CompressorWeights<T>) -> Result<Outputs> {
        let ctx = self.layer.golden.ctx();
        let (kvp, score) = compress::project(ctx, w, self.values(Tap::AttnIn, &[ctx.config.hidden_size])?);
        Ok(self.out([(&[w.columns()], kvp), (&[w.columns()], score)]))
    }

    fn pool(&self, w: &CompressorWeights<T>, [kvp, score]: [Tap; 2]) -> Result<Outputs> {
        self.cold()?;
        let (kvp, score) = (self.values(kvp, &[w.columns()])?, self.values(score, &[w.columns()])?);
        let rope = self.layer.golden.rope(self.layer.weights.kind);
        let mut state = CompressorState::default();
        let entries = compress::pool(self.layer.golden.ctx(), w, rope, &mut state, kvp, score);
        let shape = vec![entries.len() / w.width(), w.width()];
        Ok(vec![(self.op.spec().writes[0], T::tensor(shape, entries.into_vec()))])
    }

    fn compressor(&self) -> Result<&CompressorWeights<T>> {
        self.layer.weights.attn.compressor.as_ref().ok_or_else(|| self.absent())
    }

    fn indexer(&self) -> Result<&IndexerWeights<T>> {
        self.layer.weights.attn.indexer.as_ref().ok_or_else(|| self.absent())
    }

    fn absent(&self) -> Error {
        Error::Unsupported { what: format!("op {}", self.op.spec().name), by: format!("layer {}", self.layer.l) }
    }

    /// (T, ratio) after all rows of a cold run.
    fn entries(&self) -> Result<(usize, usize)> {
        let ratio = self.layer.weights.kind.ratio().ok_or_else(|| self.absent())?;
        Ok((self.rows.len() / ratio, ratio))
    }

    fn angles(&self) -> Angles<T> {
        Angles::at(self.layer.golden.rope(self.layer.weights.kind), self.rows.iter().map(|row| row.pos))
    }

    /// Refuses rows that are no cold run from position 0.
    fn cold(&self) -> Result<()> {
        match self.rows.iter().enumerate().find(|(i, row)| row.pos as usize != *i) {
            None => Ok(()),
            Some((i, row)) => {
                let name = self.op.spec().name;
                Err(Error::Request(format!("op {name} needs rows from position 0 on: row {i} is position {}", row.pos)))
            }
        }
    }

    fn tensor(&self, tap: Tap) -> Result<&Tensor> {
        let missing = || Error::Request(format!("op {} needs the operand {}", self.op.spec().name, tap.name()));
        self.operands.iter().find(|(have, _)| *have == tap).map(|(_, tensor)| tensor).ok_or_else(missing)
    }

    fn shape(&self, tap: Tap, tensor: &Tensor, expected: &[usize]) -> Result<()> {
        if tensor.shape == expected {
            return Ok(());
        }
        let at = format!("op {}: {}", self.op.spec().name, tap.name());
        Err(Error::Shape { at, expected: expected.to_vec(), found: tensor.shape.clone() })
    }

    /// An operand `[S, tail...]`.
    fn values(&self, tap: Tap, tail: &[usize]) -> Result<&[T]> {
        let tensor = self.tensor(tap)?;
        let expected: Vec<usize> = std::iter::once(self.rows.len()).chain(tail.iter().copied()).collect();
        self.shape(tap, tensor, &expected)?;
        T::values(tensor, tap.name())
    }

    /// An operand `[T, width]`.
    fn per_entry(&self, tap: Tap, width: usize, total: usize) -> Result<&[T]> {
        let tensor = self.tensor(tap)?;
        self.shape(tap, tensor, &[total, width])?;
        T::values(tensor, tap.name())
    }

    /// The operand ffn.idx `[S,K]`.
    fn experts(&self, k: usize) -> Result<Vec<u32>> {
        let tensor = self.tensor(Tap::FfnIdx)?;
        self.shape(Tap::FfnIdx, tensor, &[self.rows.len(), k])?;
        let limit = self.layer.golden.config().n_routed_experts;
        let valid = |&v: &i64| {
            let past = || Error::Request(format!("op {}: expert {v} of {limit}", self.op.spec().name));
            u32::try_from(v).ok().filter(|&v| (v as usize) < limit).ok_or_else(past)
        };
        tensor.as_i64(Tap::FfnIdx.name())?.iter().map(valid).collect()
    }

    fn one(&self, tail: &[usize], values: Vec<T>) -> Tensor {
        T::tensor(std::iter::once(self.rows.len()).chain(tail.iter().copied()).collect(), values)
    }

    /// Results `[S, tail...]` under the taps that the op writes, in graph order.
    fn out<'t>(&self, results: impl IntoIterator<Item = (impl AsRef<[usize]> + 't, impl Into<Made<T>>)>) -> Outputs {
        let writes = self.op.spec().writes.iter();
        writes
            .zip(results)
            .map(|(tap, (tail, values))| (*tap, self.one(tail.as_ref(), values.into().into_vec())))
            .collect()
    }
}
