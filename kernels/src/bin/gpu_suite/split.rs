//! The part `split`: golden's exact-split tier against f64 and its bound, beside the tier of bits over a whole run, and what either costs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use karat_kernels::cuda::{Device, Loader};
use karat_kernels::evidence::Place;
use karat_kernels::golden::{
    CANCELLING, DECLARED, Gpu, Products, SplitEvidence, Taken, Tier, Tiers, Times, accumulator, bound, least, median,
    stated, tiers,
};
use karat_kernels::pack::Pack;
use karat_model::{Checkpoint, Error, Result};
use karat_reference::{Golden, Mode};
use karat_seam::{Lane, NoTaps, Path as _, Requests, Sequence};
use karat_trace::told;

/// What the part is given.
pub(crate) struct Part {
    pub(crate) pack: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) date: String,
    /// Folder of the model.
    pub(crate) model: PathBuf,
    pub(crate) seeds: u64,
}

/// Tokens of the whole run.
const TOKENS: usize = 400;
/// Timed products `[s,k]` by `[n,k]`.
const SHAPES: [(usize, usize, usize); 4] =
    [(4096, 4096, 4096), (2048, 4096, 2048), (1, 4096, 4096), (4096, 4096, 16_384)];
/// Rounds of a product, on the tier of bits and on the other.
const ROUNDS: [usize; 2] = [3, 9];
/// Rounds of a layer.
const LAYERS: usize = 7;

/// What operands are like.
const KINDS: [&str; 6] =
    ["mixed signs", "one sign", CANCELLING, "sizes up to 2^40 apart", "one row", "under the last kept bit"];

/// Runs it; true if every product keeps its bound and everything was measured.
pub(crate) fn run(it: &Part) -> Result<bool> {
    let start = Instant::now();
    let loader = Loader::new(Some(Pack::open(&it.pack)?), None, None)?;
    let device = Device::open()?;
    println!("{}", device.describe());
    let arch = device.arch();
    let place = Place {
        name: device.name.clone(),
        arch: arch.to_string(),
        driver: device.driver,
        processors: device.processors,
    };
    let bits = Gpu::of_tier(Tier::Bits, device, &loader)?;
    let split = Gpu::of_tier(Tier::ExactSplit, Device::open()?, &loader)?;
    let checkpoint = Arc::new(Checkpoint::open(&it.model)?);
    let weights: String = checkpoint.weights_sha256().iter().map(|b| format!("{b:02x}")).collect();
    let mut images = bits.digests().clone();
    images.extend(split.split_digest());
    let mut evidence = SplitEvidence {
        format: 1,
        date: it.date.clone(),
        device: place,
        images,
        accumulator: accumulator(arch).unwrap_or(DECLARED),
        probed: accumulator(arch).is_some(),
        stated: stated(arch),
        products: KINDS.iter().map(|kind| Products { kind: (*kind).to_string(), ..Products::default() }).collect(),
        model: format!("{} {weights}", checkpoint.label()),
        tokens: TOKENS as u64,
        taken: Taken::default(),
        tiers: Tiers::default(),
        times: Vec::new(),
    };
    for seed in 0..it.seeds {
        for row in &mut evidence.products {
            product(&bits, &split, arch, seed, row)?;
        }
    }
    for row in &evidence.products {
        println!(
            "{:<24} {:>3} products, {:>8} outputs, {} bad: {:.3} of the bound ({}), rel-L2 {:.2e}, tier of bits {:.2e}",
            row.kind, row.cases, row.values, row.bad, row.worst, row.worst_case, row.rel_l2, row.bits_rel_l2
        );
    }
    println!("products: {:.1} s", start.elapsed().as_secs_f64());
    write(&it.out, &evidence)?;
    for (s, n, k) in SHAPES {
        let what = format!("product {s} x {n} x {k}");
        let operations = 2.0 * (s * n * k) as f64;
        let mut random = Random(27);
        let x: Vec<f32> = (0..s * k).map(|_| random.normal()).collect();
        // Any order of a weight will do here.
        let w: Vec<f32> = (0..n.div_ceil(16) * 16 * k).map(|_| upper_half(random.normal())).collect();
        let [bits, split] =
            [(&bits, ROUNDS[0]), (&split, ROUNDS[1])].map(|(gpu, rounds)| gpu.product_ms(&x, &w, (n, k), rounds));
        let (bits, split) = (bits?, split?);
        evidence.times.push(Times { what, operations, bits, split });
    }
    whole(&checkpoint, &bits, &split, &mut evidence)?;
    for it in &evidence.times {
        let (a, b) = (median(it.bits.iter().copied()), median(it.split.iter().copied()));
        let rate = |ms: f64| it.operations / ms / 1e9;
        println!(
            "{:<32} bits {a:>9.3} ms, exact-split {b:>9.3} ms ({:.2}x; {:.1} and {:.1} TFLOP/s)",
            it.what,
            a / b,
            rate(a),
            rate(b)
        );
    }
    write(&it.out, &evidence)?;
    let faults = evidence.faults()?;
    faults.iter().for_each(|fault| println!("FAULT: {fault}"));
    println!("split: {:.1} s in all; {} faults", start.elapsed().as_secs_f64(), faults.len());
    Ok(faults.is_empty())
}

