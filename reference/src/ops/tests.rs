//! The corners that an oracle of ordinary numbers does not reach. Formulas are evaluated by hand in f64.

use karat_model::Config;
use karat_model::config::{ExpertDtype, LayerKind, Yarn};

use super::attend::{Keys, attend};
use super::compress::{CompressorWeights, pool};
use super::experts::Matrices;
use super::rope::{Angles, Rope};
use super::select::{select, top_k};
use super::swiglu::swiglu;
use super::*;
use crate::linalg::Packed;
use crate::state::CompressorState;

fn config() -> Config {
    Config {
        vocab_size: 8,
        hidden_size: 4,
        layers: vec![LayerKind::Sliding],
        mtp: vec![],
        num_attention_heads: 2,
        head_dim: 4,
        qk_rope_head_dim: 2,
        q_lora_rank: 4,
        o_groups: 1,
        o_lora_rank: 4,
        sliding_window: 3,
        index_n_heads: 2,
        index_head_dim: 4,
        index_topk: 2,
        n_routed_experts: 4,
        n_shared_experts: 1,
        num_experts_per_tok: 2,
        moe_intermediate_size: 4,
        num_hash_layers: 0,
        routed_scaling_factor: 1.5,
        swiglu_limit: 2.0,
        hc_mult: 2,
        hc_sinkhorn_iters: 20,
        hc_eps: 1e-6,
        rms_norm_eps: 1e-6,
        rope_theta: 1e4,
        compress_rope_theta: 16e4,
        yarn: Yarn { factor: 16.0, beta_fast: 32.0, beta_slow: 1.0, original_max_position_embeddings: 65536.0 },
        max_position_embeddings: 1 << 20,
        bos_token_id: 0,
        eos_token_id: 1,
        expert_dtype: ExpertDtype::Fp4,
        weight_block_size: [128, 128],
    }
}

fn ctx(config: &Config) -> Ctx<'_> {
    Ctx::new(config, Isa::best())
}

#[test]
fn ties_go_to_the_lower_index_and_nan_comes_last() {
    // One row after the other.
    let mut best = Vec::new();
    top_k(&[1.0f32, 3.0, 3.0, 2.0], 2, &mut best);
    top_k(&[0.0f32, -0.0, 0.0, -0.0], 3, &mut best);
    top_k(&[f32::NAN, f32::NEG_INFINITY, 1.0, f32::NAN], 3, &mut best);
    top_k(&[5.0f32, 4.0], 3, &mut best);
    assert_eq!(best, [1, 2, 0, 1, 2, 2, 1, 0, 0, 1]);
    // Rows at positions 7 and 12, ratio 4: 2 and 3 entries are visible; ties at the boundary of k = 2.
    let scores = [9.0f32, 1.0, 99.0, 1.0, 2.0, 1.0];
    let config = config();
    let ctx = ctx(&config);
    assert_eq!(select(ctx, Some(&scores[..3]), 2, 1, 3, 7, 4), [1, 1, 0]);
    assert_eq!(select(ctx, Some(&scores[3..]), 2, 1, 3, 12, 4), [1, 1, 0]);
    assert_eq!(select::<f32>(ctx, None, 2, 2, 3, 11, 4), [1; 6]);
}

#[test]
fn the_clamp_has_three_sides() {
    let silu = |v: f64| v / (1.0 + (-v).exp());
    for (g, u, want) in
        [(5.0, 1.0, silu(2.0)), (-50.0, 1.0, silu(-50.0)), (1.0, 7.0, silu(1.0) * 2.0), (1.0, -7.0, -2.0 * silu(1.0))]
    {
        assert!((swiglu::<f64>(g, u, 2.0) - want).abs() < 1e-15);
    }
    assert!(swiglu(f32::NAN, 1.0, 2.0).is_nan() && swiglu(1.0, f32::NAN, 2.0).is_nan());
}

