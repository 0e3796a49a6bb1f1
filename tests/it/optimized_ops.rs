//! Every op of stock `official` against an f64 evaluation of its formula with the same storage points (spec 2), on
//! seeded operands: within one bf16 place. The formulas and the decoders below are written from the spec, in f64.

use karat_model::Checkpoint;
use karat_model::checkpoint::{Dtype, Encoding};
use karat_optimized::{History, Stock};
use karat_seam::{Layer, Op, Path, Requests, RowId, Sequence, Tap, Tensor};

use crate::optimized_drive::{ids, optimized, tiny};

pub(crate) const D: usize = 128;
pub(crate) const HD: usize = 96;
pub(crate) const DI: usize = 64;

/// The nearest bf16 value, ties to even.
pub(crate) fn b(x: f64) -> f64 {
    if x == 0.0 {
        return 0.0;
    }
    let ulp = ulp(x);
    (x / ulp).round_ties_even() * ulp
}

/// Distance of bf16 numbers around x.
fn ulp(x: f64) -> f64 {
    if x == 0.0 {
        return 0.0;
    }
    2f64.powi(x.abs().log2().floor() as i32 - 7)
}

pub(crate) fn e4m3(code: u8) -> f64 {
    let (e, m) = (i32::from((code >> 3) & 15), f64::from(code & 7));
    let v = if e == 0 { m / 512.0 } else { (1.0 + m / 8.0) * 2f64.powi(e - 7) };
    if code < 128 { v } else { -v }
}

/// Nearest value of a grid of non-negative numbers, ties to the even index.
pub(crate) fn nearest(grid: &[f64], x: f64) -> f64 {
    let a = x.abs();
    let i = grid.iter().enumerate().fold(0, |best, (i, g)| {
        let (d, old) = ((g - a).abs(), (grid[best] - a).abs());
        if d < old || (d == old && i % 2 == 0) { i } else { best }
    });
    grid[i].copysign(x)
}

/// Power-of-two block quantisation to a grid (spec 2.12).
pub(crate) fn quantised(x: &[f64], block: usize, grid: &[f64], floor: f64) -> Vec<f64> {
    let top = grid[grid.len() - 1];
    x.chunks(block)
        .flat_map(|x| {
            let a = x.iter().fold(floor, |a, v| a.max(v.abs()));
            let s = 2f64.powi((a / top).log2().ceil() as i32);
            x.iter().map(move |v| nearest(grid, (v / s).clamp(-top, top)) * s).collect::<Vec<_>>()
        })
        .collect()
}

pub(crate) fn q8(x: &[f64], block: usize) -> Vec<f64> {
    let grid: Vec<f64> = (0..0x7f).map(e4m3).collect();
    quantised(x, block, &grid, 1e-4)
}

pub(crate) fn q4(x: &[f64]) -> Vec<f64> {
    quantised(x, 32, &[0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], 6.0 * 2f64.powi(-126))
}

/// A weight in f64, rows first.
pub(crate) fn weight(c: &Checkpoint, name: &str) -> Vec<Vec<f64>> {
    let w = c.linear(name).unwrap();
    let fp4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let code = |r: usize, k: usize| match w.data.dtype {
        Dtype::F8E4M3 => e4m3(w.data.bytes[r * w.cols + k]),
        Dtype::Bf16 => {
            let at = 2 * (r * w.cols + k);
            f64::from(half::bf16::from_le_bytes([w.data.bytes[at], w.data.bytes[at + 1]]))
        }
        Dtype::Packed4 => {
            let nibble = (w.data.bytes[(r * w.cols + k) / 2] >> (4 * (k % 2))) & 15;
            fp4[usize::from(nibble & 7)] * if nibble < 8 { 1.0 } else { -1.0 }
        }
        other => panic!("{name}: {other:?}"),
    };
    let exponent = |i: usize| 2f64.powi(i32::from(w.scale.as_ref().unwrap().bytes[i]) - 127);
    let scale = |r: usize, k: usize| match w.encoding {
        Encoding::Plain => 1.0,
        Encoding::Fp8Block { block } => exponent(r / block[0] * w.cols.div_ceil(block[1]) + k / block[1]),
        Encoding::Mxfp4 => exponent(r * (w.cols / 32) + k / 32),
        Encoding::Nvfp4 => panic!("{name}: the tiny model has none"),
    };
    (0..w.rows).map(|r| (0..w.cols).map(|k| code(r, k) * scale(r, k)).collect()).collect()
}

