//! A stock profile on the tiny checkpoint with all that it shows: operands to round, ops to run with and without a patch.

use std::cell::OnceCell;

use karat_model::checkpoint::Dtype;
use karat_optimized::{History, Optimized, Stock};
use karat_seam::{
    Block, Choices, Lane, Layer, LayerChoices, NoTaps, Op, Path, Recorder, Requests, Routing, Site, Streams, Tap,
    Tensor,
};

use super::rounding::{Rounding, bf16, cost, exact, rel_l2, rounded};
use crate::optimized_drive::{ids, optimized, record, tiny, turns};

/// 90 rows of prefill, 50 of decode.
pub(super) const DECODED: usize = 90;
const ROWS: usize = 140;
/// Layers of the deep run: those of the released model. The checkpoint's five come again and again.
pub(super) const DEPTH: usize = 43;

fn requests() -> Requests {
    Requests { seqs: vec![turns("a", ids(ROWS, 11), &[DECODED, ROWS - DECODED])] }
}

/// A path without patches.
pub(super) struct Control {
    pub(super) stock: Stock,
    path: Optimized,
    whole: Recorder,
    deep: OnceCell<Deep>,
}

/// The deep run without patches: decisions by step, and what came out.
struct Deep {
    decisions: Vec<LayerChoices>,
    out: Vec<f64>,
}

fn values(t: &Tensor) -> Vec<f64> {
    exact(t.as_f32("values").unwrap())
}

/// Values of the decode rows.
fn decoded(t: &Tensor) -> Vec<f64> {
    exact(&t.as_f32("values").unwrap()[DECODED * t.width()..])
}

/// A plain tensor of the checkpoint.
pub(super) fn plain(name: &str) -> Vec<f32> {
    let checkpoint = tiny();
    let raw = checkpoint.tensor(name).unwrap();
    match raw.dtype {
        Dtype::F32 => raw.bytes.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect(),
        Dtype::Bf16 => {
            let value = |c: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes(c.try_into().unwrap())) << 16);
            raw.bytes.chunks_exact(2).map(value).collect()
        }
        other => panic!("{name}: {other:?}"),
    }
}

/// What rounding a plain weight costs.
pub(super) fn weight(name: &str, cols: usize, how: Rounding) -> f64 {
    cost(&plain(name), cols, how)
}

impl Control {
    pub(super) fn new(stock: Stock) -> Self {
        let path = optimized(stock, &[], History::Cold, requests());
        let whole = record(&path);
        Self { stock, path, whole, deep: OnceCell::new() }
    }

    fn patched(&self, asked: &[&str]) -> Optimized {
        optimized(self.stock, asked, History::Cold, requests())
    }

    pub(super) fn tap(&self, l: u16, tap: Tap) -> Tensor {
        self.whole.get(Site::layer(l, tap), 0).unwrap().tensor.clone()
    }

    pub(super) fn values(&self, l: u16, tap: Tap) -> Vec<f32> {
        self.tap(l, tap).as_f32("tap").unwrap().to_vec()
    }

    /// What rounding a tap costs.
    pub(super) fn cost(&self, l: u16, tap: Tap, how: Rounding) -> f64 {
        let t = self.tap(l, tap);
        let width = t.shape[t.shape.len() - 1];
        cost(t.as_f32("tap").unwrap(), width, how)
    }

    /// The same for a tap of the head.
    pub(super) fn head_cost(&self, tap: Tap, how: impl Fn(usize) -> Rounding) -> f64 {
        let t = &self.whole.get(Site { block: Block::Head, tap }, 0).unwrap().tensor;
        cost(t.as_f32("head").unwrap(), t.width(), how(t.width()))
    }

    /// Streams that enter a layer.
    pub(super) fn input(&self, l: u16) -> Tensor {
        match l {
            0 => self.path.embed(&mut NoTaps).unwrap().data,
            l => self.tap(l - 1, Tap::Out),
        }
    }

    fn streams(&self, l: u16) -> Streams {
        Streams { data: self.input(l), ..self.path.embed(&mut NoTaps).unwrap() }
    }

