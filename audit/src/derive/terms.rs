//! The roundings at each tap, as a plan has them (spec 2.15 and section 8), and what each costs.

use karat_bundle::DerivationRow;
use karat_diff::Rounding;
use karat_diff::tolerance::noise::{mix, uniform};
use karat_diff::tolerance::quantise::{Format, cost};
use karat_diff::tolerance::{accumulator, root_sum};
use karat_optimized::{
    ActCodes, Attend, Coded, IndexFormat, IndexScore, KvFormat, Numerics, Parts, Product, QueryNorm, Store, WeightCodes,
};
use karat_seam::{Block, Data, Layer, Op, OpSpec, Phase, Recorder, RowId, Site, Streams, Tap, Tensor};

use super::costs::{Costs, Mixed, OfTaps, Rounded};
use super::{Rules, Term};
use crate::facts::plain;
use crate::place::{block_name, named, order};
use crate::{Result, align, own_error};

/// Rows that a cost is measured on: this many of a sequence, evenly spread.
const SAMPLE: usize = 32;
/// Values of a weight that its rounding is measured on.
const WEIGHTS: usize = 1 << 16;

/// The roundings of layer `l`, tap by tap in op order. What golden's values decide is measured on each sequence by itself:
/// no row's tolerance depends on which other conversations ran. `x` are the streams that enter the layer.
pub(super) fn of(
    (rules, phase): (Rules<'_>, Phase),
    (l, layers): (u16, u16),
    golden: &dyn Layer,
    on_x: &Recorder,
    x: &Streams,
    costs: &Costs,
) -> Result<Vec<Term>> {
    let mut out = Vec::new();
    for tap in Tap::ALL {
        out.extend(of_tap((rules, phase), (l, layers), golden, on_x, x, costs, *tap)?);
    }
    Ok(out)
}

/// The roundings of one tap, as [`of`] has them; they follow from x and from golden's taps up to this one.
pub(super) fn of_tap(
    (rules, phase): (Rules<'_>, Phase),
    (l, layers): (u16, u16),
    golden: &dyn Layer,
    on_x: &Recorder,
    x: &Streams,
    costs: &Costs,
    tap: Tap,
) -> Result<Vec<Term>> {
    let mut out = Vec::new();
    let Some(writer) = writer(golden, tap) else { return Ok(out) };
    let site = Site::layer(l, tap);
    let block = named(site.block, layers);
    let row = DerivationRow {
        layer: block_name(block),
        op: writer.name.to_string(),
        tap: tap.name().to_string(),
        order: order(site, layers),
        ..DerivationRow::default()
    };
    for (i, seq) in on_x.taps.keys().filter(|(at, _)| *at == site).map(|(_, seq)| *seq).enumerate() {
        let mut at = Terms::new((rules, phase), (site.block, seq), on_x, costs, row.clone());
        at.block = block;
        if !at.collect(tap, golden, x)? {
            break;
        }
        // A tap without a rounding of its own passes on what came before it.
        if at.out.is_empty() {
            at.push("none", "f32", "own", (1.0, 0.0), ("formula", 0));
        }
        // What every sequence has alike is told once.
        out.extend(at.out.into_iter().filter(|term| i == 0 || term.seq.is_some()));
    }
    Ok(out)
}

/// The op that writes a tap, where the tap may have roundings and the layer has the op.
pub(super) fn writer(golden: &dyn Layer, tap: Tap) -> Option<&'static OpSpec> {
    let may = !tap.is_discrete() && !tap.is_state();
    OpSpec::writer_of(tap).filter(|spec| may && golden.has_op(spec.op))
}

/// Roundings at one tap of one sequence.
pub(super) struct Terms<'a> {
    rules: Rules<'a>,
    numerics: &'a Numerics,
    /// The block that weights are of.
    block: Block,
    /// The block that golden's taps are under.
    named: Block,
    seq: u32,
    on_x: &'a Recorder,
    costs: &'a Costs,
    row: DerivationRow,
    pub(super) out: Vec<Term>,
}