pub(crate) fn plain(c: &Checkpoint, name: &str) -> Vec<f64> {
    let t = c.tensor(name).unwrap();
    match t.dtype {
        Dtype::F32 => t.bytes.chunks(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect(),
        Dtype::Bf16 => t.bytes.chunks(2).map(|b| f64::from(half::bf16::from_le_bytes([b[0], b[1]]))).collect(),
        other => panic!("{name}: {other:?}"),
    }
}

pub(crate) fn times(w: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
    w.iter().map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

pub(crate) fn stored(x: Vec<f64>) -> Vec<f64> {
    x.into_iter().map(b).collect()
}

/// FP8 (or FP4-weight) linear: Q8 activations, one rounding at the end.
pub(crate) fn lin(w: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
    stored(times(w, &q8(x, 128)))
}

fn rms_norm(x: &[f64], w: &[f64]) -> Vec<f64> {
    let r = (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64 + 1e-6).powf(-0.5);
    x.iter().zip(w).map(|(x, w)| b(w * x * r)).collect()
}

/// Rotation of the last 32 dims at f32 angles; YaRN with low 7 and high 13 (spec section 7) on compressed layers.
pub(crate) fn rope(x: &mut [f64], position: u32, compressed: bool, inverse: bool) {
    rope_as(x, position, compressed, inverse, |turn| f64::from(turn as f32));
}

/// The same with sine and cosine as `turn` leaves them.
pub(crate) fn rope_as(x: &mut [f64], position: u32, compressed: bool, inverse: bool, turn: fn(f64) -> f64) {
    let start = x.len() - 32;
    for i in 0..16 {
        let base: f64 = if compressed { 160_000.0 } else { 10_000.0 };
        let mut f = 1.0 / base.powf((2 * i) as f64 / 32.0) as f32;
        if compressed {
            let g = 1.0 - ((i as f32 - 7.0) / 6.0).clamp(0.0, 1.0);
            f = f / 16.0 * (1.0 - g) + f * g;
        }
        let angle = f64::from(position as f32 * f);
        let (sin, cos) = (turn(angle.sin()), turn(angle.cos()));
        let sin = if inverse { -sin } else { sin };
        let (e, o) = (x[start + 2 * i], x[start + 2 * i + 1]);
        x[start + 2 * i] = b(e * cos - o * sin);
        x[start + 2 * i + 1] = b(e * sin + o * cos);
    }
}

pub(crate) fn hadamard(x: &[f64]) -> Vec<f64> {
    let sign = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    let n = x.len();
    (0..n).map(|i| b((0..n).map(|j| sign(i, j) * x[j]).sum::<f64>() / (n as f64).sqrt())).collect()
}

pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Seeded operand of bf16 values, roughly normal with deviation `size`.
pub(crate) fn operand(rows: usize, tail: &[usize], size: f64, seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut uniform = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    };
    let n = rows * tail.iter().product::<usize>();
    let values = (0..n).map(|_| b((0..12).map(|_| uniform()).sum::<f64>() * size) as f32).collect();
    Tensor::f32([&[rows], tail].concat(), values)
}

pub(crate) fn row(t: &Tensor, r: usize) -> Vec<f64> {
    let w = t.width();
    t.as_f32("operand").unwrap()[r * w..(r + 1) * w].iter().map(|v| f64::from(*v)).collect()
}

/// The op's results on `rows` rows.
pub(crate) fn run(layer: &dyn Layer, op: Op, operands: &[(Tap, &Tensor)], rows: usize) -> Vec<Tensor> {
    let ids: Vec<RowId> = (0..rows as u32).map(|p| RowId::new(0, p)).collect();
    let operands: Vec<(Tap, Tensor)> = operands.iter().map(|(t, v)| (*t, (*v).clone())).collect();
    layer.op(op, &operands, &ids).unwrap().into_iter().map(|(_, t)| t).collect()
}

/// Every value within `places` bf16 places of the formula.
fn within(what: &str, got: &Tensor, want: &[Vec<f64>], places: f64) {
    let (worst, row, element) = places_off(got, want);
    println!("{what}: {worst:.2e} places");
    assert!(worst <= places, "{what}: {worst} places at row {row} element {element}");
}

/// So many bf16 places is the worst value off the formula, and where: row, element.
pub(crate) fn places_off(got: &Tensor, want: &[Vec<f64>]) -> (f64, usize, usize) {
    assert_eq!(got.rows(), want.len());
    let mut worst = (0.0, 0, 0);
    for (r, want) in want.iter().enumerate() {
        for (i, (g, w)) in row(got, r).iter().zip(want).enumerate() {
            // Under a billionth of the row's largest value a place is noise of cancellation.
            let top = want.iter().fold(0f64, |a, v| a.max(v.abs()));
            let off = (g - w).abs() / ulp(*w).max(top * 2f64.powi(-20)).max(1e-30);
            if !(off <= worst.0) {
                worst = (off, r, i);
            }
        }
    }
    worst
}

/// An f32 result that is not stored: within 1e-6 of the row's largest value.
pub(crate) fn within_f32(what: &str, got: &Tensor, want: &[Vec<f64>]) {
    assert_eq!(got.rows(), want.len(), "{what}");
    for (r, want) in want.iter().enumerate() {
        let top = want.iter().fold(0f64, |a, v| a.max(v.abs()));
        let worst = row(got, r).iter().zip(want).fold(0f64, |a, (g, w)| a.max((g - w).abs()));
        assert!(worst <= 1e-6 * top, "{what}: row {r} is off by {worst:e} of {top:e}");
    }
}

pub(crate) const N: usize = 12;

fn with_layer(l: u16, rows: usize, test: impl Fn(&dyn Layer, &Checkpoint, &[u32])) {
    let ids = ids(rows, 21);
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids.clone())] };
    let path = optimized(Stock::Official, &[], History::Cold, requests);
    test(&*path.layer(l).unwrap(), &tiny(), &ids);
}

