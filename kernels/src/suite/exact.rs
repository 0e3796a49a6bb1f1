//! The three operations in f64 on the CPU, from the formulas, for small shapes.

use super::numbers::{from_bf16, to_bf16};

fn dot(a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> f64 {
    a.zip(b).map(|(x, y)| x * y).sum()
}

/// Mixes [tokens, 24] of mHC (spec 2.3).
pub(super) fn mixes(x: &[u16], weight: &[f32], width: usize) -> Vec<f64> {
    let row = |t: usize| x[t * width..][..width].iter().map(|b| f64::from(from_bf16(*b)));
    let mut out = Vec::new();
    for t in 0..x.len() / width {
        let mean = dot(row(t), row(t)) / width as f64 + f64::from(1e-6_f32);
        out.extend(weight.chunks(width).map(|w| dot(row(t), w.iter().map(|v| f64::from(*v))) / mean.sqrt()));
    }
    out
}

/// Coefficients of one token from its 24 mixes (spec 2.3): pre, post, comb.
pub(super) fn coefficients(m: &[f64], base: &[f32], scale: &[f32], iterations: u32) -> Vec<f64> {
    let eps = f64::from(1e-6_f32);
    let at = |i: usize, s: usize| m[i] * f64::from(scale[s]) + f64::from(base[i]);
    let mut out: Vec<f64> = (0..4).map(|i| 1.0 / (1.0 + (-at(i, 0)).exp()) + eps).collect();
    out.extend((4..8).map(|i| 2.0 / (1.0 + (-at(i, 1)).exp())));
    let mut c: Vec<f64> = (8..24).map(|i| at(i, 2)).collect();
    for row in c.chunks_mut(4) {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        row.iter_mut().for_each(|v| *v = (*v - top).exp());
        let sum: f64 = row.iter().sum();
        row.iter_mut().for_each(|v| *v = *v / sum + eps);
    }
    for i in 0..iterations {
        if i > 0 {
            for row in c.chunks_mut(4) {
                let sum: f64 = row.iter().sum::<f64>() + eps;
                row.iter_mut().for_each(|v| *v /= sum);
            }
        }
        for k in 0..4 {
            let sum: f64 = (0..4).map(|j| c[4 * j + k]).sum::<f64>() + eps;
            (0..4).for_each(|j| c[4 * j + k] /= sum);
        }
    }
    out.extend(c);
    out
}

/// Output [64, 512] of one sequence of sparse MLA (spec 2.9); `chosen` has rows of the cache, or -1.
pub(super) fn mla(q: &[u16], cache: &[u16], chosen: &[i32], sink: &[f32]) -> Vec<f64> {
    let wide = |bits: &[u16]| -> Vec<f64> { bits.iter().map(|b| f64::from(from_bf16(*b))).collect() };
    let keys: Vec<Vec<f64>> =
        chosen.iter().filter(|c| **c >= 0).map(|c| wide(&cache[*c as usize * 512..][..512])).collect();
    let mut out = Vec::new();
    for (head, sink) in q.chunks(512).zip(sink) {
        let head = wide(head);
        let mut den = f64::from(*sink).exp();
        let mut sum = vec![0.0; 512];
        for key in &keys {
            let p = (dot(head.iter().copied(), key.iter().copied()) / 512.0_f64.sqrt()).exp();
            den += p;
            sum.iter_mut().zip(key).for_each(|(s, v)| *s += p * v);
        }
        out.extend(sum.iter().map(|s| s / den));
    }
    out
}

/// Product [m, n] of a [m, k] and w [n, k].
pub(super) fn gemm(a: &[f32], w: &[u16], k: usize) -> Vec<f64> {
    let mut out = Vec::new();
    for a in a.chunks(k) {
        out.extend(
            w.chunks(k).map(|w| dot(a.iter().map(|v| f64::from(*v)), w.iter().map(|b| f64::from(from_bf16(*b))))),
        );
    }
    out
}

/// Value of an E4M3 code, by its fields.
fn e4m3(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    let value = if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2.0_f64.powi(exponent - 7) };
    if code & 128 == 0 { value } else { -value }
}

/// Index scores of the visible keys of all sequences (spec 2.8); `rounded`: each q.k is rounded to bf16.
pub(super) fn index(host: &super::index::Host, page: usize, table_pages: usize, rounded: bool) -> Vec<f64> {
    let mut out = Vec::new();
    for (s, visible) in host.visible.iter().enumerate() {
        for key in 0..*visible as usize {
            let slot = host.table[s * table_pages + key / page] as usize * page + key % page;
            let mut sum = 0.0;
            for h in s * 64..(s + 1) * 64 {
                let codes = |of: &[u8], at: usize| of[at * 128..][..128].iter().map(|c| e4m3(*c)).collect::<Vec<_>>();
                let product = dot(codes(&host.q, h).into_iter(), codes(&host.keys, slot).into_iter());
                let product = if rounded { f64::from(from_bf16(to_bf16(product as f32))) } else { product };
                sum += product.max(0.0) * f64::from(host.weight[h] * host.q_scale[h]);
            }
            out.push(sum * f64::from(host.key_scale[slot]));
        }
    }
    out
}

