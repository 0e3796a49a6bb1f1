//! The disagreements D1 to D14 of spec section 8, each as a test: what a stock profile says of a row is what its op does, by
//! a formula in f64 with the same storage points, and what the other side of the disagreement does is told apart.

use karat_model::Checkpoint;
use karat_optimized::{History, Stock};
use karat_seam::{Lane, Layer, NoTaps, Op, Path, Requests, Sequence, Streams, Tap, Tensor};

use crate::optimized_drive::{ids, optimized, tiny};
use crate::optimized_ops::{
    D, DI, HD, N, b, e4m3, hadamard, lin, nearest, operand, places_off, plain, q4, q8, quantised, rope, rope_as, row,
    run, sigmoid, stored, swiglu, times, weight, within_f32,
};

const ENGINES: [Stock; 4] = [Stock::Official, Stock::Sglang, Stock::SglangSm120, Stock::Vllm];

type Rows = Vec<Vec<f64>>;

fn with(stock: Stock, l: u16, rows: usize, test: impl FnOnce(&dyn Layer, &Checkpoint)) {
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids(rows, 21))] };
    let path = optimized(stock, &[], History::Cold, requests);
    test(&*path.layer(l).unwrap(), &tiny());
}

/// An operand whose values are no bf16 numbers.
fn rough(rows: usize, tail: &[usize], size: f64, seed: u64) -> Tensor {
    let t = operand(rows, tail, size, seed);
    let values = t.as_f32("operand").unwrap().iter().map(|v| v / 3.0).collect();
    Tensor::f32(t.shape.clone(), values)
}

/// The op does as the profile says and not as the other side does: by more than a bf16 place.
fn is(what: &str, got: &Tensor, said: &Rows, other: &Rows) {
    let (off, other) = (places_off(got, said), places_off(got, other));
    assert!(off.0 <= 1.0, "{what}: {} places at row {}, element {}", off.0, off.1, off.2);
    assert!(other.0 > 1.0, "{what}: the other side can't be told apart");
}

fn per_row(n: usize, f: impl Fn(usize) -> Vec<f64>) -> Rows {
    (0..n).map(f).collect()
}

#[test]
fn d1_post_and_comb_are_not_rounded() {
    for stock in ENGINES {
        with(stock, 3, N, |layer, _| {
            let (h, y) = (operand(N, &[4, D], 1.0, 1), operand(N, &[D], 1.0, 4));
            let (post, comb) = (rough(N, &[4], 1.5, 2), rough(N, &[4, 4], 1.0, 3));
            let operands = [(Tap::Out, &h), (Tap::HcAttnPost, &post), (Tap::HcAttnComb, &comb), (Tap::AttnOut, &y)];
            let mixed = |cast: fn(f64) -> f64| {
                per_row(N, |r| {
                    let (h, p, c, y) = (row(&h, r), row(&post, r), row(&comb, r), row(&y, r));
                    let mix = |k: usize, d: usize| (0..4).map(|j| cast(c[4 * j + k]) * h[j * D + d]).sum::<f64>();
                    (0..4 * D).map(|i| b(cast(p[i / D]) * y[i % D] + mix(i / D, i % D))).collect()
                })
            };
            is(stock.name(), &run(layer, Op::HcAttnPost, &operands, N)[0], &mixed(|v| v), &mixed(b));
        });
    }
}

/// Queries of one row in layer 0, normed as `chain` says (a bf16 chain, or fused with rope in f32).
fn queries(c: &Checkpoint, qr: &Tensor, chain: bool, turn: fn(f64) -> f64) -> Rows {
    let w = weight(c, "layers.0.attn.wq_b");
    per_row(N, |r| {
        let q = lin(&w, &row(qr, r));
        let heads = q.chunks(HD).flat_map(|q| {
            let squares = q.iter().map(|v| if chain { b(v * v) } else { v * v }).sum::<f64>() / HD as f64;
            let scale = if chain { b(b(b(squares) + 1e-6).powf(-0.5)) } else { (squares + 1e-6).powf(-0.5) };
            let mut q: Vec<f64> = q.iter().map(|v| if chain { b(v * scale) } else { v * scale }).collect();
            rope_as(&mut q, r as u32, false, false, turn);
            q[..HD - 32].iter_mut().for_each(|v| *v = b(*v));
            q
        });
        heads.collect::<Vec<f64>>()
    })
}