#[test]
fn mixing_ops_follow_the_formula() {
    with_layer(3, N, |layer, c, _| {
        let h = operand(N, &[4, D], 1.0, 1);
        let (fnw, base) = (plain(c, "layers.3.hc_attn_fn"), plain(c, "layers.3.hc_attn_base"));
        let scale = plain(c, "layers.3.hc_attn_scale");
        let got = run(layer, Op::HcAttnPre, &[(Tap::Out, &h)], N);
        let mut wants: [Vec<Vec<f64>>; 4] = Default::default();
        for r in 0..N {
            let f = row(&h, r);
            let rms = (f.iter().map(|v| v * v).sum::<f64>() / 512.0 + 1e-6).powf(-0.5);
            let m: Vec<f64> =
                fnw.chunks(512).map(|w| w.iter().zip(&f).map(|(a, b)| a * b).sum::<f64>() * rms).collect();
            let z = |i: usize| m[i] * scale[(i / 4).min(2)] + base[i];
            let pre: Vec<f64> = (0..4).map(|i| sigmoid(z(i)) + 1e-6).collect();
            let mut comb = [[0f64; 4]; 4];
            for j in 0..4 {
                let sum: f64 = (0..4).map(|k| z(8 + 4 * j + k).exp()).sum();
                (0..4).for_each(|k| comb[j][k] = z(8 + 4 * j + k).exp() / sum + 1e-6);
            }
            for i in 0..39 {
                for a in 0..4 {
                    let column = i % 2 == 0;
                    let at = |b: usize| if column { (b, a) } else { (a, b) };
                    let sum: f64 = (0..4).map(|b| comb[at(b).0][at(b).1]).sum::<f64>() + 1e-6;
                    (0..4).for_each(|b| comb[at(b).0][at(b).1] /= sum);
                }
            }
            wants[3].push((0..D).map(|d| b((0..4).map(|j| pre[j] * f[j * D + d]).sum())).collect());
            wants[0].push(pre);
            wants[1].push((4..8).map(|i| 2.0 * sigmoid(z(i))).collect());
            wants[2].push(comb.concat());
        }
        for (name, (got, want)) in ["pre", "post", "comb"].iter().zip(got.iter().zip(&wants)) {
            within_f32(&format!("hc_attn.{name}"), got, want);
        }
        within("hc_attn.collapsed", &got[3], &wants[3], 1.0);
        let (post, comb, y) = (operand(N, &[4], 0.5, 2), operand(N, &[4, 4], 0.3, 3), operand(N, &[D], 1.0, 4));
        let operands = [(Tap::Out, &h), (Tap::HcAttnPost, &post), (Tap::HcAttnComb, &comb), (Tap::AttnOut, &y)];
        let got = run(layer, Op::HcAttnPost, &operands, N);
        let want: Vec<Vec<f64>> = (0..N)
            .map(|r| {
                let (h, p, c, y) = (row(&h, r), row(&post, r), row(&comb, r), row(&y, r));
                let mix = |k: usize, d: usize| (0..4).map(|j| c[4 * j + k] * h[j * D + d]).sum::<f64>();
                (0..4 * D).map(|i| b(p[i / D] * y[i % D] + mix(i / D, i % D))).collect()
            })
            .collect();
        within("hc_attn.out", &got[0], &want, 1.0);
        let got = run(layer, Op::AttnNorm, &[(Tap::HcAttnCollapsed, &y)], N);
        let w = plain(c, "layers.3.attn_norm.weight");
        let want: Vec<Vec<f64>> = (0..N).map(|r| rms_norm(&row(&y, r), &w)).collect();
        within("attn.in", &got[0], &want, 1.0);
    });
}

