//! Every patch's error at its own op against what its roundings must cost: r^2 = the sum of c^2 over the roundings, each
//! c measured by rounding golden's own operand here, with quantisers written from the formats' definitions. The table in
//! docs/patches.md holds the numbers.

use std::fmt::Write as _;

use karat_model::checkpoint::Dtype;
use karat_optimized::{History, Optimized, Stock, patches};
use karat_seam::{Lane, NoTaps, Op, OpSpec, Path, Recorder, Requests, Site, Streams, Tap, Tensor};

use crate::optimized_drive::{ids, optimized, record, tiny, turns};

/// 90 rows of prefill, 50 of decode.
const DECODED: usize = 90;

fn requests() -> Requests {
    Requests { seqs: vec![turns("a", ids(140, 11), &[DECODED, 50])] }
}

/// The nearest value with `bits` mantissa bits and no exponent under `least`, ties to even.
fn nearest(x: f64, bits: i32, least: i32) -> f64 {
    if x == 0.0 {
        return 0.0;
    }
    let step = 2f64.powi((x.abs().log2().floor() as i32).max(least) - bits);
    (x / step).round_ties_even() * step
}

fn bf16(x: f64) -> f64 {
    nearest(x, 7, -126)
}

fn tf32(x: f64) -> f64 {
    nearest(x, 10, -126)
}

fn e4m3(x: f64) -> f64 {
    nearest(x.clamp(-448.0, 448.0), 3, -6)
}

fn e2m1(x: f64) -> f64 {
    nearest(x.clamp(-6.0, 6.0), 1, 0)
}

/// How an operand is rounded: value by value, or in blocks of a row.
#[derive(Clone, Copy)]
enum Rounding {
    Each(fn(f64) -> f64),
    /// E4M3 with a power-of-two scale a block.
    Q8(usize),
    /// E2M1 with a power-of-two scale a block.
    Q4(usize),
    /// E4M3 with scale max/448 a block.
    Fp8(usize),
    /// E2M1 with an E4M3 scale for 16 under a scale a row.
    Nvfp4,
}

/// Rows of `width` rounded.
fn rounded(x: &[f32], width: usize, how: Rounding) -> Vec<f64> {
    let x: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
    let top = |b: &[f64]| b.iter().fold(1e-30f64, |a, v| a.max(v.abs()));
    let blocks = |size: usize, f: &dyn Fn(&[f64]) -> Vec<f64>| -> Vec<f64> {
        x.chunks(width).flat_map(|row| row.chunks(size).flat_map(f).collect::<Vec<f64>>()).collect()
    };
    let scaled = |b: &[f64], s: f64, code: fn(f64) -> f64| b.iter().map(|v| code(v / s) * s).collect::<Vec<f64>>();
    let power = |v: f64| 2f64.powi(v.log2().ceil() as i32);
    match how {
        Rounding::Each(f) => x.iter().map(|v| f(*v)).collect(),
        Rounding::Q8(size) => blocks(size, &|b| scaled(b, power(top(b) / 448.0), e4m3)),
        Rounding::Q4(size) => blocks(size, &|b| scaled(b, power(top(b) / 6.0), e2m1)),
        Rounding::Fp8(size) => blocks(size, &|b| scaled(b, top(b) / 448.0, e4m3)),
        Rounding::Nvfp4 => blocks(width, &|row| {
            let global = top(row) / (448.0 * 6.0);
            let block = |b: &[f64]| scaled(b, e4m3(top(b) / 6.0 / global) * global, e2m1);
            row.chunks(16).flat_map(block).collect()
        }),
    }
}

fn rel_l2(exact: impl Iterator<Item = f64>, other: impl Iterator<Item = f64>) -> f64 {
    let (mut d, mut size) = (0.0, 0.0);
    for (a, b) in exact.zip(other).filter(|(a, b)| a.is_finite() && b.is_finite()) {
        d += (a - b).powi(2);
        size += a * a;
    }
    (d / size).sqrt()
}

/// Relative size of one rounding.
fn cost(x: &[f32], width: usize, how: Rounding) -> f64 {
    rel_l2(x.iter().map(|v| f64::from(*v)), rounded(x, width, how).into_iter())
}