/// Sums over the routed experts (spec 2.11), nothing rounded.
pub(super) fn experts(host: &super::moe::Host) -> Vec<f64> {
    let [experts, picks, width, inner] = host.sizes.map(|n| n as usize);
    let row = |matrix: usize, expert: usize, row: usize| -> Vec<f64> {
        let (m, rows, columns) =
            (&host.matrices[matrix], if matrix < 2 { inner } else { width }, if matrix < 2 { width } else { inner });
        let at = (expert * rows + row) * columns;
        let scale = |c: usize| {
            let byte = m.scales[(at + c) / host.block];
            if host.block == 32 {
                2.0_f64.powi(i32::from(byte) - 127)
            } else {
                e4m3(byte) * f64::from(m.global[expert])
            }
        };
        let value = |c: usize| {
            let code = m.codes[usize::midpoint(at, c)] >> (c % 2 * 4);
            let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
            if code & 8 == 0 { size } else { -size }
        };
        (0..columns).map(|c| value(c) * scale(c)).collect()
    };
    let limit = f64::from(host.limit);
    let mut out = vec![0.0; host.x.len()];
    for (slot, expert) in host.expert.iter().enumerate() {
        if *expert < 0 || *expert as usize >= experts {
            continue;
        }
        let expert = *expert as usize;
        let token = slot / picks;
        let x: Vec<f64> = host.x[token * width..][..width].iter().map(|b| f64::from(from_bf16(*b))).collect();
        let times = |m: usize, r: usize, x: &[f64]| dot(x.iter().copied(), row(m, expert, r).into_iter());
        let act: Vec<f64> = (0..inner)
            .map(|r| {
                let (gate, up) = (times(0, r, &x).min(limit), times(1, r, &x).clamp(-limit, limit));
                gate / (1.0 + (-gate).exp()) * up * f64::from(host.weight[slot])
            })
            .collect();
        for r in 0..width {
            out[token * width + r] += times(2, r, &act);
        }
    }
    out
}

/// Entries of a compressor (spec 2.7), nothing rounded.
pub(super) fn entries(host: &super::compressor::Host) -> Vec<f64> {
    let wide = |bits: &[u16]| -> Vec<f64> { bits.iter().map(|b| f64::from(from_bf16(*b))).collect() };
    let (width, dims, ratio) = (host.width as usize, host.dims as usize, host.ratio as usize);
    let columns = dims * if host.overlap { 2 } else { 1 };
    let (x, w) = (wide(&host.x), wide(&host.w));
    let value = |token: usize, output: usize| {
        dot(x[token * width..][..width].iter().copied(), w[output * width..][..width].iter().copied())
    };
    let mut out = Vec::new();
    for window in 0..x.len() / width / ratio {
        let mut entry: Vec<f64> = (0..dims)
            .map(|d| {
                // (token, column): the window before in series 0, this one in the last series.
                let own = if host.overlap { dims + d } else { d };
                let before = (host.overlap && window > 0).then(|| (window - 1) * ratio..window * ratio);
                let slots: Vec<(usize, usize)> = before
                    .into_iter()
                    .flatten()
                    .map(|t| (t, d))
                    .chain((window * ratio..(window + 1) * ratio).map(|t| (t, own)))
                    .collect();
                let z = |(t, c): &(usize, usize)| value(*t, columns + c) + f64::from(host.ape[t % ratio * columns + c]);
                let e: Vec<f64> = slots.iter().map(|s| z(s).exp()).collect();
                let pooled = dot(e.iter().copied(), slots.iter().map(|(t, c)| value(*t, *c)));
                pooled / e.iter().sum::<f64>()
            })
            .collect();
        let mean = entry.iter().map(|v| v * v).sum::<f64>() / dims as f64 + f64::from(1e-6_f32);
        entry.iter_mut().zip(&host.norm).for_each(|(v, w)| *v *= f64::from(*w) / mean.sqrt());
        let rope = host.rope as usize;
        for pair in 0..rope / 2 {
            let at = dims - rope + 2 * pair;
            let turn = &host.turns[(window * rope / 2 + pair) * 2..][..2];
            let (c, s, even, odd) = (f64::from(turn[0]), f64::from(turn[1]), entry[at], entry[at + 1]);
            entry[at] = even * c - odd * s;
            entry[at + 1] = even * s + odd * c;
        }
        out.extend(entry);
    }
    out
}