fn write(path: &Path, evidence: &SplitEvidence) -> Result<()> {
    let text = serde_json::to_string_pretty(evidence)
        .map_err(|e| Error::input(format!("the evidence cannot be written: {e}")))?;
    std::fs::write(path, text + "\n")
        .map_err(|e| Error::input(format!("the evidence cannot be written: {e}")).at(path.display()))
}

/// Seeded numbers (splitmix64).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn up_to(&mut self, n: usize) -> usize {
        1 + (self.bits() % n as u64) as usize
    }

    /// About normal: a sum of four.
    fn normal(&mut self) -> f32 {
        let bits = self.bits();
        let sum: i64 = (0..4).map(|i| ((bits >> (16 * i)) & 0xffff) as i64).sum();
        (sum - 131_070) as f32 * (1.732 / 65_536.0)
    }
}

/// The upper half of an f32 is a bf16.
fn upper_half(v: f32) -> f32 {
    f32::from_bits(v.to_bits() & 0xffff_0000)
}

/// One product of a kind on both tiers, against f64.
fn product(bits: &Gpu, split: &Gpu, arch: &str, seed: u64, row: &mut Products) -> Result<()> {
    let mut random = Random(seed * 64 + row.kind.len() as u64);
    let is_long = seed % 5 == 4;
    let most = if is_long { 60 } else { 240 };
    let n = random.up_to(most);
    let s = if row.kind == KINDS[4] { 1 } else { random.up_to(most) };
    let k = if is_long { 16_384 } else { 8 * random.up_to(200) };
    let mut x: Vec<f32> = (0..s * k).map(|_| random.normal()).collect();
    let mut w: Vec<f32> = (0..n * k).map(|_| upper_half(random.normal())).collect();
    match row.kind.as_str() {
        "one sign" => x.iter_mut().chain(&mut w).for_each(|v| *v = v.abs()),
        CANCELLING => {
            x.chunks_exact_mut(2).for_each(|pair| pair[1] = -pair[0] * (1.0 - f32::EPSILON));
            w.chunks_exact_mut(2).for_each(|pair| pair[1] = pair[0]);
        }
        "sizes up to 2^40 apart" => x.iter_mut().for_each(|v| *v *= 2f32.powi((random.bits() % 40) as i32 - 20)),
        // All but one of every 64 is lost, if a tensor core adds as it is declared.
        "under the last kept bit" => {
            w.fill(1.0);
            let small = 2f32.powi(-25) * 0.99;
            x.iter_mut().enumerate().for_each(|(i, v)| *v = if i % k % 64 == 0 { 1.0 } else { small });
        }
        _ => {}
    }
    let panels = panels(&w, k);
    let found = split.product(&x, &panels, (n, k))?;
    let other = bits.product(&x, &panels, (n, k))?;
    let exact = exactly(&x, &w, k);
    let bound = bound(accumulator(arch).unwrap_or(DECLARED), k);
    let rel_l2 = |y: &[f32]| {
        let sums = y
            .iter()
            .zip(&exact)
            .fold((0.0, 0.0), |(d, e), (y, (sum, _))| (d + (f64::from(*y) - sum).powi(2), e + sum * sum));
        (sums.0 / sums.1).sqrt()
    };
    let what = format!("seed {seed}: {s} x {n} x {k}");
    for (y, (sum, size)) in found.iter().zip(&exact) {
        let parts = (f64::from(*y) - sum).abs() / (bound * size + least(k));
        row.bad += u64::from(!y.is_finite());
        if parts > row.worst || parts.is_nan() {
            (row.worst, row.worst_case) = (parts, what.clone());
        }
    }
    // Alone, a row has the bits that it has among others.
    let alone = split.product(&x[(s - 1) * k..], &panels, (n, k))?;
    row.bad += alone.iter().zip(&found[(s - 1) * n..]).filter(|(a, b)| a.to_bits() != b.to_bits()).count() as u64;
    row.rel_l2 = row.rel_l2.max(rel_l2(&found));
    row.bits_rel_l2 = row.bits_rel_l2.max(rel_l2(&other));
    (row.cases, row.values) = (row.cases + 1, row.values + found.len() as u64);
    Ok(())
}