fn root(squares: &[f64]) -> f64 {
    squares.iter().map(|c| c * c).sum::<f64>().sqrt()
}

/// The control path in f32 and all that it shows.
struct Control {
    path: Optimized,
    whole: Recorder,
}

impl Control {
    fn new() -> Self {
        let path = optimized(Stock::None, &[], History::Cold, requests());
        let whole = record(&path);
        Self { path, whole }
    }

    fn tap(&self, l: u16, tap: Tap) -> Tensor {
        self.whole.get(Site::layer(l, tap), 0).unwrap().tensor.clone()
    }

    fn values(&self, l: u16, tap: Tap) -> Vec<f32> {
        self.tap(l, tap).as_f32("tap").unwrap().to_vec()
    }

    fn cost(&self, l: u16, tap: Tap, how: Rounding) -> f64 {
        let t = self.tap(l, tap);
        let width = t.shape[t.shape.len() - 1];
        cost(t.as_f32("tap").unwrap(), width, how)
    }

    /// A plain weight and its width.
    fn weight(name: &str, cols: usize, how: Rounding) -> f64 {
        let checkpoint = tiny();
        let raw = checkpoint.tensor(name).unwrap();
        let values: Vec<f32> = match raw.dtype {
            Dtype::F32 => raw.bytes.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect(),
            Dtype::Bf16 => raw
                .bytes
                .chunks_exact(2)
                .map(|c| f32::from_bits(u32::from(u16::from_le_bytes(c.try_into().unwrap())) << 16))
                .collect(),
            other => panic!("{name}: {other:?}"),
        };
        cost(&values, cols, how)
    }

    fn input(&self, l: u16) -> Tensor {
        match l {
            0 => self.path.embed(&mut NoTaps).unwrap().data,
            l => self.tap(l - 1, Tap::Out),
        }
    }

    fn op(&self, path: &Optimized, l: u16, op: Op, tap: Tap) -> Tensor {
        let get = |t: &Tap| match t {
            Tap::Out => Some((*t, self.input(l))),
            _ => self.whole.get(Site::layer(l, *t), 0).map(|r| (*t, r.tensor.clone())),
        };
        let spec: &OpSpec = op.spec();
        let operands: Vec<_> = spec.reads.iter().filter_map(get).collect();
        let out = path.layer(l).unwrap().op(op, &operands, &requests().rows()).unwrap();
        out.into_iter().find(|(t, _)| *t == tap).unwrap().1
    }

    /// rel-L2 that a patch adds at its op, rows from `first` on.
    fn added(&self, asked: &str, l: u16, op: Op, tap: Tap, first: usize) -> f64 {
        let patched = optimized(Stock::None, &[asked], History::Cold, requests());
        let (x, y) = (self.op(&self.path, l, op, tap), self.op(&patched, l, op, tap));
        let values = |t: &Tensor| {
            let v = t.as_f32("op").unwrap()[first * t.width()..].to_vec();
            v.into_iter().map(f64::from)
        };
        rel_l2(values(&x), values(&y))
    }

    /// The same for the mixes of mHC, which the sigmoid of `post` gives back.
    fn added_mixes(&self, asked: &str, l: u16) -> f64 {
        let patched = optimized(Stock::None, &[asked], History::Cold, requests());
        let checkpoint = tiny();
        let raw = checkpoint.tensor(&format!("layers.{l}.hc_attn_base")).unwrap();
        let base: Vec<f64> =
            raw.bytes.chunks_exact(4).map(|c| f64::from(f32::from_le_bytes(c.try_into().unwrap()))).collect();
        let mixes = |path: &Optimized| -> Vec<f64> {
            let post = self.op(path, l, Op::HcAttnPre, Tap::HcAttnPost);
            let post = post.as_f32("post").unwrap().iter().map(|v| f64::from(*v)).enumerate();
            post.map(|(i, v)| (v / (2.0 - v)).ln() - base[4 + i % 4]).collect()
        };
        rel_l2(mixes(&self.path).into_iter(), mixes(&patched).into_iter())
    }