    fn op(&self, path: &Optimized, l: u16, op: Op, tap: Tap) -> Tensor {
        let get = |t: &Tap| match t {
            Tap::Out => Some((*t, self.input(l))),
            _ => self.whole.get(Site::layer(l, *t), 0).map(|r| (*t, r.tensor.clone())),
        };
        let operands: Vec<_> = op.spec().reads.iter().filter_map(get).collect();
        let out = path.layer(l).unwrap().op(op, &operands, &requests().rows()).unwrap();
        out.into_iter().find(|(t, _)| *t == tap).unwrap().1
    }

    /// What an op writes into a tap under patches, on the control's operands.
    pub(super) fn op_with(&self, asked: &[&str], l: u16, op: Op, tap: Tap) -> Tensor {
        self.op(&self.patched(asked), l, op, tap)
    }

    /// rel-L2 that a patch adds at its op.
    pub(super) fn added(&self, asked: &str, l: u16, op: Op, tap: Tap) -> f64 {
        let patched = self.patched(&[asked]);
        rel_l2(&values(&self.op(&self.path, l, op, tap)), &values(&self.op(&patched, l, op, tap)))
    }

    /// The same over the decode rows.
    pub(super) fn added_in_decode(&self, asked: &str, l: u16, op: Op, tap: Tap) -> f64 {
        let patched = self.patched(&[asked]);
        rel_l2(&decoded(&self.op(&self.path, l, op, tap)), &decoded(&self.op(&patched, l, op, tap)))
    }

    /// The same for the mixes of mHC, which the sigmoid of `post` gives back.
    pub(super) fn added_mixes(&self, asked: &str, l: u16) -> f64 {
        let base = plain(&format!("layers.{l}.hc_attn_base"));
        let mixes = |path: &Optimized| -> Vec<f64> {
            let post = values(&self.op(path, l, Op::HcAttnPre, Tap::HcAttnPost));
            post.iter().enumerate().map(|(i, v)| (v / (2.0 - v)).ln() - f64::from(base[4 + i % 4])).collect()
        };
        rel_l2(&mixes(&self.path), &mixes(&self.patched(&[asked])))
    }

    /// The decode rows' index scores with patches, the indexer run as a whole.
    pub(super) fn scores(&self, asked: &[&str], l: u16) -> Vec<f64> {
        let mut recorder = Recorder::all();
        let path = self.patched(asked);
        path.layer(l).unwrap().run(&mut [Lane::new(&self.streams(l), &mut recorder)]).unwrap();
        decoded(&recorder.get(Site::layer(l, Tap::AttnIndexScore), 0).unwrap().tensor)
    }

    /// What rounding every q.k of the indexer to bf16 does to the decode rows' scores, in f64 on golden's operands.
    pub(super) fn rounded_products(&self, l: u16) -> f64 {
        let (q, k, w) = (self.tap(l, Tap::AttnIndexQ), self.tap(l, Tap::AttnIndexK), self.tap(l, Tap::AttnIndexW));
        let (heads, di) = (w.width(), k.width());
        let (q, k, w) = (values(&q), values(&k), values(&w));
        let mut scores = [Vec::new(), Vec::new()];
        for row in DECODED..ROWS {
            for key in k.chunks(di).take((row + 1) / 4) {
                let mut sums = [0.0; 2];
                for h in 0..heads {
                    let q = &q[(row * heads + h) * di..(row * heads + h + 1) * di];
                    let dot: f64 = q.iter().zip(key).map(|(a, b)| a * b).sum();
                    sums[0] += dot.max(0.0) * w[row * heads + h];
                    sums[1] += bf16(dot).max(0.0) * w[row * heads + h];
                }
                scores.iter_mut().zip(sums).for_each(|(s, v)| s.push(v));
            }
        }
        rel_l2(&scores[0], &scores[1])
    }

    pub(super) fn added_logits(&self, asked: &str) -> f64 {
        let x = self.streams(5);
        let logits = |path: &Optimized| values(&path.head(&mut [Lane::new(&x, &mut NoTaps)]).unwrap().remove(0));
        rel_l2(&logits(&self.path), &logits(&self.patched(&[asked])))
    }