#[test]
fn d2_and_d5_the_query_norm_is_a_chain_or_fused_and_rope_turns_in_f32() {
    let exact: fn(f64) -> f64 = |turn| f64::from(turn as f32);
    for stock in ENGINES {
        with(stock, 0, N, |layer, c| {
            let qr = operand(N, &[128], 1.0, 6);
            let got = &run(layer, Op::QueryUp, &[(Tap::AttnQr, &qr)], N)[0];
            let chain = stock == Stock::Official;
            let said = queries(c, &qr, chain, exact);
            is(&format!("{stock}, D2"), got, &said, &queries(c, &qr, !chain, exact));
            is(&format!("{stock}, D5"), got, &said, &queries(c, &qr, chain, b));
        });
    }
}

#[test]
fn d3_kv_is_quantised_from_bf16_or_from_the_norm_itself() {
    for stock in ENGINES {
        with(stock, 0, N, |layer, c| {
            let x = operand(N, &[D], 1.0, 5);
            let (w, norm) = (weight(c, "layers.0.attn.wkv"), plain(c, "layers.0.attn.kv_norm.weight"));
            let kv = |source: fn(f64) -> f64| {
                per_row(N, |r| {
                    let kv = lin(&w, &row(&x, r));
                    let scale = (kv.iter().map(|v| v * v).sum::<f64>() / HD as f64 + 1e-6).powf(-0.5);
                    let mut kv: Vec<f64> = kv.iter().zip(&norm).map(|(v, w)| source(v * w * scale)).collect();
                    rope(&mut kv, r as u32, false, false);
                    let nope = q8(&kv[..64], 64);
                    kv[..64].copy_from_slice(&nope);
                    kv
                })
            };
            let got = &run(layer, Op::KeyValue, &[(Tap::AttnIn, &x)], N)[0];
            match stock {
                Stock::Sglang | Stock::SglangSm120 => is(stock.name(), got, &kv(|v| v), &kv(b)),
                _ => is(stock.name(), got, &kv(b), &kv(|v| v)),
            }
        });
    }
}

/// An entry of tiny rows: every block's maximum lies under 1e-4.
#[test]
fn d4_a_block_maximum_is_floored_at_1e_4_or_at_1e_8() {
    for stock in ENGINES {
        with(stock, 3, 4, |layer, c| {
            let (kvp, score) = (operand(4, &[2 * HD], 1e-11, 8), operand(4, &[2 * HD], 1.0, 9));
            let (ape, norm) =
                (plain(c, "layers.3.attn.compressor.ape"), plain(c, "layers.3.attn.compressor.norm.weight"));
            let z = |p: usize, d: usize| (row(&score, p)[HD + d] + ape[p * 2 * HD + HD + d]).exp();
            let pooled: Vec<f64> = (0..HD)
                .map(|d| {
                    let den: f64 = (0..4).map(|p| z(p, d)).sum();
                    b((0..4).map(|p| z(p, d) / den * row(&kvp, p)[HD + d]).sum())
                })
                .collect();
            let scale = (pooled.iter().map(|v| v * v).sum::<f64>() / HD as f64 + 1e-6).powf(-0.5);
            let from_f32 = matches!(stock, Stock::Sglang | Stock::SglangSm120);
            let grid: Vec<f64> = (0..0x7f).map(e4m3).collect();
            let entry = |floor| {
                let normed = pooled.iter().zip(&norm).map(|(v, w)| v * w * scale);
                let mut e: Vec<f64> = normed.map(|v| if from_f32 { v } else { b(v) }).collect();
                rope(&mut e, 0, true, false);
                vec![[quantised(&e[..64], 64, &grid, floor), e[64..].to_vec()].concat()]
            };
            let got = &run(layer, Op::CompressPool, &[(Tap::AttnKvp, &kvp), (Tap::AttnGateScore, &score)], 4)[0];
            assert!(row(got, 0).iter().all(|v| v.abs() < 1e-6));
            let (own, other) = if from_f32 { (1e-8, 1e-4) } else { (1e-4, 1e-8) };
            is(stock.name(), got, &entry(own), &entry(other));
        });
    }
}