    /// rel-L2 of the decode rows' index scores of a whole layer.
    fn added_scores(&self, asked: &str, l: u16) -> f64 {
        let scores = |patches: &[&str]| -> Vec<f64> {
            let path = optimized(Stock::None, patches, History::Cold, requests());
            let x = Streams { data: self.input(l), ..path.embed(&mut NoTaps).unwrap() };
            let mut recorder = Recorder::all();
            path.layer(l).unwrap().run(&mut [Lane::new(&x, &mut recorder)]).unwrap();
            let t = recorder.get(Site::layer(l, Tap::AttnIndexScore), 0).unwrap().tensor.clone();
            t.as_f32("scores").unwrap()[DECODED * t.width()..].iter().map(|v| f64::from(*v)).collect()
        };
        rel_l2(scores(&[]).into_iter(), scores(&[asked]).into_iter())
    }

    fn added_logits(&self, asked: &str) -> f64 {
        let x = Streams { data: self.input(5), ..self.path.embed(&mut NoTaps).unwrap() };
        let logits = |path: &Optimized| {
            let t = path.head(&mut [Lane::new(&x, &mut NoTaps)]).unwrap().remove(0);
            t.as_f32("logits").unwrap().iter().map(|v| f64::from(*v)).collect::<Vec<f64>>()
        };
        let patched = optimized(Stock::None, &[asked], History::Cold, requests());
        rel_l2(logits(&self.path).into_iter(), logits(&patched).into_iter())
    }