#[test]
fn query_and_kv_ops_follow_the_formula() {
    for (l, compressed) in [(0, false), (3, true)] {
        with_layer(l, N, |layer, c, _| {
            let name = |n: &str| format!("layers.{l}.attn.{n}");
            let (x, qr) = (operand(N, &[D], 1.0, 5), operand(N, &[128], 1.0, 6));
            let w = weight(c, &name("wq_a"));
            let norm = plain(c, &name("q_norm.weight"));
            let want: Vec<Vec<f64>> = (0..N).map(|r| rms_norm(&lin(&w, &row(&x, r)), &norm)).collect();
            within("attn.qr", &run(layer, Op::QueryDown, &[(Tap::AttnIn, &x)], N)[0], &want, 1.0);

            let w = weight(c, &name("wq_b"));
            let want: Vec<Vec<f64>> = (0..N)
                .map(|r| {
                    let q = lin(&w, &row(&qr, r));
                    let heads = q.chunks(HD).flat_map(|q| {
                        let mean = b(q.iter().map(|v| b(v * v)).sum::<f64>() / HD as f64);
                        let scale = b(b(mean + 1e-6).powf(-0.5));
                        let mut q: Vec<f64> = q.iter().map(|v| b(v * scale)).collect();
                        rope(&mut q, r as u32, compressed, false);
                        q
                    });
                    heads.collect()
                })
                .collect();
            within("attn.q", &run(layer, Op::QueryUp, &[(Tap::AttnQr, &qr)], N)[0], &want, 1.0);

            let (w, norm) = (weight(c, &name("wkv")), plain(c, &name("kv_norm.weight")));
            let want: Vec<Vec<f64>> = (0..N)
                .map(|r| {
                    let mut kv = rms_norm(&lin(&w, &row(&x, r)), &norm);
                    rope(&mut kv, r as u32, compressed, false);
                    let nope = q8(&kv[..64], 64);
                    kv[..64].copy_from_slice(&nope);
                    kv
                })
                .collect();
            within("attn.kv", &run(layer, Op::KeyValue, &[(Tap::AttnIn, &x)], N)[0], &want, 1.0);
        });
    }
}

/// Softmax pooling over slots (rows of kvp, rows of z), norm and rope of one entry.
fn entry(slots: &[(&[f64], Vec<f64>)], norm: &[f64], position: u32) -> Vec<f64> {
    let pooled = (0..norm.len()).map(|d| {
        let den: f64 = slots.iter().map(|(_, z)| z[d].exp()).sum();
        b(slots.iter().map(|(k, z)| z[d].exp() / den * k[d]).sum())
    });
    let mut e = rms_norm(&pooled.collect::<Vec<_>>(), norm);
    rope(&mut e, position, true, false);
    e
}

