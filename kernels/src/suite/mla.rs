//! K1, sparse MLA decode.

use std::collections::BTreeMap;

use crate::choice;
use crate::cuda::{Buffer, Device, Mla, MlaCall};
use crate::evidence::SpeedRow;
use karat_model::Result;

use super::cases::{Cases, wide};
use super::naive::Shape;
use super::numbers::{Random, from_bf16};
use super::timing::median;
use super::{Suite, exact};

/// Images and bounds: P and the output are rounded to bf16 once each (1.2e-3 and 1.7e-3), partials in bf16 once more.
const IMAGES: [(&str, f64); 8] = [
    ("mla-64", 2.6e-3),
    ("mla-64-bf16", 3.2e-3),
    ("mla-32", 2.6e-3),
    ("mla-32-bf16", 3.2e-3),
    ("mla-16", 2.6e-3),
    ("mla-16-bf16", 3.2e-3),
    ("mla-small", 2.6e-3),
    ("mla-small-bf16", 3.2e-3),
];

/// Window and selected entries of a CSA layer.
const KEYS: u32 = 640;

struct Operands {
    q: Buffer,
    chosen: Buffer,
    sink: Buffer,
    partial: Buffer,
    lse: Buffer,
    scores: Buffer,
    out: Buffer,
    batch: u32,
    keys: u32,
    splits: u32,
}

impl Operands {
    fn new(device: &Device, host: (&[u16], &[i32], &[f32]), keys: u32, splits: u32) -> Result<Self> {
        let batch = host.0.len() / (64 * 512);
        let all = batch * 64 * 512;
        Ok(Self {
            q: device.upload(host.0)?,
            chosen: device.upload(host.1)?,
            sink: device.upload(host.2)?,
            partial: device.alloc(splits as usize * all * 4, 0xff)?,
            lse: device.alloc(splits as usize * batch * 256, 0xff)?,
            scores: device.alloc(batch * 64 * keys as usize * 4, 0xff)?,
            out: device.alloc(all * 4, 0xff)?,
            batch: batch as u32,
            keys,
            splits,
        })
    }

    fn call<'a>(&'a self, cache: &'a Buffer, chosen: &'a Buffer) -> MlaCall<'a> {
        MlaCall {
            q: &self.q,
            cache,
            chosen,
            sink: &self.sink,
            partial: &self.partial,
            lse: &self.lse,
            scores: &self.scores,
            out: &self.out,
            batch: self.batch,
            keys: self.keys,
            splits: self.splits,
        }
    }

    /// Poisons everything that is written, runs, and gives back the output.
    fn output(&self, device: &Device, mla: &Mla, cache: &Buffer, naive: bool) -> Result<Vec<f64>> {
        [&self.partial, &self.lse, &self.scores, &self.out].into_iter().try_for_each(|b| device.fill(b, 0xff))?;
        mla.run(device, &self.call(cache, &self.chosen))?;
        if naive {
            return Ok(wide(&device.download::<f32>(&self.out)?));
        }
        let bits = device.download::<u16>(&self.out)?;
        Ok(bits[..bits.len() / 2].iter().map(|b| f64::from(from_bf16(*b))).collect())
    }
}

