//! K3, mHC coefficients.

use crate::choice;
use crate::cuda::{Buffer, Device, Mhc, MhcCall};
use crate::evidence::SpeedRow;
use karat_model::Result;

use super::cases::{Cases, wide};
use super::naive::Shape;
use super::numbers::{Random, terms};
use super::timing::median;
use super::{Suite, exact};

/// Images and the bound of their mixes: one rounding of fn; two terms; exact products, f32 sums.
const IMAGES: [(&str, f64); 6] = [
    ("mhc-1-mid", 4e-3),
    ("mhc-2-mid", 6e-6),
    ("mhc-3-mid", 3e-7),
    ("mhc-1-small", 4e-3),
    ("mhc-2-small", 6e-6),
    ("mhc-3-small", 3e-7),
];

/// Width of the released model: 4 streams of 4096.
const WIDTH: u32 = 16_384;
const ITERATIONS: u32 = 20;

/// What is timed, with its iterations.
const TIMED: [(&str, u32); 2] = [("products and sums of squares", 0), ("with Sinkhorn", ITERATIONS)];

/// Operands on the device and what the CPU needs of them.
struct Operands {
    x: Buffer,
    fn_terms: Buffer,
    fn_f32: Buffer,
    base: Buffer,
    scale: Buffer,
    outputs: [Buffer; 4],
    host: (Vec<u16>, Vec<f32>, Vec<f32>, Vec<f32>),
    tokens: u32,
    width: u32,
    splits: u32,
}

impl Operands {
    fn new(device: &Device, random: &mut Random, tokens: u32, width: u32, splits: u32) -> Result<Self> {
        let (t, w) = (tokens as usize, width as usize);
        let x = random.bf16s(t * w);
        // Mixes of deviation about 1.
        let weight = random.f32s(24 * w, 1.0 / (w as f32).sqrt());
        let (base, scale) = (random.f32s(24, 0.5), vec![1.0, 0.8, 1.5]);
        Ok(Self {
            x: device.upload(&x)?,
            fn_terms: device.upload(&terms(&weight, 3))?,
            fn_f32: device.upload(&weight)?,
            base: device.upload(&base)?,
            scale: device.upload(&scale)?,
            // All bits set: a NaN wherever nothing is written.
            outputs: [
                device.alloc(splits as usize * t * 128, 0xff)?,
                device.alloc(t * 96, 0xff)?,
                device.alloc(t * 4, 0xff)?,
                device.alloc(t * 96, 0xff)?,
            ],
            host: (x, weight, base, scale),
            tokens,
            width,
            splits,
        })
    }

    fn call<'a>(&'a self, x: &'a Buffer, iterations: u32) -> MhcCall<'a> {
        MhcCall {
            x,
            fn_terms: &self.fn_terms,
            fn_f32: &self.fn_f32,
            base: &self.base,
            scale: &self.scale,
            partial: &self.outputs[0],
            mixes: &self.outputs[1],
            sumsq: &self.outputs[2],
            coefficients: &self.outputs[3],
            tokens: self.tokens,
            width: self.width,
            splits: self.splits,
            iterations,
        }
    }

    /// Poisons all outputs, runs, and gives back mixes, sums of squares and coefficients.
    fn outputs(&self, device: &Device, mhc: &Mhc) -> Result<[Vec<f64>; 3]> {
        self.outputs.iter().try_for_each(|b| device.fill(b, 0xff))?;
        mhc.run(device, &self.call(&self.x, ITERATIONS))?;
        let [_, mixes, sumsq, coefficients] = &self.outputs;
        let take = |b: &Buffer| device.download::<f32>(b).map(|v| wide(&v));
        Ok([take(mixes)?, take(sumsq)?, take(coefficients)?])
    }
}

