//! Kernels as plain loops: sums in f64 in order, rounded where the contracts say. Nothing of them is the optimized path's.

use karat_model::{Checkpoint, Result};
use karat_optimized::{Accumulation, Attending, Kernel, Kernels, Mix, Projecting, Routed, Scoring, Store};

/// What is wrong with them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    None,
    /// The last key of a query is not read.
    LostKey,
    /// The key's scale is left out.
    ScaleOnce,
    /// Up is not clamped from below.
    NoClamp,
}

#[derive(Debug)]
pub(super) struct Naive {
    pub(super) fault: Fault,
    pub(super) accumulation: Accumulation,
}

fn bf16(v: f64) -> f64 {
    let bits = (v as f32).to_bits();
    f64::from(f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000))
}

fn wide(v: &[f32]) -> Vec<f64> {
    v.iter().map(|v| f64::from(*v)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn sigmoid(v: f64) -> f64 {
    1.0 / (1.0 + (-v).exp())
}

/// bf16 or f32 values of a weight.
fn plain(checkpoint: &Checkpoint, name: &str) -> Vec<f64> {
    let weight = checkpoint.linear(name).unwrap();
    let value = |b: &[u8]| match b.len() {
        2 => f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16),
        _ => f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
    };
    let size = weight.data.bytes.len() / (weight.rows * weight.cols);
    weight.data.bytes.chunks_exact(size).map(|b| bf16(f64::from(value(b)))).collect()
}

/// E2M1 codes with their E8M0 scales.
fn experts(checkpoint: &Checkpoint, name: &str) -> Vec<f64> {
    const VALUES: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let weight = checkpoint.linear(name).unwrap();
    let codes = weight.data.bytes.iter().flat_map(|b| [b & 15, b >> 4]);
    let scales = weight.scale.as_ref().unwrap().bytes;
    let value = |(i, code): (usize, u8)| {
        let sign = if code & 8 == 0 { 1.0 } else { -1.0 };
        sign * VALUES[usize::from(code & 7)] * f64::exp2(f64::from(scales[i / 32]) - 127.0)
    };
    codes.enumerate().map(value).collect()
}

impl Kernels for Naive {
    fn accumulation(&self) -> Accumulation {
        self.accumulation.clone()
    }

    fn name(&self) -> String {
        "plain loops".to_string()
    }

    fn identity(&self) -> String {
        format!("naive {:?}", self.fault)
    }

    fn lacks(&self, _: Kernel, _: &Checkpoint) -> Option<String> {
        None
    }

    fn mix(&self, it: Mix<'_>) -> Result<Vec<f32>> {
        let (hc, width) = (it.hc, it.weight.len() / it.base.len());
        let term = |v: f64| {
            let mut rest = v;
            (0..it.terms)
                .map(|_| {
                    let t = bf16(rest);
                    rest -= t;
                    t
                })
                .sum::<f64>()
        };
        let weight: Vec<f64> = wide(it.weight).into_iter().map(term).collect();
        let mut out = Vec::new();
        for x in wide(it.x).chunks_exact(width) {
            let r = 1.0 / (dot(x, x) / width as f64 + 1e-6).sqrt();
            let m: Vec<f64> = weight
                .chunks_exact(width)
                .enumerate()
                .map(|(i, w)| dot(x, w) * r * f64::from(it.scale[(i / hc).min(2)]) + f64::from(it.base[i]))
                .collect();
            out.extend(m[..hc].iter().map(|v| (sigmoid(*v) + 1e-6) as f32));
            out.extend(m[hc..2 * hc].iter().map(|v| (2.0 * sigmoid(*v)) as f32));
            let mut c: Vec<Vec<f64>> = m[2 * hc..].chunks_exact(hc).map(<[f64]>::to_vec).collect();
            for row in &mut c {
                let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                row.iter_mut().for_each(|v| *v = (*v - top).exp());
                let sum: f64 = row.iter().sum();
                row.iter_mut().for_each(|v| *v = *v / sum + 1e-6);
            }
            for i in 0..it.iterations {
                for row in c.iter_mut().filter(|_| i > 0) {
                    let sum: f64 = row.iter().sum();
                    row.iter_mut().for_each(|v| *v /= sum + 1e-6);
                }
                for k in 0..hc {
                    let sum: f64 = c.iter().map(|row| row[k]).sum();
                    c.iter_mut().for_each(|row| row[k] /= sum + 1e-6);
                }
            }
            out.extend(c.iter().flatten().map(|v| *v as f32));
        }
        Ok(out)
    }

    fn attend(&self, it: Attending<'_>) -> Result<(Vec<f32>, Vec<f32>)> {
        let (hd, heads) = (it.width, it.sink.len());
        let (mut out, mut lse) = (Vec::new(), Vec::new());
        for (query, q) in wide(it.q).chunks_exact(heads * hd).enumerate() {
            let mut keys = wide(&it.keys[it.from[query] * hd..it.from[query + 1] * hd]);
            if self.fault == Fault::LostKey && keys.len() > 4 * hd {
                keys.truncate(keys.len() - hd);
            }
            let tiles = (keys.len() / hd).div_ceil(it.rule.tile);
            let part = tiles.div_ceil(it.rule.splits) * it.rule.tile * hd;
            for (q, sink) in q.chunks_exact(hd).zip(wide(it.sink)) {
                let mut parts: Vec<(Vec<f64>, f64)> = Vec::new();
                for keys in keys.chunks(part) {
                    let (mut acc, mut den, mut top) = (vec![0.0; hd], 0.0, f64::NEG_INFINITY);
                    for tile in keys.chunks(it.rule.tile * hd) {
                        let scores: Vec<f64> = tile.chunks_exact(hd).map(|k| dot(q, k) / (hd as f64).sqrt()).collect();
                        let new = scores.iter().copied().fold(top, f64::max);
                        let keep = (top - new).exp();
                        acc.iter_mut().for_each(|v| *v *= keep);
                        den *= keep;
                        for (s, k) in scores.iter().zip(tile.chunks_exact(hd)) {
                            let p = (s - new).exp();
                            den += p;
                            acc.iter_mut().zip(k).for_each(|(v, k)| *v += bf16(p) * k);
                        }
                        top = new;
                    }
                    acc.iter_mut().for_each(|v| *v /= den);
                    if it.rule.partials == Store::Bf16 {
                        acc.iter_mut().for_each(|v| *v = bf16(*v));
                    }
                    parts.push((acc, top + den.ln()));
                }
                let top = parts.iter().map(|p| p.1).fold(sink, f64::max);
                let den = parts.iter().map(|p| (p.1 - top).exp()).sum::<f64>() + (sink - top).exp();
                let at = |d: usize| parts.iter().map(|p| (p.1 - top).exp() * p.0[d]).sum::<f64>() / den;
                out.extend((0..hd).map(|d| bf16(at(d)) as f32));
                lse.push((top + den.ln()) as f32);
            }
        }
        Ok((out, lse))
    }

    fn index_scores(&self, it: Scoring<'_>) -> Result<Vec<f32>> {
        let (total, heads) = (it.key_scales.len(), it.heads);
        let di = it.keys.len() / total;
        let (q, keys) = (wide(it.q), wide(it.keys));
        let mut out = Vec::new();
        for (s, visible) in it.visible.iter().enumerate() {
            for t in 0..total {
                let one = |h: usize| {
                    let at = (s * heads + h) * di;
                    let p = dot(&q[at..at + di], &keys[t * di..(t + 1) * di]).max(0.0);
                    p * f64::from(it.weights[s * heads + h]) * f64::from(it.q_scales[s * heads + h])
                };
                let scale = if self.fault == Fault::ScaleOnce { 1.0 } else { f64::from(it.key_scales[t]) };
                let score = (0..heads).map(one).sum::<f64>() * scale;
                out.push(if t < *visible { score as f32 } else { f32::NEG_INFINITY });
            }
        }
        Ok(out)
    }

    fn select(&self, scores: &[f32], visible: &[usize], topk: usize) -> Result<Vec<Vec<u32>>> {
        let width = scores.len() / visible.len();
        let best = |(row, n): (&[f32], &usize)| {
            let mut order: Vec<u32> = (0..*n as u32).collect();
            order.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b)));
            order.truncate(topk);
            order.sort_unstable();
            order
        };
        Ok(scores.chunks_exact(width).zip(visible).map(best).collect())
    }

    fn experts_up(&self, it: Routed<'_>) -> Result<Vec<f32>> {
        let config = it.checkpoint.config();
        let (d, limit) = (config.hidden_size, config.swiglu_limit);
        let x = wide(it.x);
        let mut out = Vec::new();
        for (slot, (e, wt)) in it.idx.iter().zip(it.wt).enumerate() {
            let [w1, w3] = ["w1", "w3"].map(|w| experts(it.checkpoint, &format!("{}.{e}.{w}", it.prefix)));
            let x = &x[slot / it.k * d..(slot / it.k + 1) * d];
            for (g, u) in w1.chunks_exact(d).zip(w3.chunks_exact(d)) {
                let (g, u) = (bf16(dot(x, g)).min(limit), bf16(dot(x, u)).min(limit));
                let u = if self.fault == Fault::NoClamp { u } else { u.max(-limit) };
                out.push(bf16(g * sigmoid(g) * u * f64::from(*wt)) as f32);
            }
        }
        Ok(out)
    }

    fn experts_down(&self, it: Routed<'_>, act: &[f32]) -> Result<Vec<f32>> {
        let config = it.checkpoint.config();
        let (d, inner) = (config.hidden_size, config.moe_intermediate_size);
        let act = wide(act);
        let mut out = Vec::new();
        for row in 0..it.idx.len() / it.k {
            let mut slots: Vec<usize> = (row * it.k..(row + 1) * it.k).collect();
            slots.sort_by_key(|slot| it.idx[*slot]);
            let mut sum = vec![0.0_f64; d];
            for slot in slots {
                let w2 = experts(it.checkpoint, &format!("{}.{}.w2", it.prefix, it.idx[slot]));
                let act = &act[slot * inner..(slot + 1) * inner];
                sum.iter_mut().zip(w2.chunks_exact(inner)).for_each(|(y, w)| *y += bf16(dot(act, w)));
            }
            out.extend(sum.iter().map(|v| *v as f32));
        }
        Ok(out)
    }

    fn project(&self, it: Projecting<'_>) -> Result<(Vec<f32>, Vec<f32>)> {
        let d = it.checkpoint.config().hidden_size;
        let x = wide(it.x);
        let rows = |name: &str| -> Vec<f32> {
            let w = plain(it.checkpoint, &format!("{}.{name}", it.prefix));
            let store = |v: f64| if it.rows == Store::Bf16 { bf16(v) as f32 } else { v as f32 };
            x.chunks_exact(d).flat_map(|x| w.chunks_exact(d).map(|w| store(dot(x, w))).collect::<Vec<_>>()).collect()
        };
        Ok((rows("wkv"), rows("wgate")))
    }
}