impl<'a> Terms<'a> {
    /// None yet. `on_x` has golden's taps under the block.
    pub(super) fn new(
        (rules, phase): (Rules<'a>, Phase),
        (block, seq): (Block, u32),
        on_x: &'a Recorder,
        costs: &'a Costs,
        row: DerivationRow,
    ) -> Self {
        let numerics = rules.numerics[phase as usize];
        Self { rules, numerics, block, named: block, seq, on_x, costs, row, out: Vec::new() }
    }

    /// Collects a tap's roundings; false where they cannot be told.
    fn collect(&mut self, tap: Tap, golden: &dyn Layer, x: &Streams) -> Result<bool> {
        use Tap as T;
        let n = self.numerics;
        match tap {
            T::HcAttnPre | T::HcAttnPost | T::HcAttnComb | T::HcFfnPre | T::HcFfnPost | T::HcFfnComb => {
                let op = if tap < T::AttnIn { Op::HcAttnPre } else { Op::HcFfnPre };
                if n.hc != Product::F32 && !self.mixed(op, tap, golden, x)? {
                    return Ok(false);
                }
                self.sum(Some(x.data.width()));
            }
            T::HcAttnCollapsed | T::AttnIn | T::HcAttnOut | T::HcFfnCollapsed | T::FfnIn | T::FfnOut | T::Out => {
                self.stored(tap, 1.0);
            }
            T::AttnQr => {
                self.product(n.dense, T::AttnIn, None, 1.0);
                self.stored(tap, 2.0);
            }
            T::AttnQ => {
                self.product(n.dense, T::AttnQr, None, 1.0);
                // The linear and rope; the chain of the norm: two halves by the square root, its inverse, the product.
                let norm = if n.query_norm == QueryNorm::Bf16Chain { 2.5 } else { 1.0 };
                self.stored(tap, 2.0 + norm);
            }
            T::AttnKv => {
                self.product(n.dense, T::AttnIn, None, 1.0);
                self.stored(tap, 2.0);
                self.kv(tap);
            }
            T::AttnKvp | T::AttnGateScore | T::AttnIndexKvp | T::AttnIndexGateScore => {
                let of = if tap < T::AttnIndexKvp { "attn.compressor" } else { "attn.indexer.compressor" };
                let which = if matches!(tap, T::AttnKvp | T::AttnIndexKvp) { "wkv" } else { "wgate" };
                self.product(n.compress, T::AttnIn, Some(format!("{of}.{which}")), 1.0);
                if n.compress_store.rounds() {
                    self.stored(tap, 1.0);
                }
            }
            T::AttnCkv => {
                self.stored(tap, 2.0);
                self.carried();
                self.kv(tap);
            }
            T::AttnIndexK => {
                self.stored(tap, 3.0);
                self.carried();
                self.index(tap);
            }
            T::AttnIndexQ => {
                self.product(n.dense, T::AttnQr, None, 1.0);
                self.stored(tap, 3.0);
                self.index(tap);
            }
            T::AttnIndexW => {
                self.product(n.index_weights, T::AttnIn, Some("attn.indexer.weights_proj".into()), 1.0);
                self.stored(tap, 1.0);
            }
            T::AttnIndexScore => {
                self.sum(Some(self.last_of(T::AttnIndexQ)));
                match n.index.score {
                    // q.k and its product with the weight, head by head, and the sum.
                    IndexScore::Bf16Chain => self.stored(tap, 3.0),
                    IndexScore::F32 | IndexScore::Folded { .. } => {}
                }
            }
            T::AttnO => {
                // P, partial results, and the output.
                let (p, partials) = match n.attend {
                    Attend::Fused { p } => (p, Store::F32),
                    Attend::Parted { p, partials } => (p, partials),
                    Attend::SplitK(split) => (split.p, split.partials),
                    Attend::Fp8Q { .. } => return Ok(false),
                };
                let inner = [p, partials].into_iter().filter(|s| s.rounds()).count();
                self.stored(tap, if n.store.rounds() { 1.0 + inner as f64 } else { inner as f64 });
                self.sum(self.width_of(T::AttnKv));
            }
            T::AttnLse => self.sum(self.width_of(T::AttnKv)),
            T::AttnOa => {
                self.product(n.wo_a, T::AttnO, None, 1.0);
                // The inverse rope, and the output.
                self.stored(tap, 2.0);
            }
            T::AttnOut => {
                self.product(n.dense, T::AttnOa, None, 1.0);
                self.stored(tap, 1.0);
                self.summed(n.reduce, tap);
            }
            T::FfnRouterLogits => {
                self.product(n.router, T::FfnIn, Some("ffn.gate".into()), 1.0);
                if n.router_store.rounds() {
                    self.stored(tap, 1.0);
                }
            }
            T::FfnWt => {}
            T::FfnExpertAct => {
                // Gate and up each bring the rounding of x.
                self.product(n.experts, T::FfnIn, None, 2.0);
                self.stored(tap, if n.swiglu.fused { 1.0 } else { 3.0 });
            }
            T::FfnRouted => {
                self.product(n.experts, T::FfnExpertAct, None, 1.0);
                self.stored(tap, 1.0);
                self.summed(n.reduce, tap);
            }
            T::FfnShared => {
                self.product(n.dense, T::FfnIn, None, 2.0);
                self.stored(tap, if n.swiglu.fused { 2.0 } else { 4.0 });
                // No tap shows the shared expert's activations.
                if let Product::Coded(Coded { act, .. }) = n.dense {
                    let typical = match act {
                        ActCodes::Nvfp4 => Rounding::Nvfp4,
                        ActCodes::Q8 | ActCodes::Mxfp8 | ActCodes::Fp8Rows => Rounding::E4m3Pow2Scale,
                    };
                    let name = typical.name().to_string();
                    self.push("operand of w2", &name, "spread", (1.0, typical.rel_l2()), ("typical", 0));
                }
                self.summed(n.reduce, tap);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What the rounded operands of the mixing product do to a coefficient depends on the mix: golden's own op on streams
    /// that are off by as much. An error of relative size c in every weight does to a sum what the same in every stream does.
    fn mixed(&mut self, op: Op, tap: Tap, golden: &dyn Layer, x: &Streams) -> Result<bool> {
        let format = match self.numerics.hc {
            Product::F32 | Product::Coded(_) => return Ok(false),
            Product::Tf32 => Format::Tf32,
            Product::Bf16 | Product::Terms(_) => Format::Bf16,
        };
        let what = Mixed { seq: self.seq, op, product: self.numerics.hc, store: self.numerics.store };
        let Some((costs, rows)) = self.costs.mixed(what, || self.mixing(op, format, golden, x))? else {
            return Ok(false);
        };
        let Some((_, cost)) = costs.into_iter().find(|(of, _)| *of == tap) else { return Ok(false) };
        self.push_own("mixing product", &format.name(), "spread", (1.0, cost), rows);
        Ok(true)
    }

    /// What the operands of a mixing product cost at each tap of its op, on some rows.
    fn mixing(&self, op: Op, format: Format, golden: &dyn Layer, x: &Streams) -> Result<OfTaps> {
        let Block::Layer(l) = self.named else { return Ok(None) };
        let none = std::collections::BTreeMap::new();
        let made = own_error::operands(op.spec(), golden, &none, (l, self.seq), x, self.on_x);
        let Some((operands, rows)) = made else { return Ok(None) };
        let Some((operand, whole)) = operands.into_iter().next() else { return Ok(None) };
        let keep: Vec<RowId> =
            (0..rows.len().min(SAMPLE)).map(|i| rows[i * rows.len() / rows.len().min(SAMPLE)]).collect();
        let Some(sample) = align::gather(&rows, &whole, &keep) else { return Ok(None) };
        let values = sample.as_f32(operand.name())?;
        let part = if op == Op::HcAttnPre { "attn" } else { "ffn" };
        let of_weight = match self.numerics.hc {
            Product::Terms(terms) if terms > 1 => 0.0,
            _ => {
                let Some(block) = self.weights_of() else { return Ok(None) };
                let Ok(weight) = plain(self.rules.checkpoint, &format!("{block}.hc_{part}_fn")) else {
                    return Ok(None);
                };
                cost(&weight, sample.width(), |row| format.round(row)).unwrap_or(0.0)
            }
        };
        let of_streams = if self.numerics.store == Store::Bf16 && format == Format::Bf16 {
            0.0
        } else {
            cost(values, sample.width(), |row| format.round(row)).unwrap_or(0.0)
        };
        let size = root_sum([of_weight, of_streams]);
        let off = |(i, v): (usize, &f32)| (f64::from(*v) * (1.0 + size * uniform(mix(i as u64) as u32))) as f32;
        let off = Tensor::f32(sample.shape.clone(), values.iter().enumerate().map(off).collect());
        let run = |tensor: Tensor| golden.op(op, &[(operand, tensor)], &keep);
        let (right, off) = (run(sample.into_owned())?, run(off)?);
        let mut costs = Vec::new();
        for (tap, right) in &right {
            if let Some((_, off)) = off.iter().find(|(t, _)| t == tap) {
                costs.push((*tap, own_error::rel_l2(right, off, &keep, &|_| true).unwrap_or(0.0)));
            }
        }
        Ok(Some((costs, keep.len())))
    }

    /// Rows and scores that wait for their window in bf16: what a pooled entry loses by both.
    fn carried(&mut self) {
        if self.numerics.compress_state.rounds() {
            let cost = Rounding::Bf16.rel_l2();
            self.push("carried rows and scores", "bf16", "spread", (2.0, cost), ("typical", 0));
        }
    }

    /// Partial sums over ranks, and the additions, of growing size.
    fn summed(&mut self, parts: Parts, tap: Tap) {
        if parts.count < 2 || !parts.store.rounds() {
            return;
        }
        let ranks = parts.count as f64;
        let sums = 1.0 + (2..=parts.count).map(|j| j as f64 / ranks).sum::<f64>();
        self.measured("partial sums", tap, self.last_of(tap), Format::Bf16, "own", sums);
    }

    fn push(&mut self, term: &str, format: &str, shape: &str, (times, cost): (f64, f64), (basis, rows): (&str, usize)) {
        let row = DerivationRow {
            term: term.to_string(),
            format: format.to_string(),
            shape: shape.to_string(),
            times,
            cost,
            basis: basis.to_string(),
            sample_rows: rows as u64,
            ..self.row.clone()
        };
        self.out.push(Term { seq: None, row });
    }

    /// A term that was measured on this sequence's values.
    fn push_own(&mut self, term: &str, format: &str, shape: &str, (times, cost): (f64, f64), rows: usize) {
        self.push(term, format, shape, (times, cost), ("measured", rows));
        let seq = self.seq;
        self.out.iter_mut().rev().take(1).for_each(|term| term.seq = Some(seq));
    }

    /// Elements of a row of a tap.
    fn width_of(&self, tap: Tap) -> Option<usize> {
        self.recorded(tap).next().map(|r| r.tensor.width())
    }

    /// Elements along the last axis.
    fn last_of(&self, tap: Tap) -> usize {
        self.recorded(tap).next().and_then(|r| r.tensor.shape.last().copied()).unwrap_or(1)
    }

    fn recorded(&self, tap: Tap) -> impl Iterator<Item = &karat_seam::Recorded> {
        self.on_x.get(Site { block: self.named, tap }, self.seq).into_iter()
    }

    /// Rows of golden's values, evenly spread over the sequence.
    fn sample(&self, tap: Tap) -> (Vec<f32>, usize) {
        let (mut values, mut rows) = (Vec::new(), 0);
        for recorded in self.recorded(tap) {
            let Data::F32(all) = &recorded.tensor.data else { continue };
            let (n, width) = (recorded.tensor.rows(), recorded.tensor.width());
            for i in 0..n.min(SAMPLE) {
                let at = i * n / n.min(SAMPLE);
                values.extend_from_slice(&all[at * width..(at + 1) * width]);
                rows += 1;
            }
        }
        (values, rows)
    }

    /// Rounding a tap's values themselves to bf16.
    pub(super) fn stored(&mut self, tap: Tap, times: f64) {
        let stores = self.numerics.store == Store::Bf16
            || (tap == Tap::AttnKvp || tap == Tap::AttnGateScore || tap == Tap::FfnRouterLogits);
        if stores {
            self.measured("output", tap, self.last_of(tap), Format::Bf16, "own", times);
        }
    }

    /// What rounding the `front` of each row of a tap costs, and the rows of the sample.
    fn cost(&self, tap: Tap, width: usize, format: Format, front: usize, rotated: bool) -> (f64, usize) {
        let what = Rounded { tap, seq: self.seq, format, width, front, rotated };
        self.costs.rounded(what, || self.sample(tap))
    }

    fn measured(&mut self, term: &str, tap: Tap, width: usize, format: Format, shape: &str, times: f64) {
        let (cost, rows) = self.cost(tap, width, format, usize::MAX, false);
        self.push_own(term, &format.name(), shape, (times, cost), rows);
    }

    /// What a product rounds: the operand beyond what its own storage already did, the weight, the accumulator.
    pub(super) fn product(&mut self, product: Product, operand: Tap, weight: Option<String>, times: f64) {
        let width = match operand {
            // One product a group of heads.
            Tap::AttnO => {
                let groups = self.rules.checkpoint.config().o_groups.max(1);
                self.width_of(operand).map(|w| w / groups)
            }
            Tap::FfnExpertAct => Some(self.last_of(operand)),
            _ => self.width_of(operand),
        };
        let k = width.unwrap_or(1);
        let name = format!("operand {}", operand.name());
        let is_bf16 = self.numerics.store == Store::Bf16;
        let plain = match product {
            Product::F32 => None,
            Product::Tf32 => Some(Format::Tf32),
            Product::Bf16 | Product::Terms(_) => Some(Format::Bf16),
            Product::Coded(Coded { act, weight: codes }) => {
                let format = match act {
                    ActCodes::Q8 => Format::E4m3Pow2(128),
                    ActCodes::Mxfp8 => Format::E4m3Pow2(32),
                    ActCodes::Fp8Rows => Format::E4m3Scaled(k),
                    ActCodes::Nvfp4 => Format::Nvfp4,
                };
                self.measured(&name, operand, k, format, "spread", times);
                if codes != WeightCodes::Stored {
                    let typical = Rounding::E4m3Pow2Scale;
                    self.push("weight", typical.name(), "spread", (times, typical.rel_l2()), ("typical", 0));
                }
                None
            }
        };
        if let Some(format) = plain {
            if !is_bf16 {
                self.measured(&name, operand, k, format, "spread", times);
            }
            if let (Some(weight), false) = (weight, matches!(product, Product::Terms(_))) {
                self.weight(&weight, k, format, times);
            }
        }
        self.sum(Some(k));
    }

    /// Where the block's weights stand in a checkpoint.
    fn weights_of(&self) -> Option<String> {
        match self.block {
            Block::Mtp(i) => Some(format!("mtp.{i}")),
            Block::Layer(l) => Some(format!("layers.{l}")),
            Block::Embed | Block::Head => None,
        }
    }

    /// Rounding a weight that is stored without codes.
    fn weight(&mut self, name: &str, cols: usize, format: Format, times: f64) {
        let Some(block) = self.weights_of() else { return };
        let place = format!("{block}.{name}.weight");
        let found = self.costs.weight((place.clone(), cols, format), || {
            let values = plain(self.rules.checkpoint, &place).ok()?;
            let n = values.len().min(WEIGHTS / cols.max(1) * cols.max(1)).max(cols.min(values.len()));
            let cost = cost(&values[..n], cols, |row| format.round(row)).unwrap_or(0.0);
            Some((cost, n / cols.max(1)))
        });
        let Some((cost, rows)) = found else { return };
        self.push(&format!("weight {name}"), &format.name(), "spread", (times, cost), ("measured", rows));
    }

    /// The f32 accumulator of sums of `k` products.
    fn sum(&mut self, k: Option<usize>) {
        if let Some(k) = k {
            self.push("accumulator", "f32", "spread", (1.0, accumulator(k)), ("formula", 0));
        }
    }

    /// A KV row or entry as the cache stores it.
    fn kv(&mut self, tap: Tap) {
        let nope = self.rules.checkpoint.config().nope_head_dim();
        let width = self.last_of(tap);
        let (format, front) = match self.numerics.kv {
            KvFormat::Stored => return,
            KvFormat::Q8 { block, .. } => (Format::E4m3Pow2(block), nope.min(width)),
            KvFormat::Uniform => (Format::E4m3, width),
        };
        let (cost, rows) = self.cost(tap, width, format, front, false);
        let name = format!("{}, {nope} of {width}", format.name());
        self.push_own("cache", &name, "own", (1.0, cost), rows);
    }

    /// Index vectors as they are scored, rotated where the plan rotates them.
    fn index(&mut self, tap: Tap) {
        let rule = self.numerics.index;
        let width = self.last_of(tap);
        let format = match rule.format {
            IndexFormat::Stored => return,
            IndexFormat::Q4 { block } => Format::Mxfp4(block),
            IndexFormat::Bf16 => Format::Bf16,
            IndexFormat::Fp8 { pow2: true, .. } => Format::E4m3Pow2(width),
            IndexFormat::Fp8 { pow2: false, .. } => Format::E4m3Scaled(width),
        };
        let rotated = if rule.hadamard && width.is_power_of_two() { ", rotated" } else { "" };
        let (cost, rows) = self.cost(tap, width, format, usize::MAX, !rotated.is_empty());
        let name = format!("{}{rotated}", format.name());
        // After a rotation back, a vector's error is spread over its dims.
        let shape = if rotated.is_empty() { "own" } else { "spread" };
        self.push_own("index format", &name, shape, (1.0, cost), rows);
    }
}