#[test]
fn attention_follows_its_formula() {
    let config = config();
    let wave = |n: usize, step: f64| (0..n).map(|i| (i as f64 * step).sin()).collect::<Vec<f64>>();
    let (q, window, entries, sink) = (wave(2 * 8, 0.7), wave(4 * 4, 1.3), wave(3 * 4, 0.4), [0.3, -0.2]);
    // Rows at positions 4 and 5, window of 3 from position 2 on, entries 0 and 2, then all three.
    let selected = [1, 0, 1, 1, 1, 1];
    let keys = Keys { first: 2, window: &window, entries: &entries, selected: &selected };
    let (o, lse) = attend(ctx(&config), &q, keys, &sink, 4);
    for t in 0..2 {
        let mut rows: Vec<&[f64]> = (0..3).map(|i| &window[(t + i) * 4..(t + i + 1) * 4]).collect();
        rows.extend((0..3).filter(|w| selected[t * 3 + w] == 1).map(|w| &entries[w * 4..(w + 1) * 4]));
        for h in 0..2 {
            let q = &q[(t * 2 + h) * 4..(t * 2 + h + 1) * 4];
            let e: Vec<f64> =
                rows.iter().map(|k| (k.iter().zip(q).map(|(a, b)| a * b).sum::<f64>() / 2.0).exp()).collect();
            let den = e.iter().sum::<f64>() + sink[h].exp();
            assert!((lse[t * 2 + h] - den.ln()).abs() < 1e-14);
            for d in 0..4 {
                let want = rows.iter().zip(&e).map(|(k, e)| k[d] * e).sum::<f64>() / den;
                assert!((o[(t * 2 + h) * 4 + d] - want).abs() < 1e-14, "t {t} h {h} d {d}");
            }
        }
    }
    // Every score -inf: the sink takes it all.
    let low = [f32::MIN; 4];
    let keys = Keys { first: 0, window: &low, entries: &[], selected: &[] };
    let (o, lse) = attend(ctx(&config), &[f32::MAX; 8], keys, &[0.5, -1.0], 0);
    assert_eq!((o.into_vec(), lse.into_vec()), (vec![-0.0; 8], vec![0.5, -1.0]));
}

/// Entries from the formula of spec 2.7, in f64.
fn entries_by_hand(w: &CompressorWeights<f64>, rope: &Rope, kvp: &[f64], score: &[f64], overlap: bool) -> Vec<f64> {
    let (r, columns, width) = (w.ratio, w.columns(), w.width());
    let z = |p: usize, col: usize| score[p * columns + col] + w.ape[p % r * columns + col];
    let mut out = Vec::new();
    for window in 0..kvp.len() / columns / r {
        let mut slots = Vec::new();
        if overlap && window > 0 {
            slots.extend(((window - 1) * r..window * r).map(|p| (p, 0)));
        }
        slots.extend((window * r..(window + 1) * r).map(|p| (p, if overlap { width } else { 0 })));
        let mut entry: Vec<f64> = (0..width)
            .map(|d| {
                let e: Vec<f64> = slots.iter().map(|&(p, at)| z(p, at + d).exp()).collect();
                let num: f64 = slots.iter().zip(&e).map(|(&(p, at), e)| kvp[p * columns + at + d] * e).sum();
                num / e.iter().sum::<f64>()
            })
            .collect();
        let rms = (entry.iter().map(|v| v * v).sum::<f64>() / width as f64 + 1e-6).sqrt();
        entry.iter_mut().zip(&w.norm).for_each(|(v, w)| *v = *v / rms * w);
        let (sin, cos) = f64::from((window * r) as f32 * rope.inv_freq[0]).sin_cos();
        let (e, o) = (entry[width - 2], entry[width - 1]);
        (entry[width - 2], entry[width - 1]) = (e * cos - o * sin, e * sin + o * cos);
        out.extend(entry);
    }
    out
}

#[test]
fn pooling_follows_its_formula_in_any_pieces() {
    let config = config();
    let rope = Rope::yarn(&config);
    for (ratio, overlap) in [(3, false), (4, true), (2, true)] {
        let columns = if overlap { 8 } else { 4 };
        let wave = |n: usize, step: f64| (0..n).map(|i| (i as f64 * step).sin() * 2.0).collect::<Vec<f64>>();
        let w = CompressorWeights {
            wkv: Packed::default(),
            wgate: Packed::default(),
            ape: wave(ratio * columns, 0.9),
            norm: vec![1.0, 0.5, 2.0, 1.5],
            ratio,
            overlap,
        };
        let (kvp, score) = (wave(14 * columns, 0.31), wave(14 * columns, 0.77));
        let want = entries_by_hand(&w, &rope, &kvp, &score, overlap);
        for piece in [14, 5, 3, 1] {
            let mut state = CompressorState::default();
            for (kvp, score) in kvp.chunks(piece * columns).zip(score.chunks(piece * columns)) {
                let fresh = pool(ctx(&config), &w, &rope, &mut state, kvp, score);
                state.entries.extend_from_slice(&fresh);
            }
            assert_eq!(state.entries.len(), want.len());
            let apart = state.entries.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(apart < 1e-13, "ratio {ratio} in pieces of {piece}: {apart:e}");
            assert_eq!(state.pend_kvp.len(), 14 % ratio * columns);
        }
    }
}

#[test]
fn rope_turns_back() {
    let rope = Rope::plain(&config());
    let angles = Angles::<f64>::at(&rope, [3, 70_000]);
    let before = [1.0, 2.0, 3.0, 4.0];
    for i in 0..2 {
        let mut x = before;
        angles.rotate(i, &mut x, 4);
        assert_eq!(x[..2], before[..2]);
        assert_ne!(x[2..], before[2..]);
        angles.rotate_back(i, &mut x, 4);
        assert!(x.iter().zip(before).all(|(a, b)| (a - b).abs() < 1e-14));
    }
}

