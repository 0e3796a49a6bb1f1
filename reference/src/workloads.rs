//! One small fixed workload for each hot loop: what the benches time and whose instructions are counted. No part of
//! the golden path.

use std::sync::Arc;

use karat_model::Config;
use karat_model::checkpoint::{Dtype, Encoding, RawTensor, Weight};
use karat_model::config::{ExpertDtype, LayerKind, Yarn};

use crate::decode::Decoder;
use crate::linalg::{
    Isa, K_BLOCK, LANES, Packed, Pool, PoolBuffers, Stored, Times, matmul_here, multiply_stored, pool_slots,
    sums_of_squares,
};
use crate::ops::attend::{Keys, attend};
use crate::ops::experts::{ExpertWeights, Matrices, Routed, routed};
use crate::ops::hc_coefficients::{HcWeights, hc_coefficients};
use crate::ops::index::index_score;
use crate::ops::route::{Choice, RouterWeights, choose};
use crate::ops::select::select;
use crate::ops::{Ctx, hc_mix, rows};

/// A hot loop with its operands.
pub struct Workload {
    /// Name in tables.
    pub name: &'static str,
    /// Multiplications and additions of one run, or 0 where they are not what takes the time.
    pub flops: f64,
    pool: Pool,
    run: Box<dyn Fn(Isa) + Send + Sync>,
}

impl Workload {
    /// Runs it once, on one thread.
    pub fn run(&self) {
        self.pool.install(|| counted(&*self.run, self.pool.isa()));
    }
}

/// The frame by which instruction counts are told from everything around them.
#[inline(never)]
fn counted(run: &(dyn Fn(Isa) + Send + Sync), isa: Isa) {
    run(isa);
    std::hint::black_box(());
}

/// All of them on an instruction set.
///
/// # Errors
/// A thread can't be started.
pub fn workloads(isa: Isa) -> karat_model::Result<Vec<Workload>> {
    let mut out = Vec::new();
    let mut add = |name, flops: f64, run: Box<dyn Fn(Isa) + Send + Sync>| {
        Pool::with_isa(1, isa).map(|pool| out.push(Workload { name, flops, pool, run }))
    };
    for (name, m, k, n) in [
        ("gemm 96x256x256", 96, 256, 256),
        ("gemm 96x2048x64", 96, 2048, 64),
        ("gemm 96x1024x24", 96, 1024, 24),
        ("gemm 1x256x512", 1, 256, 512),
        ("gemm 7x256x256", 7, 256, 256),
    ] {
        add(name, 2.0 * (m * k * n) as f64, gemm(m, k, n))?;
    }
    let [fp4, fp8] = [Encoding::Mxfp4, Encoding::Fp8Block { block: [128, 128] }];
    add("decode fp4 96x512", 0.0, decoding(fp4)?)?;
    add("decode fp8 96x512", 0.0, decoding(fp8)?)?;
    add("gemm of fp4 48x512x96", 2.0 * (48 * 512 * 96) as f64, stored_gemm(48, fp4)?)?;
    add("attend 16 queries", 16.0 * 96.0 * 8.0 * 64.0 * 4.0, attention())?;
    add("index scores 16 queries", 16.0 * 256.0 * 4.0 * 32.0 * 2.0, indexer())?;
    add("select 16 queries", 0.0, selection())?;
    add("pooled softmax", 0.0, pooling())?;
    add("hyper-connections 32 rows", 0.0, hyper_connections())?;
    add("stream mixing 32 rows", 0.0, mixing())?;
    add("sums of squares 64x256", 2.0 * 64.0 * 256.0, squares())?;
    add("routing 64 rows", 0.0, routing())?;
    Ok(out)
}

/// Those that are timed and not counted: their tasks meet in no fixed order.
///
/// # Errors
/// A thread can't be started.
pub fn timed_only(isa: Isa) -> karat_model::Result<Vec<Workload>> {
    let (name, rows, config) = ("routed experts 256 rows", 256, config());
    let flops = (2 * 3 * rows * config.num_experts_per_tok * config.hidden_size * config.moe_intermediate_size) as f64;
    Ok(vec![Workload { name, flops, pool: Pool::with_isa(1, isa)?, run: routed_experts(rows) }])
}