pub(super) fn correctness(suite: &mut Suite) -> Result<()> {
    let device = &suite.device;
    let load = |name: &str| Mla::new(&suite.loader.load(device, name)?);
    let (naive, exactly) = (load("naive-mla-f32")?, load("naive-mla-f64")?);
    for (name, bound) in IMAGES {
        let Ok(image) = suite.loader.list.image(name) else { continue };
        if !image.arches().contains(&device.arch()) {
            continue;
        }
        let mla = load(name)?;
        let mut cases = Cases::new(name, "out", bound);
        for seed in 0..suite.seeds {
            let mut random = Random::new(seed + 101);
            let small = seed < 5;
            let batch = 1 + random.below(if small { 2 } else { 6 });
            let keys = 1 + random.below(if small { 90 } else { 900 });
            let splits = 1 + random.below(12);
            let rows = 1000;
            let cache = random.bf16s(rows * 512);
            let q = random.bf16s(batch as usize * 64 * 512);
            let sink = random.f32s(64, 1.0);
            let mut chosen: Vec<i32> = (0..batch * keys)
                .map(|_| if random.below(8) == 0 { -1 } else { random.below(rows as u32) as i32 })
                .collect();
            if seed % 3 == 1 {
                // A sequence without its first keys, so that whole tiles are empty; and one key past the cache.
                chosen.iter_mut().take(keys as usize * 2 / 3).for_each(|c| *c = -1);
                chosen[0] = rows as i32;
            }
            let it = Operands::new(device, (&q, &chosen, &sink), keys, splits)?;
            let on_device = device.upload(&cache)?;
            let what = format!("seed {seed}: batch {batch}, {keys} keys, {splits} splits");
            let found = it.output(device, &mla, &on_device, false)?;
            let plain = it.output(device, &naive, &on_device, true)?;
            let right = it.output(device, &exactly, &on_device, true)?;
            cases.add(&found, &right, &plain, &what);
            if small {
                let there: Vec<i32> = chosen.iter().map(|c| if *c < rows as i32 { *c } else { -1 }).collect();
                let right: Vec<f64> = q
                    .chunks(64 * 512)
                    .zip(there.chunks(keys as usize))
                    .flat_map(|(q, chosen)| exact::mla(q, &cache, chosen, &sink))
                    .collect();
                cases.add_cpu(&found, &right, &what);
            }
        }
        suite.evidence.correctness.push(cases.row());
    }
    Ok(())
}

pub(super) fn speed(suite: &mut Suite) -> Result<()> {
    let device = &suite.device;
    let naive = Mla::new(&suite.loader.load(device, "naive-mla-f32")?)?;
    let mut random = Random::new(17);
    let rows = 262_144_u32;
    let cache = device.upload(&random.bf16s(rows as usize * 512))?;
    for batch in [1_u32, 8, 64] {
        let sets: Vec<Buffer> = (0..16)
            .map(|_| device.upload(&(0..batch * KEYS).map(|_| random.below(rows) as i32).collect::<Vec<_>>()))
            .collect::<Result<_>>()?;
        let chosen = vec![0; (batch * KEYS) as usize];
        let q = random.bf16s(batch as usize * 64 * 512);
        let sink = random.f32s(64, 1.0);
        let plain = Operands::new(device, (&q, &chosen, &sink), KEYS, 1)?;
        let (mut table, mut counterpart) = (Vec::new(), None);
        for round in 0..2 {
            let mut at = 0;
            for name in [false, true].map(|bf16| choice::mla(device.arch(), batch, bf16)) {
                let mla = Mla::new(&suite.loader.load(device, name)?)?;
                let most = mla.splits(device, batch, KEYS);
                for splits in [most, most * 2].into_iter().filter(|s| *s <= KEYS / 32) {
                    let it = Operands::new(device, (&q, &chosen, &sink), KEYS, splits)?;
                    let us = median(device, 48, |i| mla.run(device, &it.call(&cache, &sets[i % sets.len()])))?;
                    if round == 1 {
                        let row: &mut SpeedRow = &mut table[at];
                        row.us_again = us;
                    } else {
                        // Every chosen row once, q in and out once.
                        let bytes = f64::from(batch) * f64::from(KEYS * 1024 + 2 * 65_536);
                        table.push(SpeedRow {
                            image: name.to_string(),
                            operation: "mla".to_string(),
                            shape: format!("batch {batch}, {KEYS} keys, {splits} splits"),
                            us,
                            us_again: f64::NAN,
                            tb_s: bytes / us / 1e6,
                            tflop_s: f64::from(batch) * f64::from(KEYS) * 131_072.0 / us / 1e6,
                            peers: BTreeMap::new(),
                            naive: None,
                        });
                    }
                    at += 1;
                }
            }
            let words = &format!("batch {batch}, {KEYS} keys");
            let work = f64::from(batch) * f64::from(KEYS) * 131_072.0;
            let shape = Shape { image: "naive-mla-f32", operation: "mla", words, work, count: 48 };
            let body = |i: usize| naive.run(device, &plain.call(&cache, &sets[i % sets.len()]));
            suite.naive.time(device, &mut counterpart, &shape, body);
            if round == 0 {
                let peers = suite.peers.time(&format!("mla {batch}"))?;
                table.iter_mut().for_each(|row| row.peers.clone_from(&peers));
            }
        }
        table.iter_mut().for_each(|row| row.naive.clone_from(&counterpart));
        suite.evidence.speed.extend(table);
    }
    Ok(())
}