/// Experts that count how often each half of each is asked for.
#[derive(Default)]
struct Counted(std::sync::Mutex<std::collections::BTreeMap<(usize, &'static str), u32>>);

impl Counted {
    fn note(&self, e: usize, half: &'static str) {
        *self.0.lock().unwrap().entry((e, half)).or_default() += 1;
    }

    fn weight(e: usize) -> crate::linalg::Packed<f32> {
        crate::linalg::Packed::from_rows(4, 4, |i, out| out.iter_mut().for_each(|v| *v = (e + i) as f32 * 0.1))
    }
}

impl super::experts::ExpertWeights<f32> for Counted {
    type Error = ();

    fn up(&self, e: usize) -> Result<Matrices<'_, f32, 2>, ()> {
        self.note(e, "up");
        Ok(Matrices::Packed([Self::weight(e), Self::weight(e + 1)].into()))
    }

    fn down(&self, e: usize) -> Result<Matrices<'_, f32, 1>, ()> {
        self.note(e, "down");
        Ok(Matrices::Packed([Self::weight(e)].into()))
    }
}

#[test]
fn an_expert_is_decoded_once_however_many_lanes_choose_it() {
    use super::experts::{Routed, expert_act, expert_sum, routed, routed_and_act};
    let config = config();
    let (x, wt): (Vec<f32>, _) = ((0..12).map(|i| i as f32 * 0.25 - 1.0).collect(), [0.5f32; 6]);
    // Each lane has three rows of two slots; expert 2 is nobody's.
    let lanes: Vec<Routed<'_, f32>> = [[0u32, 1, 1, 3, 0, 3], [1, 0, 3, 1, 3, 0], [0, 3, 0, 1, 1, 3]]
        .iter()
        .map(|idx| Routed { x: &x, idx, wt: &wt })
        .collect();
    let once: std::collections::BTreeMap<_, _> =
        [0, 1, 3].into_iter().flat_map(|e| [((e, "up"), 1), ((e, "down"), 1)]).collect();
    for n in 1..=lanes.len() {
        let [whole, halves, both] = [(); 3].map(|()| Counted::default());
        let sums = routed(ctx(&config), &lanes[..n], &whole).unwrap();
        let acts = expert_act(ctx(&config), &lanes[..n], &halves).unwrap();
        assert_eq!(expert_sum(ctx(&config), &lanes[..n], &acts, &halves).unwrap(), sums);
        assert_eq!(routed_and_act(ctx(&config), &lanes[..n], &both).unwrap(), (acts, sums));
        for counted in [whole, halves, both] {
            assert_eq!(counted.0.into_inner().unwrap(), once, "{n} lanes");
        }
    }
}

#[test]
fn the_shared_expert_follows_its_formula_in_any_pieces() {
    use super::experts::{SharedWeights, shared};
    use crate::linear::Linear;
    let config = config();
    let wave = |n: usize, step: f64| (0..n).map(|i| 3.0 * (i as f64 * step).sin()).collect::<Vec<f64>>();
    let [w1, w3, w2] = [0.7, 1.3, 0.4].map(|step| wave(16, step));
    let pack = |w: &[f64]| Packed::from_rows(4, 4, |i, out| out.copy_from_slice(&w[i * 4..(i + 1) * 4]));
    let weights =
        SharedWeights { w1: Linear::Packed(pack(&w1)), w3: Linear::Packed(pack(&w3)), w2: Linear::Packed(pack(&w2)) };
    // More pieces than go together, of 1, 2 and 3 rows, in turn.
    let pieces: Vec<Vec<f64>> = (0..20).map(|i| wave((i % 3 + 1) * 4, 0.9 + i as f64 * 0.01)).collect();
    let x: Vec<&[f64]> = pieces.iter().map(|x| &**x).collect();
    let got: Vec<Made<f64>> = shared(ctx(&config), &weights, &x).collect();
    assert_eq!(got.len(), x.len());
    let times = |w: &[f64], x: &[f64]| -> Vec<f64> {
        w.chunks_exact(4).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>()).collect()
    };
    for (i, (x, y)) in x.iter().zip(&got).enumerate() {
        assert_eq!(y.len(), x.len(), "piece {i}");
        for (x, y) in x.chunks_exact(4).zip(y.chunks_exact(4)) {
            let act: Vec<f64> = times(&w1, x)
                .iter()
                .zip(times(&w3, x))
                .map(|(g, u)| g.min(2.0) / (1.0 + (-g.min(2.0)).exp()) * u.clamp(-2.0, 2.0))
                .collect();
            for (want, y) in times(&w2, &act).iter().zip(y) {
                assert!((want - y).abs() < 1e-12, "piece {i}: {want} {y}");
            }
        }
    }
}