#[test]
fn d6_the_compressor_s_operands_are_f32_or_bf16() {
    for stock in ENGINES {
        with(stock, 3, N, |layer, c| {
            let x = rough(N, &[D], 3.0, 7);
            let w = weight(c, "layers.3.attn.compressor.wkv");
            let rows = |cast: fn(f64) -> f64| {
                per_row(N, |r| times(&w, &row(&x, r).into_iter().map(cast).collect::<Vec<f64>>()))
            };
            let is_bf16 = matches!(stock, Stock::Sglang | Stock::SglangSm120);
            let (own, other) = if is_bf16 { (rows(b), rows(|v| v)) } else { (rows(|v| v), rows(b)) };
            let got = &run(layer, Op::CompressProject, &[(Tap::AttnIn, &x)], N)[0];
            within_f32(stock.name(), got, &own);
            assert!(places_off(got, &other).0 > 0.1, "{stock}");
        });
    }
}

/// E4M3 codes with one scale a head of 64 dims: a power of two, or largest / 448 in f32.
fn fp8_head(x: &[f64], pow2: bool) -> Vec<f64> {
    if pow2 {
        return q8(x, DI);
    }
    let grid: Vec<f64> = (0..0x7f).map(e4m3).collect();
    let scale = f64::from(x.iter().fold(1e-4f64, |a, v| a.max(v.abs())) as f32 / 448.0);
    // The quotient in f32: one that lies at the middle of two codes is there exactly, whatever the scale was rounded to.
    x.iter().map(|v| nearest(&grid, f64::from(*v as f32 / scale as f32)) * scale).collect()
}

#[test]
fn d7_index_vectors_are_fp4_or_fp8_rotated_or_not() {
    for stock in ENGINES {
        with(stock, 3, N, |layer, c| {
            let qr = operand(N, &[128], 1.0, 12);
            let w = weight(c, "layers.3.attn.indexer.wq_b");
            let heads = |form: &dyn Fn(&[f64]) -> Vec<f64>| {
                per_row(N, |r| {
                    let q = lin(&w, &row(&qr, r));
                    let heads = q.chunks(DI).flat_map(|q| {
                        let mut q = q.to_vec();
                        rope(&mut q, r as u32, true, false);
                        form(&q)
                    });
                    heads.collect::<Vec<f64>>()
                })
            };
            let got = &run(layer, Op::IndexQuery, &[(Tap::AttnQr, &qr)], N)[0];
            let official = heads(&|q| q4(&hadamard(q)));
            let sglang = heads(&|q| fp8_head(&hadamard(q), false));
            let vllm = heads(&|q| fp8_head(q, true));
            match stock {
                Stock::Official => is(stock.name(), got, &official, &sglang),
                Stock::Vllm => is(stock.name(), got, &vllm, &sglang),
                _ => is(stock.name(), got, &sglang, &vllm),
            }
        });
    }
}