#[test]
fn compressor_ops_follow_the_formula() {
    with_layer(3, N, |layer, c, _| {
        for (prefix, hd, ops, taps) in [
            ("compressor", HD, [Op::CompressProject, Op::CompressPool], [Tap::AttnKvp, Tap::AttnGateScore]),
            ("indexer.compressor", DI, [Op::IndexProject, Op::IndexPool], [Tap::AttnIndexKvp, Tap::AttnIndexGateScore]),
        ] {
            let name = |n: &str| format!("layers.3.attn.{prefix}.{n}");
            let x = operand(N, &[D], 1.0, 7);
            let got = run(layer, ops[0], &[(Tap::AttnIn, &x)], N);
            for (got, w) in got.iter().zip(["wkv", "wgate"]) {
                let w = weight(c, &name(w));
                let want: Vec<Vec<f64>> = (0..N).map(|r| times(&w, &row(&x, r))).collect();
                within_f32(&format!("{prefix} projection"), got, &want);
            }
            let (kvp, score) = (operand(N, &[2 * hd], 1.0, 8), operand(N, &[2 * hd], 1.0, 9));
            let got = run(layer, ops[1], &[(taps[0], &kvp), (taps[1], &score)], N);
            let (ape, norm) = (plain(c, &name("ape")), plain(c, &name("norm.weight")));
            let rows: Vec<(Vec<f64>, Vec<f64>)> = (0..N)
                .map(|p| {
                    let z = row(&score, p).iter().zip(&ape[p % 4 * 2 * hd..]).map(|(s, a)| s + a).collect();
                    (row(&kvp, p), z)
                })
                .collect();
            let want: Vec<Vec<f64>> = (0..N / 4)
                .map(|w| {
                    let own = rows[4 * w..4 * w + 4].iter().map(|(k, z)| (&k[hd..], z[hd..].to_vec()));
                    let before =
                        rows[(4 * w).saturating_sub(4)..4 * w].iter().map(|(k, z)| (&k[..hd], z[..hd].to_vec()));
                    let e = entry(&before.chain(own).collect::<Vec<_>>(), &norm, 4 * w as u32);
                    if hd == DI { q4(&hadamard(&e)) } else { [q8(&e[..64], 64), e[64..].to_vec()].concat() }
                })
                .collect();
            within(&format!("{prefix} entries"), &got[0], &want, 1.0);
        }
    });
    with_layer(2, 130, |layer, c, _| {
        let (kvp, score) = (operand(130, &[HD], 1.0, 10), operand(130, &[HD], 1.0, 11));
        let got = run(layer, Op::CompressPool, &[(Tap::AttnKvp, &kvp), (Tap::AttnGateScore, &score)], 130);
        let ape = plain(c, "layers.2.attn.compressor.ape");
        let rows: Vec<(Vec<f64>, Vec<f64>)> = (0..128)
            .map(|p| (row(&kvp, p), row(&score, p).iter().zip(&ape[p * HD..]).map(|(s, a)| s + a).collect()))
            .collect();
        let slots: Vec<(&[f64], Vec<f64>)> = rows.iter().map(|(k, z)| (k.as_slice(), z.clone())).collect();
        let e = entry(&slots, &plain(c, "layers.2.attn.compressor.norm.weight"), 0);
        within("ratio 128 entries", &got[0], &[[q8(&e[..64], 64), e[64..].to_vec()].concat()], 1.0);
    });
}

#[test]
fn indexer_ops_follow_the_formula() {
    let n = 100;
    with_layer(3, n, |layer, c, _| {
        let (qr, x) = (operand(n, &[128], 1.0, 12), operand(n, &[D], 1.0, 13));
        let w = weight(c, "layers.3.attn.indexer.wq_b");
        let want: Vec<Vec<f64>> = (0..n)
            .map(|r| {
                let q = lin(&w, &row(&qr, r));
                let heads = q.chunks(DI).flat_map(|q| {
                    let mut q = q.to_vec();
                    rope(&mut q, r as u32, true, false);
                    q4(&hadamard(&q))
                });
                heads.collect()
            })
            .collect();
        within("attn.index_q", &run(layer, Op::IndexQuery, &[(Tap::AttnQr, &qr)], n)[0], &want, 1.0);
        let w = weight(c, "layers.3.attn.indexer.weights_proj");
        let factor = 64f64.powf(-0.5) * 16f64.powf(-0.5);
        let want: Vec<Vec<f64>> =
            (0..n).map(|r| times(&w, &row(&x, r)).into_iter().map(|v| b(v * factor)).collect()).collect();
        within("attn.index_w", &run(layer, Op::IndexWeights, &[(Tap::AttnIn, &x)], n)[0], &want, 1.0);

        let (q, k, w) = (operand(n, &[16, DI], 1.0, 14), operand(25, &[DI], 1.0, 15), operand(n, &[16], 0.1, 16));
        let got = run(layer, Op::IndexScore, &[(Tap::AttnIndexQ, &q), (Tap::AttnIndexK, &k), (Tap::AttnIndexW, &w)], n);
        let selected = &run(layer, Op::Select, &[(Tap::AttnIndexScore, &got[0])], n)[0];
        for r in 0..n {
            let (q, w, got) = (row(&q, r), row(&w, r), row(&got[0], r));
            let visible = (r + 1) / 4;
            for t in 0..25 {
                let key = row(&k, t);
                let term = |h: usize| {
                    let dot: f64 = q[h * DI..(h + 1) * DI].iter().zip(&key).map(|(a, b)| a * b).sum();
                    b(b(dot).max(0.0) * w[h])
                };
                let want = b((0..16).map(term).sum());
                let right = if t < visible { (got[t] - want).abs() <= ulp(want) } else { got[t] == f64::NEG_INFINITY };
                assert!(right, "score of query {r}, entry {t}: {} against {want}", got[t]);
            }
            let marks = &selected.as_u8("selected").unwrap()[r * 25..(r + 1) * 25];
            let mut order: Vec<usize> = (0..visible).collect();
            order.sort_by(|a, b| got[*b].total_cmp(&got[*a]).then(a.cmp(b)));
            order.truncate(16);
            assert!((0..25).all(|t| (marks[t] == 1) == order.contains(&t)), "selection of query {r}");
        }
    });
}