/// Values between -1 and 1, the same every time.
fn values(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn pack(n: usize, k: usize, seed: u64) -> Packed<f32> {
    let w = values(n * k, seed);
    Packed::from_rows(n, k, |i, out| out.copy_from_slice(&w[i * k..(i + 1) * k]))
}

fn gemm(m: usize, k: usize, n: usize) -> Box<dyn Fn(Isa) + Send + Sync> {
    let (x, w) = (values(m * k, 1), pack(n, k, 2));
    Box::new(move |isa| {
        let mut out = vec![0f32; m * n];
        matmul_here(isa, &rows(&x, k), &w, &mut out);
        std::hint::black_box(&out);
    })
}

/// A stored weight `[96,512]` of any codes that are numbers, and scales near one.
fn stored(encoding: Encoding) -> karat_model::Result<Decoder<'static>> {
    let (rows, cols): (usize, usize) = (96, 512);
    let tensor = |dtype, shape: [usize; 2], bytes: Vec<u8>| RawTensor {
        name: "w".into(),
        dtype,
        shape: shape.into(),
        bytes: bytes.leak(),
    };
    let (dtype, width, scales) = match encoding {
        Encoding::Mxfp4 => (Dtype::Packed4, cols / 2, [rows, cols / 32]),
        _ => (Dtype::F8E4M3, cols, [rows.div_ceil(128), cols.div_ceil(128)]),
    };
    let codes = values(rows * width, 27).iter().map(|v| (v.to_bits() >> 8) as u8 & 0xBF).collect();
    let scale = (0..scales[0] * scales[1]).map(|i| 120 + (i % 8) as u8).collect();
    Decoder::new(Weight {
        name: "w".into(),
        rows,
        cols,
        encoding,
        data: tensor(dtype, [rows, width], codes),
        scale: Some(tensor(Dtype::F8E8M0, scales, scale)),
        global_scale: None,
        input_scale: None,
    })
}

fn decoding(encoding: Encoding) -> karat_model::Result<Box<dyn Fn(Isa) + Send + Sync>> {
    let weight = stored(encoding)?;
    Ok(Box::new(move |isa| {
        let mut out = [[0f32; LANES]; K_BLOCK];
        for (row, k) in
            (0..weight.rows()).step_by(LANES).flat_map(|row| [0, 1, 2, 3].map(|block| (row, block * K_BLOCK)))
        {
            weight.panel(isa, row..row + LANES, k..k + K_BLOCK, &mut out);
            std::hint::black_box(&out);
        }
    }))
}

fn stored_gemm(m: usize, encoding: Encoding) -> karat_model::Result<Box<dyn Fn(Isa) + Send + Sync>> {
    let weight = stored(encoding)?;
    let (n, x) = (weight.rows(), values(m * weight.cols(), 28));
    Ok(Box::new(move |isa| {
        let mut out = vec![0f32; m * n];
        multiply_stored(isa, &rows(&x, weight.cols()), &mut [Times { w: &weight, n, out: &mut out }]);
        std::hint::black_box(&out);
    }))
}

fn attention() -> Box<dyn Fn(Isa) + Send + Sync> {
    let (config, queries, total) = (config(), 16, 64);
    let width = config.num_attention_heads * config.head_dim;
    let (q, window) = (values(queries * width, 3), values((64 + queries) * config.head_dim, 4));
    let (entries, sink) = (values(total * config.head_dim, 5), values(config.num_attention_heads, 6));
    let selected: Vec<u8> = (0..queries * total).map(|i| u8::from((i * 7 + i / total).is_multiple_of(2))).collect();
    Box::new(move |isa| {
        let keys = Keys { first: 0, window: &window, entries: &entries, selected: &selected };
        std::hint::black_box(attend(Ctx::new(&config, isa), &q, keys, &sink, 64));
    })
}

fn indexer() -> Box<dyn Fn(Isa) + Send + Sync> {
    let (config, queries, total) = (config(), 16, 256);
    let (heads, di) = (config.index_n_heads, config.index_head_dim);
    let (iq, ik) = (values(queries * heads * di, 7), values(total * di, 8));
    let iw = values(queries * heads, 9);
    Box::new(move |isa| {
        std::hint::black_box(index_score(Ctx::new(&config, isa), &iq, &ik, &iw, 4 * total, 4));
    })
}

fn selection() -> Box<dyn Fn(Isa) + Send + Sync> {
    let (config, scores) = (config(), values(16 * 256, 10));
    Box::new(move |isa| {
        std::hint::black_box(select(Ctx::new(&config, isa), Some(scores.as_slice()), 32, 16, 256, 1024, 4));
    })
}

fn pooling() -> Box<dyn Fn(Isa) + Send + Sync> {
    let (slots, width) = (8, 512);
    let (scores, v) = (values(slots * width, 11), values(slots * width, 12));
    Box::new(move |isa| {
        let mut out = vec![0f32; width];
        pool_slots(isa, &rows(&scores, width), &rows(&v, width), &mut out, &mut PoolBuffers::default());
        std::hint::black_box(&out);
    })
}

fn hyper_connections() -> Box<dyn Fn(Isa) + Send + Sync> {
    let config = config();
    let (hc, d) = (config.hc_mult, config.hidden_size);
    let n = (2 + hc) * hc;
    let weights = HcWeights { mix: pack(n, hc * d, 13), base: values(n, 14), scale: values(3, 15) };
    let h = values(32 * hc * d, 16);
    Box::new(move |isa| {
        std::hint::black_box(hc_coefficients(Ctx::new(&config, isa), &weights, &h));
    })
}

