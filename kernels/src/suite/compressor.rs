//! K5, the compressor.

use std::collections::BTreeMap;

use crate::choice;
use crate::cuda::{Buffer, CompressCall, Compressor, Device};
use crate::evidence::SpeedRow;
use karat_model::Result;

use super::cases::{Cases, wide};
use super::naive::Shape;
use super::numbers::{Random, from_bf16};
use super::timing::median;
use super::{Suite, exact};

/// Images and bounds of the entries: three bf16 roundings, and those of the rows.
const IMAGES: [(&str, f64); 3] = [("compress", 3.4e-3), ("compress-long", 3.4e-3), ("compress-bf16", 4.6e-3)];

/// Columns of x in the released model.
const WIDTH: u32 = 4096;

/// What the host knows of the operands.
pub(super) struct Host {
    pub(super) x: Vec<u16>,
    pub(super) w: Vec<u16>,
    pub(super) ape: Vec<f32>,
    pub(super) norm: Vec<f32>,
    pub(super) turns: Vec<f32>,
    pub(super) width: u32,
    pub(super) dims: u32,
    pub(super) ratio: u32,
    pub(super) overlap: bool,
    pub(super) rope: u32,
}

struct Operands {
    x: Buffer,
    w: Buffer,
    ape: Buffer,
    norm: Buffer,
    turns: Buffer,
    rows: Buffer,
    pooled: Buffer,
    scale: Buffer,
    entries: Buffer,
}

impl Host {
    fn new(random: &mut Random, tokens: u32, width: u32, dims: u32, ratio: u32, overlap: bool) -> Self {
        let columns = dims * if overlap { 2 } else { 1 };
        let windows = tokens / ratio;
        // Rows of deviation about 1.
        let gain = 1.0 / (width as f32).sqrt();
        let w = random.f32s((2 * columns * width) as usize, gain).iter().map(|v| super::numbers::to_bf16(*v)).collect();
        let rope = 64;
        let turns = (0..windows * rope / 2).flat_map(|i| {
            let angle = f64::from(i % (rope / 2) + 1) * f64::from(i / (rope / 2)) * 0.37;
            [angle.cos() as f32, angle.sin() as f32]
        });
        Self {
            x: random.bf16s((tokens * width) as usize),
            w,
            ape: random.f32s((ratio * columns) as usize, 1.0),
            norm: (0..dims).map(|_| 1.0 + 0.2 * random.normal()).collect(),
            turns: turns.collect(),
            width,
            dims,
            ratio,
            overlap,
            rope,
        }
    }

    fn tokens(&self) -> u32 {
        (self.x.len() / self.width as usize) as u32
    }

    fn windows(&self) -> u32 {
        self.tokens() / self.ratio
    }
}

impl Operands {
    fn new(device: &Device, host: &Host) -> Result<Self> {
        let (tokens, windows, dims) = (host.tokens() as usize, host.windows() as usize, host.dims as usize);
        let columns = dims * if host.overlap { 2 } else { 1 };
        Ok(Self {
            x: device.upload(&host.x)?,
            w: device.upload(&host.w)?,
            ape: device.upload(&host.ape)?,
            norm: device.upload(&host.norm)?,
            turns: device.upload(&host.turns)?,
            rows: device.alloc(tokens * 2 * columns * 4, 0xff)?,
            pooled: device.alloc(windows * dims * 4, 0xff)?,
            scale: device.alloc(windows * 4, 0xff)?,
            entries: device.alloc(windows * dims * 4, 0xff)?,
        })
    }

    fn call<'a>(&'a self, host: &Host, x: &'a Buffer) -> CompressCall<'a> {
        CompressCall {
            x,
            w: &self.w,
            ape: &self.ape,
            norm: &self.norm,
            turns: &self.turns,
            rows: &self.rows,
            pooled: &self.pooled,
            scale: &self.scale,
            entries: &self.entries,
            tokens: host.tokens(),
            width: host.width,
            dims: host.dims,
            overlap: host.overlap,
            ratio: host.ratio,
            rope: host.rope,
            base: 0,
            first_token: 0,
            first_window: 0,
            windows: host.windows(),
        }
    }

    fn poison(&self, device: &Device) -> Result<()> {
        [&self.rows, &self.pooled, &self.scale, &self.entries].into_iter().try_for_each(|b| device.fill(b, 0xff))
    }

    /// Poisons everything that is written, runs, and gives back the entries.
    fn output(&self, device: &Device, compressor: &Compressor, host: &Host, naive: bool) -> Result<Vec<f64>> {
        self.poison(device)?;
        compressor.run(device, &self.call(host, &self.x))?;
        if naive {
            return Ok(wide(&device.download::<f32>(&self.entries)?));
        }
        let bits = device.download::<u16>(&self.entries)?;
        Ok(bits[..bits.len() / 2].iter().map(|b| f64::from(from_bf16(*b))).collect())
    }