#[test]
fn attention_ops_follow_the_formula() {
    let n = 140;
    with_layer(3, n, |layer, c, _| {
        let (q, kv, ckv) = (operand(n, &[4, HD], 1.0, 17), operand(n, &[HD], 1.0, 18), operand(35, &[HD], 1.0, 19));
        let marks: Vec<u8> = (0..n * 35).map(|i| u8::from(i % 35 < (i / 35 + 1) / 4 && i % 3 != 0)).collect();
        let selected = Tensor::u8([n, 35], marks.clone());
        let operands = [(Tap::AttnQ, &q), (Tap::AttnKv, &kv), (Tap::AttnCkv, &ckv), (Tap::AttnSelected, &selected)];
        let got = run(layer, Op::Attend, &operands, n);
        let sink = plain(c, "layers.3.attn.attn_sink");
        let (mut o, mut lse) = (Vec::new(), Vec::new());
        for r in 0..n {
            let window = (r.saturating_sub(127)..=r).map(|p| row(&kv, p));
            let entries = (0..35).filter(|e| marks[r * 35 + e] == 1).map(|e| row(&ckv, e));
            let keys: Vec<Vec<f64>> = window.chain(entries).collect();
            let (mut out, mut logs) = (Vec::new(), Vec::new());
            for (q, sink) in row(&q, r).chunks(HD).zip(&sink) {
                let dot = |k: &[f64]| q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>() * 96f64.powf(-0.5);
                let s: Vec<f64> = keys.iter().map(|k| dot(k)).collect();
                let max = s.iter().copied().fold(f64::MIN, f64::max);
                let den: f64 = s.iter().map(|s| (s - max).exp()).sum::<f64>() + (sink - max).exp();
                let p: Vec<f64> = s.iter().map(|s| b((s - max).exp())).collect();
                out.extend((0..HD).map(|d| b(p.iter().zip(&keys).map(|(p, k)| p * k[d]).sum::<f64>() / den)));
                logs.push(max + den.ln());
            }
            o.push(out);
            lse.push(logs);
        }
        within("attn.o", &got[0], &o, 1.0);
        within_f32("attn.lse", &got[1], &lse);
        let o = operand(N, &[4, HD], 1.0, 20);
        let w = weight(c, "layers.3.attn.wo_a");
        let want: Vec<Vec<f64>> = (0..N)
            .map(|r| {
                let mut o = row(&o, r);
                o.chunks_mut(HD).for_each(|h| rope(h, r as u32, true, true));
                stored((0..128).map(|i| times(&w[i..=i], &o[i / 64 * 192..(i / 64 + 1) * 192])[0]).collect())
            })
            .collect();
        let z = &run(layer, Op::OutputDown, &[(Tap::AttnO, &o)], N)[0];
        within("attn.oa", z, &want, 1.0);
        let w = weight(c, "layers.3.attn.wo_b");
        let want: Vec<Vec<f64>> = (0..N).map(|r| lin(&w, &row(z, r))).collect();
        within("attn.out", &run(layer, Op::OutputUp, &[(Tap::AttnOa, z)], N)[0], &want, 1.0);
    });
}