/// Rows `[n,k]` as panels of 16.
fn panels(w: &[f32], k: usize) -> Vec<f32> {
    let mut out = vec![0.0; (w.len() / k).div_ceil(16) * k * 16];
    for (row, values) in w.chunks_exact(k).enumerate() {
        values.iter().enumerate().for_each(|(at, v)| out[(row / 16 * k + at) * 16 + row % 16] = *v);
    }
    out
}

/// Sums of products and of their sizes, in f64 by all threads: a product has 32 bits.
fn exactly(x: &[f32], w: &[f32], k: usize) -> Vec<(f64, f64)> {
    let (n, threads) = (w.len() / k, std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    let mut out = vec![(0.0, 0.0); x.len() / k * n];
    std::thread::scope(|scope| {
        let share = (x.len() / k).div_ceil(threads);
        for (x, out) in x.chunks(share * k).zip(out.chunks_mut(share * n)) {
            scope.spawn(move || {
                for (x, out) in x.chunks(k).zip(out.chunks_mut(n)) {
                    for (w, out) in w.chunks(k).zip(out) {
                        for (x, w) in x.iter().zip(w) {
                            let product = f64::from(*x) * f64::from(*w);
                            *out = (out.0 + product, out.1 + product.abs());
                        }
                    }
                }
            });
        }
    });
    out
}

/// A whole run on both tiers and in f64, then one layer on either.
fn whole(checkpoint: &Arc<Checkpoint>, bits: &Gpu, split: &Gpu, evidence: &mut SplitEvidence) -> Result<()> {
    let vocab = checkpoint.config().vocab_size;
    let ids: Vec<u32> = (0..TOKENS).map(|i| ((i * 167 + i * i * 31) % vocab) as u32).collect();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let before = split.taken().unwrap_or_default();
    evidence.tiers = tiers(checkpoint, &ids, Some(bits.backend()), &split.backend(), threads)?;
    let after = split.taken().unwrap_or_default();
    evidence.taken = after.since(&before);
    println!("{}", evidence.taken.describe());
    for it in evidence.tiers.taps.iter().chain(&evidence.tiers.decisions) {
        println!(
            "{:<28} {:>9} values: tiers {:.2e} apart; from f64: bits {:.2e}, exact-split {:.2e}",
            it.name, it.values, it.tiers, it.bits, it.split
        );
    }
    let ([mean, most], [tokens, flips]) = (evidence.tiers.kl, evidence.tiers.flips);
    println!("logits: KL mean {mean:.2e}, most {most:.2e} nats; {flips} of {tokens} most likely ids differ");
    let requests = Requests { seqs: vec![Sequence::prompt("golden", ids)] };
    let mut times = Vec::new();
    for gpu in [bits, split] {
        let path =
            Golden::new(checkpoint.clone(), requests.clone(), Mode::F32, threads)?.computed_by(Some(gpu.backend()));
        let mut see = NoTaps;
        let x = path.embed(&mut see).map_err(told)?;
        let layer = path.layer(path.blocks().layers - 1).map_err(told)?;
        let mut one = || -> Result<f64> {
            let start = Instant::now();
            layer.run(&mut [Lane::new(&x, &mut see)]).map_err(told)?;
            Ok(start.elapsed().as_secs_f64() * 1e3)
        };
        // The first one brings the weights.
        one()?;
        times.push((0..LAYERS).map(|_| one()).collect::<Result<Vec<f64>>>()?);
    }
    let split = times.pop().unwrap_or_default();
    let bits = times.pop().unwrap_or_default();
    evidence.times.push(Times { what: format!("last layer, {TOKENS} tokens"), operations: 0.0, bits, split });
    Ok(())
}