fn mixing() -> Box<dyn Fn(Isa) + Send + Sync> {
    let config = config();
    let (hc, d, s) = (config.hc_mult, config.hidden_size, 32);
    let mix = crate::ops::hc_coefficients::Coefficients {
        pre: values(s * hc, 17).into(),
        post: values(s * hc, 18).into(),
        comb: values(s * hc * hc, 19).into(),
    };
    let (h, y) = (values(s * hc * d, 20), values(s * d, 21));
    Box::new(move |isa| {
        let ctx = Ctx::new(&config, isa);
        std::hint::black_box(hc_mix::collapse(ctx, &mix.pre, &h));
        std::hint::black_box(hc_mix::combine(ctx, &mix, &h, &y));
    })
}

fn squares() -> Box<dyn Fn(Isa) + Send + Sync> {
    let x = values(64 * 256, 22);
    Box::new(move |isa| {
        let mut out = vec![0f64; 64];
        sums_of_squares(isa, &x, 256, &mut out);
        std::hint::black_box(&out);
    })
}

fn routing() -> Box<dyn Fn(Isa) + Send + Sync> {
    let config = config();
    let logits = values(64 * config.n_routed_experts, 23);
    let router = RouterWeights {
        gate: Packed::default(),
        choice: Choice::Scored(values(config.n_routed_experts, 24).iter().map(|v| v * 1e-3).collect()),
    };
    Box::new(move |isa| {
        std::hint::black_box(choose(Ctx::new(&config, isa), &logits, &router, &[]));
    })
}

/// Experts that are decoded already.
struct Held(Vec<(Arc<[Packed<f32>; 2]>, Arc<[Packed<f32>; 1]>)>);

impl ExpertWeights<f32> for Held {
    type Error = std::convert::Infallible;

    fn up(&self, e: usize) -> Result<Matrices<'_, f32, 2>, Self::Error> {
        Ok(Matrices::Packed(self.0[e].0.clone()))
    }

    fn down(&self, e: usize) -> Result<Matrices<'_, f32, 1>, Self::Error> {
        Ok(Matrices::Packed(self.0[e].1.clone()))
    }
}

fn routed_experts(s: usize) -> Box<dyn Fn(Isa) + Send + Sync> {
    let config = config();
    let (d, inner, k) = (config.hidden_size, config.moe_intermediate_size, config.num_experts_per_tok);
    let one =
        |e: u64| (Arc::new([pack(inner, d, 3 * e), pack(inner, d, 3 * e + 1)]), Arc::new([pack(d, inner, 3 * e + 2)]));
    let weights = Held((0..config.n_routed_experts as u64).map(|e| one(e + 100)).collect());
    let (x, wt) = (values(s * d, 25), values(s * k, 26));
    // Every expert has users, and not all the same number.
    let idx: Vec<u32> = (0..s * k).map(|i| ((i * i / 3 + i) % config.n_routed_experts) as u32).collect();
    Box::new(move |isa| {
        let parts = [Routed { x: &x, idx: &idx, wt: &wt }];
        let Ok(sums) = routed(Ctx::new(&config, isa), &parts, &weights);
        std::hint::black_box(sums);
    })
}

/// A thin model: the shapes that a small golden model has.
fn config() -> Config {
    Config {
        vocab_size: 1024,
        hidden_size: 256,
        layers: vec![LayerKind::Sliding],
        mtp: vec![],
        num_attention_heads: 8,
        head_dim: 64,
        qk_rope_head_dim: 16,
        q_lora_rank: 128,
        o_groups: 2,
        o_lora_rank: 64,
        sliding_window: 64,
        index_n_heads: 4,
        index_head_dim: 32,
        index_topk: 32,
        n_routed_experts: 16,
        n_shared_experts: 1,
        num_experts_per_tok: 2,
        moe_intermediate_size: 128,
        num_hash_layers: 0,
        routed_scaling_factor: 1.5,
        swiglu_limit: 10.0,
        hc_mult: 4,
        hc_sinkhorn_iters: 20,
        hc_eps: 1e-6,
        rms_norm_eps: 1e-6,
        rope_theta: 1e4,
        compress_rope_theta: 16e4,
        yarn: Yarn { factor: 16.0, beta_fast: 32.0, beta_slow: 1.0, original_max_position_embeddings: 4096.0 },
        max_position_embeddings: 1 << 16,
        bos_token_id: 0,
        eos_token_id: 1,
        expert_dtype: ExpertDtype::Fp4,
        weight_block_size: [128, 128],
    }
}