/// The scores of one step's queries and keys, against their f64 sum: f32 logits but for the torch fallback of sm_120, which
/// rounds every q.k to bf16, and the official chain, which rounds everything.
#[test]
fn d7_index_scores_are_f32_or_rounded() {
    let n = 100;
    for (stock, least, most) in [
        (Stock::Official, 5e-4, 5e-3),
        (Stock::Sglang, 0.0, 1e-5),
        (Stock::SglangSm120, 5e-4, 4e-3),
        (Stock::Vllm, 0.0, 1e-5),
    ] {
        with(stock, 3, n, |layer, _| {
            let (qr, w) = (operand(n, &[128], 1.0, 12), operand(n, &[16], 0.1, 16));
            let (kvp, gate) = (operand(n, &[2 * DI], 1.0, 17), operand(n, &[2 * DI], 1.0, 18));
            let q = run(layer, Op::IndexQuery, &[(Tap::AttnQr, &qr)], n).remove(0);
            let k =
                run(layer, Op::IndexPool, &[(Tap::AttnIndexKvp, &kvp), (Tap::AttnIndexGateScore, &gate)], n).remove(0);
            let operands = [(Tap::AttnIndexQ, &q), (Tap::AttnIndexK, &k), (Tap::AttnIndexW, &w)];
            let got = run(layer, Op::IndexScore, &operands, n).remove(0);
            let (mut off, mut size) = (0.0, 0.0);
            for r in 0..n {
                let (q, w, got) = (row(&q, r), row(&w, r), row(&got, r));
                for t in 0..(r + 1) / 4 {
                    let key = row(&k, t);
                    let dot = |h: usize| q[h * DI..(h + 1) * DI].iter().zip(&key).map(|(a, b)| a * b).sum::<f64>();
                    let want: f64 = (0..16).map(|h| dot(h).max(0.0) * w[h]).sum();
                    (off, size) = (off + (got[t] - want).powi(2), size + want * want);
                }
            }
            let off: f64 = (off / size).sqrt();
            assert!((least..=most).contains(&off), "{stock}: {off:e}");
        });
    }
}

#[test]
fn d8_attention_is_one_softmax_or_two_parts_that_are_merged() {
    let n = 140;
    for stock in ENGINES {
        with(stock, 3, n, |layer, c| {
            let (q, kv, ckv) = (operand(n, &[4, HD], 1.0, 17), operand(n, &[HD], 1.0, 18), operand(35, &[HD], 1.0, 19));
            let marks: Vec<u8> = (0..n * 35).map(|i| u8::from(i % 35 < (i / 35 + 1) / 4 && i % 3 != 0)).collect();
            let selected = Tensor::u8([n, 35], marks.clone());
            let operands = [(Tap::AttnQ, &q), (Tap::AttnKv, &kv), (Tap::AttnCkv, &ckv), (Tap::AttnSelected, &selected)];
            let got = run(layer, Op::Attend, &operands, n);
            let sink = plain(c, "layers.3.attn.attn_sink");
            // Numerator [HD] and denominator over e^max of some keys without the sink, P in bf16; and the maximum.
            let part = |q: &[f64], keys: &[Vec<f64>]| {
                let dot = |k: &Vec<f64>| q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>() * 96f64.powf(-0.5);
                let s: Vec<f64> = keys.iter().map(dot).collect();
                let max = s.iter().copied().fold(f64::MIN, f64::max);
                let p: Vec<f64> = s.iter().map(|s| (s - max).exp()).collect();
                let top =
                    (0..HD).map(|d| p.iter().zip(keys).map(|(p, k)| b(*p) * k[d]).sum::<f64>()).collect::<Vec<_>>();
                (top, p.iter().sum::<f64>(), max)
            };
            let (mut one, mut two) = (Vec::new(), Vec::new());
            for r in 0..n {
                let window: Rows = (r.saturating_sub(127)..=r).map(|p| row(&kv, p)).collect();
                let entries: Rows = (0..35).filter(|e| marks[r * 35 + e] == 1).map(|e| row(&ckv, e)).collect();
                let (mut fused, mut merged) = (Vec::new(), Vec::new());
                for (q, sink) in row(&q, r).chunks(HD).zip(&sink) {
                    let (top, den, max) = part(q, &[window.clone(), entries.clone()].concat());
                    fused.extend(top.iter().map(|v| b(v / (den + (sink - max).exp()))));
                    // Each part stored, weighted by its share of all exponentials; then the sink's share leaves.
                    let parts: Vec<_> =
                        [&window, &entries].into_iter().filter(|k| !k.is_empty()).map(|k| part(q, k)).collect();
                    let mass: Vec<f64> = parts.iter().map(|(_, den, max)| den * max.exp()).collect();
                    let all = mass.iter().sum::<f64>() + sink.exp();
                    let of =
                        |d: usize| parts.iter().zip(&mass).map(|((top, den, _), m)| b(top[d] / den) * m).sum::<f64>();
                    merged.extend((0..HD).map(|d| b(of(d) / all)));
                }
                one.push(fused);
                two.push(merged);
            }
            let (own, other) = if stock == Stock::SglangSm120 { (&two, &one) } else { (&one, &two) };
            is(stock.name(), &got[0], own, other);
        });
    }
}