    /// Attention of the decode rows of a layer in f64, its operands rounded: queries, keys, and P in a tile of 64.
    fn attention(&self, l: u16, unrotated: Rounding, p: fn(f64) -> f64) -> f64 {
        let (hd, heads, nope) = (96, 4, 64);
        let round = |x: &[f32]| -> Vec<f64> {
            let blocks = |row: &[f32]| {
                let mut out = rounded(&row[..nope], nope, unrotated);
                out.extend(row[nope..].iter().map(|v| bf16(f64::from(*v))));
                out
            };
            x.chunks(hd).flat_map(blocks).collect()
        };
        let exact = |x: &[f32]| x.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        let (q, kv) = (self.values(l, Tap::AttnQ), self.values(l, Tap::AttnKv));
        let checkpoint = tiny();
        let sink = checkpoint.tensor(&format!("layers.{l}.attn.attn_sink")).unwrap();
        let sink: Vec<f64> =
            sink.bytes.chunks_exact(4).map(|c| f64::from(f32::from_le_bytes(c.try_into().unwrap()))).collect();
        let run = |q: &[f64], kv: &[f64], p: &dyn Fn(f64) -> f64| -> Vec<f64> {
            let mut out = Vec::new();
            for row in DECODED..140usize {
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
        rel_l2(want.into_iter(), run(&round(&q), &round(&kv), &p).into_iter())
    }
}

/// One row of the table.
struct Entry {
    asked: &'static str,
    at: &'static str,
    measured: f64,
    predicted: f64,
}

const B: Rounding = Rounding::Each(bf16);

/// Layer 0 has a window only, 1 and 3 an indexer.
fn entries() -> Vec<Entry> {
    let c = Control::new();
    let mut out = Vec::new();
    let mut add = |asked, at, measured, predicted| out.push(Entry { asked, at, measured, predicted });
    let (d, streams) = (128, 4 * 128);
    let mix = |l: u16, how| Control::weight(&format!("layers.{l}.hc_attn_fn"), streams, how);
    let f = |how| cost(c.input(1).as_f32("x").unwrap(), streams, how);
    let t = Rounding::Each(tf32);
    add("bf16-mhc", "mixes", c.added_mixes("bf16-mhc", 1), root(&[f(B), mix(1, B)]));
    add("tf32-mhc", "mixes", c.added_mixes("tf32-mhc", 1), root(&[f(t), mix(1, t)]));
    // The streams are rounded to bf16, the weight is whole.
    add("exact-split-mhc", "mixes", c.added_mixes("exact-split-mhc", 1), f(B));
    // Sums of K products in f32, in two orders.
    let order = |k: f64| 0.41 * 2f64.powi(-24) * (k / 2.0).sqrt() * 2f64.sqrt();
    add("fused-qkv-a", "attn.kv", c.added("fused-qkv-a", 1, Op::KeyValue, Tap::AttnKv, 0), order(128.0));
    let kv = c.values(1, Tap::AttnKv);
    let quantised = |how: Rounding, dims: usize| {
        let rows = kv.chunks(96).flat_map(|row| {
            let mut new = rounded(&row[..dims], dims, how);
            new.extend(row[dims..].iter().map(|v| f64::from(*v)));
            new
        });
        rel_l2(kv.iter().map(|v| f64::from(*v)), rows)
    };
    let stored = |asked| c.added(asked, 1, Op::KeyValue, Tap::AttnKv, 0);
    add("fp8-kv", "attn.kv", stored("fp8-kv"), quantised(Rounding::Q8(64), 64));
    add("fp8-kv:layout=512", "attn.kv", stored("fp8-kv:layout=512"), quantised(Rounding::Each(e4m3), 96));
    let compressor = Control::weight("layers.1.attn.compressor.wkv.weight", d, B);
    let rows = |asked| c.added(asked, 1, Op::CompressProject, Tap::AttnKvp, 0);
    let x = c.cost(1, Tap::AttnIn, B);
    add("bf16-gemm", "attn.kvp", rows("bf16-gemm"), root(&[x, compressor, c.cost(1, Tap::AttnKvp, B)]));
    add("bf16-gemm:out=f32", "attn.kvp", rows("bf16-gemm:out=f32"), root(&[x, compressor]));
    let index = |how| root(&[c.cost(1, Tap::AttnIndexQ, how), c.cost(1, Tap::AttnIndexK, how)]);
    add("fp8-indexer", "attn.index_score", c.added_scores("fp8-indexer", 1), index(Rounding::Fp8(64)));
    let folded = root(&[index(Rounding::Fp8(64)), 1.7e-3]);
    add("fp8-indexer:product=bf16", "attn.index_score", c.added_scores("fp8-indexer:product=bf16", 1), folded);
    add("bf16-indexer", "attn.index_score", c.added_scores("bf16-indexer", 1), index(B));
    add("fp4-indexer", "attn.index_score", c.added_scores("fp4-indexer", 1), index(Rounding::Q4(32)));
    let attend = |asked| c.added(asked, 0, Op::Attend, Tap::AttnO, DECODED);
    add("mma-sparse-mla", "attn.o", attend("mma-sparse-mla"), c.attention(0, B, bf16));
    let partial = root(&[c.attention(0, B, bf16), 1.7e-3]);
    add("mma-sparse-mla:partials=bf16", "attn.o", attend("mma-sparse-mla:partials=bf16"), partial);
    let fp8 = root(&[c.attention(0, Rounding::Q8(64), |p| e4m3(p * 448.0) / 448.0), 1.7e-3]);
    add("fp8-q-sparse-mla", "attn.o", attend("fp8-q-sparse-mla"), fp8);
    let groups = c.values(1, Tap::AttnO);
    let groups = groups.chunks(192).flat_map(|g| {
        let mut new = rounded(&g[..128], 128, Rounding::Q8(128));
        new.extend(rounded(&g[128..], 64, Rounding::Q8(64)));
        new
    });
    let o = rel_l2(c.values(1, Tap::AttnO).into_iter().map(f64::from), groups);
    add("fp8-wo-a", "attn.oa", c.added("fp8-wo-a", 1, Op::OutputDown, Tap::AttnOa, 0), o);
    let gate = Control::weight("layers.1.ffn.gate.weight", d, B);
    let router = root(&[c.cost(1, Tap::FfnIn, B), gate, c.cost(1, Tap::FfnRouterLogits, B)]);
    add("bf16-router", "ffn.router_logits", c.added("bf16-router", 1, Op::Route, Tap::FfnRouterLogits, 0), router);
    // Gate and up each bring the rounding of x, then the activation is rounded.
    let experts = |how| {
        let x = c.cost(1, Tap::FfnIn, how);
        root(&[x, x, c.cost(1, Tap::FfnExpertAct, how)])
    };
    let routed = |asked| c.added(asked, 1, Op::Experts, Tap::FfnRouted, 0);
    add("nvfp4-moe", "ffn.routed", routed("nvfp4-moe"), experts(B));
    add("nvfp4-moe:act=fp4", "ffn.routed", routed("nvfp4-moe:act=fp4"), experts(Rounding::Nvfp4));
    add("mxfp4-moe", "ffn.routed", routed("mxfp4-moe"), experts(B));
    add("mxfp4-moe:act=mxfp8", "ffn.routed", routed("mxfp4-moe:act=mxfp8"), experts(Rounding::Q8(32)));
    add("fp4-to-fp8-experts", "ffn.routed", routed("fp4-to-fp8-experts"), experts(Rounding::Q8(128)));
    // R partial sums of |y|^2/R each, then R - 1 additions of growing size, rounded each.
    let y = c.cost(1, Tap::AttnOut, B);
    for (asked, ranks) in [("tp-allreduce", 2.0f64), ("tp-allreduce:ranks=8", 8.0)] {
        let sums = 1.0 + (2..=ranks as usize).map(|j| j as f64 / ranks).sum::<f64>();
        add(asked, "attn.out", c.added(asked, 1, Op::OutputUp, Tap::AttnOut, 0), y * sums.sqrt());
    }
    let head = c.whole.get(Site { block: karat_seam::Block::Head, tap: Tap::HeadCollapsed }, 0).unwrap().tensor.clone();
    let head = head.as_f32("head").unwrap();
    let w = |how| Control::weight("head.weight", d, how);
    let low = root(&[cost(head, d, B), w(B), 1.7e-3]);
    add("bf16-lm-head", "logits", c.added_logits("bf16-lm-head"), low);
    let low = root(&[cost(head, d, Rounding::Fp8(d)), w(Rounding::Fp8(d))]);
    add("fp8-lm-head", "logits", c.added_logits("fp8-lm-head"), low);
    out
}

/// Patches that round nothing under an unquantised stock, and why.
const EXACT: [(&str, &str); 5] = [
    ("chunked-prefill", "cuts prompts"),
    ("routed-scaling-in-topk", "moves a factor"),
    ("swiglu-clamp", "spares two roundings"),
    ("indexer-hadamard", "orthogonal"),
    ("bf16-compressor-state", "state only: see below"),
];

#[test]
fn a_patch_costs_what_its_roundings_cost() {
    let entries = entries();
    let mut table = String::new();
    let mut bad = Vec::new();
    for e in &entries {
        let name = e.asked.split(':').next().unwrap();
        let patch = patches().iter().find(|p| p.name == name).unwrap();
        let claimed = patch.claims[0].error;
        let ratio = e.measured / e.predicted;
        writeln!(
            table,
            "| `{}` | {} | {claimed:.1e} | {:.1e} | {:.1e} | {ratio:.2} |",
            e.asked, e.at, e.measured, e.predicted
        )
        .unwrap();
        // An error of the order of additions has an upper bound only.
        let least = if e.predicted < 1e-5 { 0.0 } else { 0.3 };
        if !(least..=1.5).contains(&ratio) {
            bad.push(format!("{}: {:.2e} against {:.2e}", e.asked, e.measured, e.predicted));
        }
    }
    println!("{table}");
    assert!(bad.is_empty(), "{bad:#?}");
    for patch in patches() {
        let known = entries.iter().any(|e| e.asked.split(':').next() == Some(patch.name));
        let exact = EXACT.iter().any(|(name, _)| *name == patch.name);
        assert!(known != exact, "{} has no prediction", patch.name);
    }
    committed(&table);
}

/// The committed table has the same rows, and numbers that agree to a tenth.
fn committed(table: &str) {
    let text = include_str!("../../docs/patches.md");
    let numbers =
        |line: &str| -> Vec<f64> { line.split('|').filter_map(|cell| cell.trim().parse::<f64>().ok()).collect() };
    for line in table.lines() {
        let key = line.split('|').nth(1).unwrap();
        let found = text.lines().find(|l| l.starts_with(&format!("|{key}|")));
        let found = found.unwrap_or_else(|| panic!("docs/patches.md lacks the row{line}"));
        for (a, b) in numbers(line).iter().zip(numbers(found)) {
            assert!((a - b).abs() <= 0.11 * a.abs() || a.abs() < 1e-5, "docs/patches.md: {found} is now {line}");
        }
    }
    for patch in patches() {
        assert!(text.contains(&format!("`{}", patch.name)), "docs/patches.md lacks {}", patch.name);
    }
}