    /// The same in two calls, cut after `cut` tokens: the second one pools all windows.
    fn in_two(&self, device: &Device, compressor: &Compressor, host: &Host, cut: u32) -> Result<Vec<f64>> {
        self.poison(device)?;
        let (head, tail) = host.x.split_at((cut * host.width) as usize);
        let (head, tail) = (device.upload(head)?, device.upload(tail)?);
        compressor.run(device, &CompressCall { tokens: cut, windows: 0, ..self.call(host, &head) })?;
        let rest = host.tokens() - cut;
        compressor.run(device, &CompressCall { tokens: rest, first_token: cut, ..self.call(host, &tail) })?;
        let bits = device.download::<u16>(&self.entries)?;
        Ok(bits[..bits.len() / 2].iter().map(|b| f64::from(from_bf16(*b))).collect())
    }
}

pub(super) fn correctness(suite: &mut Suite) -> Result<()> {
    let device = &suite.device;
    let load = |name: &str| Compressor::new(&suite.loader.load(device, name)?);
    let (naive, exactly) = (load("naive-compress-f32")?, load("naive-compress-f64")?);
    for (name, bound) in IMAGES {
        if !suite.loader.list.image(name)?.arches().contains(&device.arch()) {
            continue;
        }
        let compressor = load(name)?;
        let mut cases = Cases::new(name, "entries", bound);
        let mut chunked = Cases::new(name, "entries that a cut changes", 0.0);
        for seed in 0..suite.seeds {
            let mut random = Random::new(seed + 501);
            let small = seed < 5;
            let (dims, overlap) = [(512, true), (128, true), (512, false)][seed as usize % 3];
            let ratio = if overlap { 2 + random.below(4) } else { [16, 128][seed as usize % 2] };
            let windows = 1 + random.below(if small { 4 } else { 60 });
            let tokens = windows * ratio + random.below(ratio);
            let width = 8 * (1 + random.below(if small { 20 } else { 200 }));
            let host = Host::new(&mut random, tokens, width, dims, ratio, overlap);
            let it = Operands::new(device, &host)?;
            let what =
                format!("seed {seed}: {tokens} tokens by {width}, {dims} dims, windows of {ratio}, overlap {overlap}");
            let right = it.output(device, &exactly, &host, true)?;
            let plain = it.output(device, &naive, &host, true)?;
            let found = it.output(device, &compressor, &host, false)?;
            cases.add(&found, &right, &plain, &what);
            if small {
                cases.add_cpu(&found, &exact::entries(&host), &what);
            }
            let cut = 1 + random.below(tokens - 1);
            let again = it.in_two(device, &compressor, &host, cut)?;
            let differ = again.iter().zip(&found).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
            chunked.add(&[differ as f64], &[0.0], &[0.0], &format!("{what}, cut after {cut}"));
        }
        suite.evidence.correctness.extend([cases.row(), chunked.row()]);
    }
    Ok(())
}

pub(super) fn speed(suite: &mut Suite) -> Result<()> {
    let device = &suite.device;
    let naive = Compressor::new(&suite.loader.load(device, "naive-compress-f32")?)?;
    for (tokens, dims, ratio) in [(8192_u32, 512_u32, 4_u32), (8192, 512, 128), (8192, 128, 4), (512, 512, 4)] {
        let mut random = Random::new(57);
        let host = Host::new(&mut random, tokens, WIDTH, dims, ratio, ratio == 4);
        let it = Operands::new(device, &host)?;
        let inputs: Vec<Buffer> =
            (0..3).map(|_| device.upload(&random.bf16s((tokens * WIDTH) as usize))).collect::<Result<_>>()?;
        let (mut table, mut counterpart) = (Vec::new(), None);
        let outputs = f64::from(2 * dims * if ratio == 4 { 2 } else { 1 });
        let (t, w) = (f64::from(tokens), f64::from(WIDTH));
        let words = &format!("{tokens} tokens by {WIDTH}, {dims} dims, windows of {ratio}");
        for round in 0..2 {
            for (at, bf16) in [false, true].into_iter().enumerate() {
                let name = choice::compress(device.arch(), tokens, bf16);
                let compressor = Compressor::new(&suite.loader.load(device, name)?)?;
                let us = median(device, 6, |i| compressor.run(device, &it.call(&host, &inputs[i % 3])))?;
                if round == 1 {
                    let row: &mut SpeedRow = &mut table[at];
                    row.us_again = us;
                    continue;
                }
                table.push(SpeedRow {
                    image: name.to_string(),
                    operation: "compress".to_string(),
                    shape: words.clone(),
                    us,
                    us_again: f64::NAN,
                    tb_s: 2.0 * (t * w + outputs * w + t / f64::from(ratio) * f64::from(dims)) / us / 1e6,
                    tflop_s: 2.0 * t * w * outputs / us / 1e6,
                    peers: BTreeMap::new(),
                    naive: None,
                });
            }
            let work = 2.0 * t * w * outputs;
            let shape = Shape { image: "naive-compress-f32", operation: "compress", words, work, count: 6 };
            let body = |i: usize| naive.run(device, &it.call(&host, &inputs[i % 3]));
            suite.naive.time(device, &mut counterpart, &shape, body);
            if round == 0 {
                let peers = suite.peers.time(&format!("compress {tokens} {dims} {ratio}"))?;
                table.iter_mut().for_each(|row| row.peers.clone_from(&peers));
            }
        }
        table.iter_mut().for_each(|row| row.naive.clone_from(&counterpart));
        suite.evidence.speed.extend(table);
    }
    Ok(())
}