#[test]
fn d9_wo_a_reads_bf16_or_fp8() {
    for stock in ENGINES {
        with(stock, 3, N, |layer, c| {
            let o = operand(N, &[4, HD], 1.0, 20);
            let w = weight(c, "layers.3.attn.wo_a");
            let rows = |codes: bool| {
                per_row(N, |r| {
                    let mut o = row(&o, r);
                    o.chunks_mut(HD).for_each(|h| rope(h, r as u32, true, true));
                    let groups: Rows = o.chunks(192).map(|g| if codes { q8(g, 128) } else { g.to_vec() }).collect();
                    stored((0..128).map(|i| times(&w[i..=i], &groups[i / 64])[0]).collect())
                })
            };
            let is_fp8 = matches!(stock, Stock::Sglang | Stock::SglangSm120);
            let got = &run(layer, Op::OutputDown, &[(Tap::AttnO, &o)], N)[0];
            is(stock.name(), got, &rows(is_fp8), &rows(!is_fp8));
        });
    }
}

#[test]
fn d10_the_shared_expert_clamps() {
    for stock in ENGINES {
        with(stock, 3, N, |layer, c| {
            let x = operand(N, &[D], 6.0, 22);
            let w = |which: &str| weight(c, &format!("layers.3.ffn.shared_experts.{which}"));
            let (w1, w2, w3) = (w("w1"), w("w2"), w("w3"));
            let rows = |clamps: bool| {
                per_row(N, |r| {
                    let (g, u) = (lin(&w1, &row(&x, r)), lin(&w3, &row(&x, r)));
                    let open = g.iter().zip(&u).map(|(g, u)| b(g * sigmoid(*g) * u)).collect::<Vec<f64>>();
                    lin(&w2, &if clamps { swiglu(&g, &u, 1.0) } else { open })
                })
            };
            is(stock.name(), &run(layer, Op::SharedExpert, &[(Tap::FfnIn, &x)], N)[0], &rows(true), &rows(false));
        });
    }
}

