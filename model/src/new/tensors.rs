//! The tensor table of spec section 4, filled with random values.
//!
//! Gains are 1/sqrt(fan_in), norm weights 1 + 0.2 N, hc fn 1/sqrt(4 D); the comb bias of mHC is near 2 times the
//! identity, so that the streams mix and still stay apart. FP8 blocks have gains of their own within 0.6..1.4: their
//! scales differ, and a transposed or shared scale shows.

use half::bf16;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::geometry::{Kind, Shape};
use super::quantise;
use super::random::Stream;
use super::{Experts, Geometry};

/// model.safetensors of this shape and seed.
pub(super) fn safetensors(shape: &Shape, geometry: Geometry, seed: u64, experts: Experts) -> Vec<u8> {
    let mut table = Table { seed, experts, tensors: Vec::new() };
    table.model(shape);
    let views: Vec<(String, TensorView<'_>)> = table
        .tensors
        .iter()
        .map(|t| {
            let view = TensorView::new(t.dtype, t.shape.clone(), &t.bytes);
            (t.name.clone(), view.expect("bytes are made from the shape"))
        })
        .collect();
    // One entry only: the order of several would follow a hash map.
    let other = if experts == Experts::Mxfp4 { String::new() } else { format!(", experts {}", experts.name()) };
    let producer = format!("karat model new, geometry {}, seed {seed}{other}, random weights", geometry.name());
    let metadata = std::iter::once(("producer".to_owned(), producer)).collect();
    safetensors::serialize(views, Some(metadata)).expect("a header of some hundred tensors fits")
}

struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

struct Table {
    seed: u64,
    experts: Experts,
    tensors: Vec<Tensor>,
}

impl Table {
    fn model(&mut self, s: &Shape) {
        let d = s.hidden;
        self.bf16("embed.weight", &[s.vocab, d], |r, _| 0.6 * r.normal());
        // Twice the usual gain: logits then have a spread of about 2, as a model with opinions has.
        let head = 2.0 * gain(d);
        self.bf16("head.weight", &[s.vocab, d], |r, _| head * r.normal());
        self.norm("norm.weight", d);
        self.hc_head("", s);
        for (l, &kind) in s.kinds.iter().enumerate() {
            self.block(&format!("layers.{l}."), s, kind, l < s.hash_layers);
        }
        for i in 0..s.mtp {
            let at = format!("mtp.{i}.");
            self.block(&at, s, Kind::Sliding, false);
            for name in ["e_proj", "h_proj"] {
                self.fp8(&format!("{at}{name}"), d, d);
            }
            for name in ["enorm", "hnorm", "norm"] {
                self.norm(&format!("{at}{name}.weight"), d);
            }
            self.hc_head(&at, s);
        }
    }

    fn block(&mut self, at: &str, s: &Shape, kind: Kind, hash: bool) {
        let d = s.hidden;
        self.norm(&format!("{at}attn_norm.weight"), d);
        self.norm(&format!("{at}ffn_norm.weight"), d);
        for part in ["hc_attn", "hc_ffn"] {
            let width = s.hc * d;
            let rows = s.hc * (2 + s.hc);
            let fan_in = gain(width);
            self.f32(&format!("{at}{part}_fn"), &[rows, width], |r, _| fan_in * r.normal());
            self.f32(&format!("{at}{part}_scale"), &[3], |r, _| 0.5 + 0.5 * r.uniform());
            // Row j, column k of comb follows the 2*hc entries of pre and post.
            self.f32(&format!("{at}{part}_base"), &[rows], |r, i| {
                let comb = i.checked_sub(2 * s.hc).map(|c| (c / s.hc, c % s.hc));
                let identity = comb.is_some_and(|(j, k)| j == k);
                0.5 * r.normal() + if identity { 2.0 } else { 0.0 }
            });
        }
        self.attention(&format!("{at}attn."), s, kind);
        self.experts(&format!("{at}ffn."), s, hash);
    }

    fn attention(&mut self, at: &str, s: &Shape, kind: Kind) {
        let (d, hd) = (s.hidden, s.head_dim);
        self.f32(&format!("{at}attn_sink"), &[s.heads], |r, _| 0.5 * r.normal());
        self.fp8(&format!("{at}wq_a"), s.q_lora, d);
        self.norm(&format!("{at}q_norm.weight"), s.q_lora);
        self.fp8(&format!("{at}wq_b"), s.heads * hd, s.q_lora);
        self.fp8(&format!("{at}wkv"), hd, d);
        self.norm(&format!("{at}kv_norm.weight"), hd);
        self.fp8(&format!("{at}wo_a"), s.o_groups * s.o_lora, s.heads / s.o_groups * hd);
        self.fp8(&format!("{at}wo_b"), d, s.o_groups * s.o_lora);
        match kind {
            Kind::Sliding => {}
            Kind::Hca => self.compressor(&format!("{at}compressor."), s.hca_ratio, hd, hd, d),
            Kind::Csa => {
                self.compressor(&format!("{at}compressor."), s.csa_ratio, 2 * hd, hd, d);
                let at = format!("{at}indexer.");
                self.fp8(&format!("{at}wq_b"), s.index_heads * s.index_dim, s.q_lora);
                let fan_in = gain(d);
                self.bf16(&format!("{at}weights_proj.weight"), &[s.index_heads, d], |r, _| fan_in * r.normal());
                self.compressor(&format!("{at}compressor."), s.csa_ratio, 2 * s.index_dim, s.index_dim, d);
            }
        }
    }

    /// `width` is the row width c*hd, `hd` one entry's.
    fn compressor(&mut self, at: &str, ratio: usize, width: usize, hd: usize, d: usize) {
        let fan_in = gain(d);
        self.f32(&format!("{at}ape"), &[ratio, width], |r, _| 0.5 * r.normal());
        for name in ["wkv", "wgate"] {
            self.bf16(&format!("{at}{name}.weight"), &[width, d], |r, _| fan_in * r.normal());
        }
        self.norm(&format!("{at}norm.weight"), hd);
    }

    fn experts(&mut self, at: &str, s: &Shape, hash: bool) {
        let (d, inner, n) = (s.hidden, s.moe_inter, s.experts);
        let fan_in = gain(d);
        self.bf16(&format!("{at}gate.weight"), &[n, d], |r, _| fan_in * r.normal());
        if hash {
            self.expert_table(&format!("{at}gate.tid2eid"), s.vocab, n, s.experts_per_token);
        } else {
            self.f32(&format!("{at}gate.bias"), &[n], |r, _| 0.1 * r.normal());
        }
        for e in 0..n {
            let name = |which: &str| format!("{at}experts.{e}.{which}");
            match self.experts {
                Experts::Mxfp4 => {
                    for (which, rows, cols) in [("w1", inner, d), ("w2", d, inner), ("w3", inner, d)] {
                        self.mxfp4(&name(which), rows, cols);
                    }
                }
                // Engines that fuse gate and up have one global scale for both.
                Experts::Nvfp4 => {
                    self.nvfp4(&[name("w1"), name("w3")], inner, d);
                    self.nvfp4(&[name("w2")], d, inner);
                }
            }
        }
        for (name, rows, cols) in [("w1", inner, d), ("w2", d, inner), ("w3", inner, d)] {
            self.fp8(&format!("{at}shared_experts.{name}"), rows, cols);
        }
    }

    fn hc_head(&mut self, at: &str, s: &Shape) {
        let width = s.hc * s.hidden;
        let fan_in = gain(width);
        self.f32(&format!("{at}hc_head_fn"), &[s.hc, width], |r, _| fan_in * r.normal());
        self.f32(&format!("{at}hc_head_base"), &[s.hc], |r, _| 0.5 * r.normal());
        self.f32(&format!("{at}hc_head_scale"), &[1], |r, _| 0.5 + 0.5 * r.uniform());
    }

    fn norm(&mut self, name: &str, n: usize) {
        self.bf16(name, &[n], |r, _| 1.0 + 0.2 * r.normal());
    }

    fn bf16(&mut self, name: &str, shape: &[usize], value: impl FnMut(&mut Stream, usize) -> f32) {
        let bytes = self.values(name, shape, value).flat_map(|v| bf16::from_f32(v).to_le_bytes()).collect();
        self.push(name, Dtype::BF16, shape, bytes);
    }

    fn f32(&mut self, name: &str, shape: &[usize], value: impl FnMut(&mut Stream, usize) -> f32) {
        let bytes = self.values(name, shape, value).flat_map(f32::to_le_bytes).collect();
        self.push(name, Dtype::F32, shape, bytes);
    }

    fn fp8(&mut self, name: &str, rows: usize, cols: usize) {
        let fan_in = gain(cols);
        let across = cols.div_ceil(128);
        let mut gains = Stream::new(self.seed, &format!("{name}.scale"));
        let gains: Vec<f32> = (0..rows.div_ceil(128) * across).map(|_| 0.6 + 0.8 * gains.uniform()).collect();
        let weight = format!("{name}.weight");
        let block = |i: usize| (i / cols / 128) * across + i % cols / 128;
        let values: Vec<f32> =
            self.values(&weight, &[rows, cols], |r, i| fan_in * gains[block(i)] * r.normal()).collect();
        let (codes, scales) = quantise::fp8_blocks(&values, rows, cols);
        self.push(&weight, Dtype::F8_E4M3, &[rows, cols], codes);
        self.push(&format!("{name}.scale"), Dtype::F8_E8M0, &[rows.div_ceil(128), across], scales);
    }

    fn expert(&self, name: &str, rows: usize, cols: usize) -> Vec<f32> {
        let fan_in = gain(cols);
        self.values(&format!("{name}.weight"), &[rows, cols], |r, _| fan_in * r.normal()).collect()
    }

    /// Matrices that share one global scale.
    fn nvfp4(&mut self, names: &[String], rows: usize, cols: usize) {
        let values: Vec<Vec<f32>> = names.iter().map(|name| self.expert(name, rows, cols)).collect();
        let global = quantise::nvfp4_global(values.iter().flatten());
        for (name, values) in names.iter().zip(&values) {
            let (codes, scales) = quantise::nvfp4(values, global);
            self.push(&format!("{name}.weight"), Dtype::U8, &[rows, cols / 2], codes);
            self.push(&format!("{name}.weight_scale"), Dtype::F8_E4M3, &[rows, cols / 16], scales);
            self.push(&format!("{name}.weight_scale_2"), Dtype::F32, &[], global.to_le_bytes().to_vec());
        }
    }

    fn mxfp4(&mut self, name: &str, rows: usize, cols: usize) {
        let weight = format!("{name}.weight");
        let values = self.expert(name, rows, cols);
        let (codes, scales) = quantise::mxfp4(&values);
        self.push(&weight, Dtype::I8, &[rows, cols / 2], codes);
        self.push(&format!("{name}.scale"), Dtype::F8_E8M0, &[rows, cols / 32], scales);
    }

    /// `k` distinct experts for every token id, drawn without replacement.
    fn expert_table(&mut self, name: &str, vocab: usize, experts: usize, k: usize) {
        let mut random = Stream::new(self.seed, name);
        let mut bytes = Vec::with_capacity(vocab * k * 8);
        for _ in 0..vocab {
            let mut left: Vec<i64> = (0..experts as i64).collect();
            for _ in 0..k {
                let expert = left.swap_remove(random.below(left.len()));
                bytes.extend(expert.to_le_bytes());
            }
        }
        self.push(name, Dtype::I64, &[vocab, k], bytes);
    }

    fn values(
        &self,
        name: &str,
        shape: &[usize],
        mut value: impl FnMut(&mut Stream, usize) -> f32,
    ) -> impl Iterator<Item = f32> {
        let mut random = Stream::new(self.seed, name);
        (0..shape.iter().product()).map(move |i| value(&mut random, i))
    }

    fn push(&mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) {
        self.tensors.push(Tensor { name: name.to_owned(), dtype, shape: shape.to_vec(), bytes });
    }
}

/// 1/sqrt(fan_in); the square root is correctly rounded everywhere.
fn gain(fan_in: usize) -> f32 {
    1.0 / (fan_in as f32).sqrt()
}