/// silu(min(g, 2)) * clamp(u, -2, 2) * wt, stored.
pub(crate) fn swiglu(g: &[f64], u: &[f64], wt: f64) -> Vec<f64> {
    let act = |(g, u): (&f64, &f64)| {
        let g = g.min(2.0);
        b(g * sigmoid(g) * u.clamp(-2.0, 2.0) * wt)
    };
    g.iter().zip(u).map(act).collect()
}

#[test]
fn expert_ops_follow_the_formula() {
    for l in [1u16, 3] {
        with_layer(l, N, |layer, c, ids| {
            let x = operand(N, &[D], 1.5, 22);
            let gate = weight(c, &format!("layers.{l}.ffn.gate"));
            let got = run(layer, Op::Route, &[(Tap::FfnIn, &x)], N);
            let logits: Vec<Vec<f64>> = (0..N).map(|r| times(&gate, &row(&x, r))).collect();
            within_f32("ffn.router_logits", &got[0], &logits);
            let idx = got[1].as_i64("idx").unwrap();
            for r in 0..N {
                let s: Vec<f64> = logits[r].iter().map(|v| v.exp().ln_1p().sqrt()).collect();
                let chosen: Vec<usize> = idx[3 * r..3 * r + 3].iter().map(|e| *e as usize).collect();
                if l == 1 {
                    let table = c.tensor("layers.1.ffn.gate.tid2eid").unwrap();
                    let at = |k: usize| 8 * (3 * ids[r] as usize + k);
                    let want: Vec<usize> = (0..3)
                        .map(|k| i64::from_le_bytes(table.bytes[at(k)..at(k) + 8].try_into().unwrap()) as usize)
                        .collect();
                    assert_eq!(chosen, want, "hash experts of row {r}");
                } else {
                    let bias = plain(c, "layers.3.ffn.gate.bias");
                    let mut order: Vec<usize> = (0..8).collect();
                    order.sort_by(|a, b| (s[*b] + bias[*b]).total_cmp(&(s[*a] + bias[*a])));
                    assert_eq!(chosen, order[..3], "experts of row {r}");
                }
                let sum: f64 = chosen.iter().map(|e| s[*e]).sum();
                for (e, wt) in chosen.iter().zip(row(&got[2], r)) {
                    assert!((wt - 1.5 * s[*e] / sum).abs() < 1e-6, "weight of row {r}");
                }
            }
            let operands = [(Tap::FfnIn, &x), (Tap::FfnIdx, &got[1]), (Tap::FfnWt, &got[2])];
            let experts = run(layer, Op::Experts, &operands, N);
            let (mut acts, mut sums) = (Vec::new(), Vec::new());
            for r in 0..N {
                let (mut act, mut sum) = (Vec::new(), vec![0f64; D]);
                for k in 0..3 {
                    let w = |which: &str| weight(c, &format!("layers.{l}.ffn.experts.{}.{which}", idx[3 * r + k]));
                    let wt = row(&got[2], r)[k];
                    let a = swiglu(&lin(&w("w1"), &row(&x, r)), &lin(&w("w3"), &row(&x, r)), wt);
                    // The sum is checked from the activations that the op wrote: two storage points apart.
                    let own = row(&experts[0], r)[k * 128..(k + 1) * 128].to_vec();
                    lin(&w("w2"), &own).iter().zip(&mut sum).for_each(|(o, s)| *s += o);
                    act.extend(a);
                }
                acts.push(act);
                sums.push(sum);
            }
            within("ffn.expert_act", &experts[0], &acts, 1.0);
            within("ffn.routed", &experts[1], &sums, 1.0);
            let w = |which: &str| weight(c, &format!("layers.{l}.ffn.shared_experts.{which}"));
            let want: Vec<Vec<f64>> = (0..N)
                .map(|r| lin(&w("w2"), &swiglu(&lin(&w("w1"), &row(&x, r)), &lin(&w("w3"), &row(&x, r)), 1.0)))
                .collect();
            let shared = &run(layer, Op::SharedExpert, &[(Tap::FfnIn, &x)], N)[0];
            within("ffn.shared", shared, &want, 1.0);
            let operands = [(Tap::FfnRouted, &experts[1]), (Tap::FfnShared, shared)];
            let want: Vec<Vec<f64>> = (0..N)
                .map(|r| row(&experts[1], r).iter().zip(row(shared, r)).map(|(a, s)| b(a + s)).collect())
                .collect();
            within("ffn.out", &run(layer, Op::CombineExperts, &operands, N)[0], &want, 1.0);
        });
    }
}