#[test]
fn d11_the_router_reads_f32_or_bf16_and_its_weight_comes_before_w2_or_after() {
    for stock in ENGINES {
        with(stock, 3, N, |layer, c| {
            let (x, gate) = (rough(N, &[D], 4.5, 22), weight(c, "layers.3.ffn.gate"));
            let is_bf16 = matches!(stock, Stock::Sglang | Stock::SglangSm120);
            let cast: fn(f64) -> f64 = if is_bf16 { b } else { |v| v };
            let logits = per_row(N, |r| times(&gate, &row(&x, r).into_iter().map(cast).collect::<Vec<f64>>()));
            within_f32(stock.name(), &run(layer, Op::Route, &[(Tap::FfnIn, &x)], N)[0], &logits);

            let x = operand(N, &[D], 1.5, 22);
            let routed = run(layer, Op::Route, &[(Tap::FfnIn, &x)], N);
            let (idx, wt) = (routed[1].as_i64("idx").unwrap(), &routed[2]);
            let operands = [(Tap::FfnIn, &x), (Tap::FfnIdx, &routed[1]), (Tap::FfnWt, wt)];
            let got = run(layer, Op::Experts, &operands, N);
            // SGLang's runner multiplies the sum by the routed scaling factor, the others' weights carry it.
            let late = if is_bf16 { 1.5 } else { 1.0 };
            let sums = |after: bool| {
                per_row(N, |r| {
                    let mut sum = vec![0f64; D];
                    for k in 0..3 {
                        let w = |which: &str| weight(c, &format!("layers.3.ffn.experts.{}.{which}", idx[3 * r + k]));
                        let weight = row(wt, r)[k] / late;
                        let (g, u) = (lin(&w("w1"), &row(&x, r)), lin(&w("w3"), &row(&x, r)));
                        let out: Vec<f64> = match after {
                            true => {
                                times(&w("w2"), &q8(&swiglu(&g, &u, 1.0), 128)).iter().map(|o| b(weight * o)).collect()
                            }
                            false => lin(&w("w2"), &swiglu(&g, &u, weight)),
                        };
                        sum.iter_mut().zip(out).for_each(|(s, o)| *s += o * late);
                    }
                    sum
                })
            };
            let after = stock != Stock::Official;
            let rel = |want: &Rows| {
                let (mut off, mut size) = (0.0, 0.0);
                for (r, want) in want.iter().enumerate() {
                    off += row(&got[1], r).iter().zip(want).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
                    size += want.iter().map(|v| v * v).sum::<f64>();
                }
                (off / size).sqrt()
            };
            // The activations' codes are those of other values: a place of FP8. The own side differs by flipped codes only.
            let (own, other): (f64, f64) = (rel(&sums(after)), rel(&sums(!after)));
            assert!(own < 5e-3 && other > 1e-2, "{stock}: {own:e}, {other:e}");
            // The tap shows activations with the weight, wherever it comes in.
            let acts = per_row(N, |r| {
                let act = |k: usize| {
                    let w = |which: &str| weight(c, &format!("layers.3.ffn.experts.{}.{which}", idx[3 * r + k]));
                    let (g, u) = (lin(&w("w1"), &row(&x, r)), lin(&w("w3"), &row(&x, r)));
                    let weight = row(wt, r)[k];
                    match after {
                        true => swiglu(&g, &u, 1.0).into_iter().map(|a| a * weight).collect::<Vec<f64>>(),
                        false => swiglu(&g, &u, weight),
                    }
                };
                (0..3).flat_map(act).collect()
            });
            assert!(places_off(&got[0], &acts).0 <= 1.0, "{stock}, D12: experts read FP8 in blocks of 128");
        });
    }
}

#[test]
fn d13_logits_are_f32_or_bf16() {
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids(N, 21))] };
    let x = operand(N, &[4, D], 1.0, 30);
    let logits = |stock| {
        let path = optimized(stock, &[], History::Cold, requests.clone());
        let streams = Streams { data: x.clone(), ..path.embed(&mut NoTaps).unwrap() };
        path.head(&mut [Lane::new(&streams, &mut NoTaps)]).unwrap().remove(0)
    };
    let official = logits(Stock::Official);
    let rounded = per_row(N, |r| stored(row(&official, r)));
    assert!((0..N).any(|r| row(&official, r) != rounded[r]), "official's logits are no bf16 values");
    for stock in &ENGINES[1..] {
        let got = logits(*stock);
        if *stock == Stock::Vllm {
            assert_eq!(got, official);
        } else {
            assert!((0..N).all(|r| row(&got, r) == stored(row(&got, r))), "{stock}");
            assert!(places_off(&got, &rounded).0 <= 1.0, "{stock}");
        }
    }
}

#[test]
fn d14_kv_is_really_rounded_through_fp8() {
    for stock in ENGINES {
        with(stock, 0, N, |layer, _| {
            let x = operand(N, &[D], 1.0, 5);
            let got = &run(layer, Op::KeyValue, &[(Tap::AttnIn, &x)], N)[0];
            for r in 0..N {
                let kv = row(got, r);
                assert_eq!(q8(&kv[..64], 64), kv[..64], "{stock}: rounding again changes nothing");
                assert_ne!(q8(&kv[64..], 32), kv[64..], "{stock}: the rotated part stays bf16");
            }
        });
    }
}