pub(super) fn correctness(suite: &mut Suite) -> Result<()> {
    let device = &suite.device;
    let load = |name: &str| Mhc::new(&suite.loader.load(device, name)?);
    let (naive, exactly) = (load("naive-mhc-f32")?, load("naive-mhc-f64")?);
    for (name, bound) in IMAGES {
        if !suite.loader.list.image(name)?.arches().contains(&device.arch()) {
            continue;
        }
        let mhc = load(name)?;
        // Coefficients pass through exp and 20 divisions: their errors are those of the mixes, a little larger.
        let mut cases = [("mixes", bound), ("sumsq", 3e-7), ("coefficients", 4.0 * bound)]
            .map(|(quantity, bound)| Cases::new(name, quantity, bound));
        for seed in 0..suite.seeds {
            let mut random = Random::new(seed + 1);
            let small = seed < 5;
            let tokens = 1 + random.below(if small { 20 } else { 400 });
            let width = if seed % 4 == 3 { WIDTH } else { 64 * (1 + random.below(if small { 8 } else { 40 })) };
            // No split may have more than 64 slabs of 64 columns.
            let splits = (width / 4096).max(1) + random.below((width / 64).min(9));
            let splits = splits.min(width / 64);
            let it = Operands::new(device, &mut random, tokens, width, splits)?;
            let what = format!("seed {seed}: {tokens} tokens, width {width}, {splits} splits");
            let (found, plain, right) =
                (it.outputs(device, &mhc)?, it.outputs(device, &naive)?, it.outputs(device, &exactly)?);
            for i in 0..3 {
                cases[i].add(&found[i], &right[i], &plain[i], &what);
            }
            if small {
                let (x, weight, base, scale) = &it.host;
                let mixes = exact::mixes(x, weight, width as usize);
                let coefficients: Vec<f64> =
                    mixes.chunks(24).flat_map(|m| exact::coefficients(m, base, scale, ITERATIONS)).collect();
                cases[0].add_cpu(&found[0], &mixes, &what);
                cases[2].add_cpu(&found[2], &coefficients, &what);
            }
        }
        suite.evidence.correctness.extend(cases.map(Cases::row));
    }
    Ok(())
}

pub(super) fn speed(suite: &mut Suite) -> Result<()> {
    let device = &suite.device;
    let naive = Mhc::new(&suite.loader.load(device, "naive-mhc-f32")?)?;
    for tokens in [64, 1024, 8192] {
        let bytes = tokens as usize * WIDTH as usize * 2;
        // Several inputs, together far larger than the L2 cache.
        let sets = (512_usize << 20).div_ceil(bytes).clamp(3, 64);
        let mut random = Random::new(7);
        let base = random.bf16s(bytes / 2 + sets * 4096);
        let xs = (0..sets).map(|i| device.upload(&base[i * 4096..][..bytes / 2])).collect::<Result<Vec<_>>>()?;
        let plain = Operands::new(device, &mut random, tokens, WIDTH, 1)?;
        let (mut rows, mut counterparts) = (Vec::new(), [None, None]);
        for round in 0..2 {
            let mut at = 0;
            for name in [1, 2, 3].map(|terms| choice::mhc(terms, tokens)) {
                let mhc = Mhc::new(&suite.loader.load(device, name)?)?;
                let splits = mhc.splits(device, tokens, WIDTH);
                let it = Operands::new(device, &mut random, tokens, WIDTH, splits)?;
                for (words, iterations) in TIMED {
                    let count = sets.max(12);
                    let us = median(device, count, |i| mhc.run(device, &it.call(&xs[i % sets], iterations)))?;
                    if round == 1 {
                        let row: &mut SpeedRow = &mut rows[at];
                        row.us_again = us;
                    } else {
                        rows.push(SpeedRow {
                            image: name.to_string(),
                            operation: "mhc".to_string(),
                            shape: format!("{tokens} x {WIDTH}, {words}, {splits} splits"),
                            us,
                            us_again: f64::NAN,
                            tb_s: bytes as f64 / us / 1e6,
                            tflop_s: 24.0 * bytes as f64 / us / 1e6,
                            peers: std::collections::BTreeMap::new(),
                            naive: None,
                        });
                    }
                    at += 1;
                }
            }
            for ((words, iterations), slot) in TIMED.into_iter().zip(&mut counterparts) {
                let words = &format!("{tokens} x {WIDTH}, {words}");
                let (work, count) = (24.0 * bytes as f64, sets.max(12));
                let shape = Shape { image: "naive-mhc-f32", operation: "mhc", words, work, count };
                let body = |i: usize| naive.run(device, &plain.call(&xs[i % sets], iterations));
                suite.naive.time(device, slot, &shape, body);
            }
            if round == 0 {
                let peers = suite.peers.time(&format!("mhc {tokens}"))?;
                rows.iter_mut().for_each(|row| row.peers.clone_from(&peers));
            }
        }
        rows.iter_mut().zip(counterparts.iter().cycle()).for_each(|(row, naive)| row.naive.clone_from(naive));
        suite.evidence.speed.extend(rows);
    }
    Ok(())
}