    /// Attention of the decode rows of a layer in f64, its operands rounded: queries, keys, and P.
    pub(super) fn attention(&self, l: u16, unrotated: Rounding, p: fn(f64) -> f64) -> f64 {
        let (hd, heads, nope) = (96, 4, 64);
        let round = |x: &[f32]| -> Vec<f64> {
            let blocks = |row: &[f32]| {
                let mut out = rounded(&row[..nope], nope, unrotated);
                out.extend(row[nope..].iter().map(|v| bf16(f64::from(*v))));
                out
            };
            x.chunks(hd).flat_map(blocks).collect()
        };
        let (q, kv) = (self.values(l, Tap::AttnQ), self.values(l, Tap::AttnKv));
        let sink = exact(&plain(&format!("layers.{l}.attn.attn_sink")));
        let run = |q: &[f64], kv: &[f64], p: &dyn Fn(f64) -> f64| -> Vec<f64> {
            let mut out = Vec::new();
            for row in DECODED..ROWS {
                let keys = &kv[row.saturating_sub(127) * hd..(row + 1) * hd];
                for h in 0..heads {
                    let q = &q[(row * heads + h) * hd..(row * heads + h + 1) * hd];
                    let dot = |k: &[f64]| q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>() / (hd as f64).sqrt();
                    let s: Vec<f64> = keys.chunks(hd).map(dot).collect();
                    let max = s.iter().copied().fold(f64::MIN, f64::max);
                    let e: Vec<f64> = s.iter().map(|s| (s - max).exp()).collect();
                    let den = e.iter().sum::<f64>() + (sink[h] - max).exp();
                    let value = |d: usize| e.iter().zip(keys.chunks(hd)).map(|(e, k)| p(*e) * k[d]).sum::<f64>() / den;
                    out.extend((0..hd).map(value));
                }
            }
            out
        };
        let want = run(&exact(&q), &exact(&kv), &|p| p);
        rel_l2(&want, &run(&round(&q), &round(&kv), &p))
    }

    /// rel-L2 of the decode rows' streams after 43 layers, every layer with the patch. Experts are chosen as without it;
    /// entries too, unless the patch can only show in what it selects.
    pub(super) fn at_depth(&self, asked: &str, selects: bool) -> f64 {
        let deep = self.deep.get_or_init(|| self.deep_run(&self.path, None, false));
        rel_l2(&deep.out, &self.deep_run(&self.patched(&[asked]), Some(deep), selects).out)
    }

    fn deep_run(&self, path: &Optimized, forced: Option<&Deep>, selects: bool) -> Deep {
        let layers: Vec<Box<dyn Layer>> = (0..5).map(|l| path.layer(l).unwrap()).collect();
        let mut x = self.streams(0);
        let mut decisions = Vec::new();
        for step in 0..DEPTH {
            let l = step % 5;
            let mut seen = Recorder::new(|site| matches!(site.tap, Tap::FfnIdx | Tap::AttnSelected));
            let mut choices = Choices::default();
            let mut lane = Lane::new(&x, &mut seen);
            if let Some(deep) = forced {
                let mut decisions = deep.decisions[step].clone();
                if selects {
                    decisions.entries.clear();
                }
                choices.by_layer.insert((l as u16, 0), decisions);
                lane.routing = Routing::Forced(&choices);
            }
            let mut lanes = [lane];
            layers[l].run(&mut lanes).unwrap();
            let out = lanes[0].out.take().unwrap().streams;
            decisions.push(taken(&seen, l as u16));
            x = out;
        }
        Deep { decisions, out: decoded(&x.data) }
    }
}

/// Decisions of one layer as a recorder saw them.
fn taken(seen: &Recorder, l: u16) -> LayerChoices {
    let get = |tap| seen.get(Site::layer(l, tap), 0).map(|r| &r.tensor);
    let experts = get(Tap::FfnIdx).unwrap().as_i64("idx").unwrap().iter().map(|e| *e as u32).collect();
    let entries = get(Tap::AttnSelected).map_or(Vec::new(), |t| {
        let marks = t.as_u8("selected").unwrap().chunks(t.width().max(1));
        marks.map(|m| (0..m.len() as u32).filter(|e| m[*e as usize] == 1).collect()).collect()
    });
    LayerChoices { experts, entries }
}
