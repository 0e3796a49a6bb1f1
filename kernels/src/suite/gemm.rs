//! The exact-split GEMM.

use std::collections::BTreeMap;

use crate::choice;
use crate::cuda::{Buffer, Device, Gemm, GemmCall};
use crate::evidence::SpeedRow;
use karat_model::Result;

use super::cases::{Cases, wide};
use super::naive::Shape;
use super::numbers::Random;
use super::timing::median;
use super::{Suite, exact};

/// Images and bounds: exact products with f32 sums; one operand rounded once.
const IMAGES: [(&str, f64); 4] =
    [("split-gemm-3", 4e-7), ("split-gemm-3-wide", 4e-7), ("split-gemm-3-64", 4e-7), ("split-gemm-1", 4e-3)];

struct Operands {
    a: Buffer,
    terms: Buffer,
    w: Buffer,
    c: Buffer,
    size: [u32; 3],
}

impl Operands {
    fn new(device: &Device, a: &[f32], w: &[u16], [m, n, k]: [u32; 3]) -> Result<Self> {
        Ok(Self {
            a: device.upload(a)?,
            terms: device.alloc(a.len() * 6, 0xff)?,
            w: device.upload(w)?,
            c: device.alloc(m as usize * n as usize * 4, 0xff)?,
            size: [m, n, k],
        })
    }

    fn call<'a>(&'a self, a: &'a Buffer) -> GemmCall<'a> {
        let [m, n, k] = self.size;
        GemmCall { a, terms: &self.terms, w: &self.w, c: &self.c, m, n, k }
    }

    fn output(&self, device: &Device, gemm: &Gemm) -> Result<Vec<f64>> {
        device.fill(&self.c, 0xff)?;
        device.fill(&self.terms, 0xff)?;
        gemm.run(device, &self.call(&self.a))?;
        Ok(wide(&device.download::<f32>(&self.c)?))
    }
}

pub(super) fn correctness(suite: &mut Suite) -> Result<()> {
    let device = &suite.device;
    let load = |name: &str| Gemm::new(&suite.loader.load(device, name)?);
    let (naive, exactly) = (load("naive-gemm-f32")?, load("naive-gemm-f64")?);
    for (name, bound) in IMAGES {
        if !suite.loader.list.image(name)?.arches().contains(&device.arch()) {
            continue;
        }
        let gemm = load(name)?;
        let mut cases =
            [("c", bound), ("c, one sign", bound)].map(|(quantity, bound)| Cases::new(name, quantity, bound));
        for seed in 0..suite.seeds {
            let mut random = Random::new(seed + 201);
            let small = seed < 5;
            let most = if small { 60 } else { 500 };
            let [m, n] = [0; 2].map(|_| 1 + random.below(most));
            let k = if seed % 5 == 4 { 16_384 } else { 8 * (1 + random.below(most)) };
            let (mut a, mut w) = (random.f32s((m * k) as usize, 1.0), random.bf16s((n * k) as usize));
            for (i, row) in cases.iter_mut().enumerate() {
                if i == 1 {
                    // Sums that only grow: what a truncating accumulator is worst at.
                    a.iter_mut().for_each(|v| *v = v.abs());
                    w.iter_mut().for_each(|v| *v &= 0x7fff);
                }
                let it = Operands::new(device, &a, &w, [m, n, k])?;
                let what = format!("seed {seed}: {m} x {n} x {k}");
                let found = it.output(device, &gemm)?;
                row.add(&found, &it.output(device, &exactly)?, &it.output(device, &naive)?, &what);
                if small && m * n * k < 2_000_000 {
                    row.add_cpu(&found, &exact::gemm(&a, &w, k as usize), &what);
                }
            }
        }
        suite.evidence.correctness.extend(cases.map(Cases::row));
    }
    Ok(())
}

pub(super) fn speed(suite: &mut Suite) -> Result<()> {
    let device = &suite.device;
    let naive = Gemm::new(&suite.loader.load(device, "naive-gemm-f32")?)?;
    for size in [[256, 4096, 4096], [1024, 4096, 4096], [4096, 4096, 4096], [4096, 4096, 16_384]] {
        let [m, n, k] = size;
        let mut random = Random::new(27);
        let w = random.bf16s((n * k) as usize);
        let rows = random.f32s((m * k) as usize + 4096, 1.0);
        let inputs =
            (0..3).map(|i| device.upload(&rows[i * 1024..][..(m * k) as usize])).collect::<Result<Vec<_>>>()?;
        let plain = Operands::new(device, &rows[..(m * k) as usize], &w, size)?;
        let (mut table, mut counterpart) = (Vec::new(), None);
        for round in 0..2 {
            for (at, name) in [choice::gemm(device.arch(), m, n), "split-gemm-1"].into_iter().enumerate() {
                let gemm = Gemm::new(&suite.loader.load(device, name)?)?;
                let it = Operands::new(device, &rows[..(m * k) as usize], &w, size)?;
                let us = median(device, 6, |i| gemm.run(device, &it.call(&inputs[i % 3])))?;
                if round == 1 {
                    let row: &mut SpeedRow = &mut table[at];
                    row.us_again = us;
                } else {
                    let [m, n, k] = size.map(f64::from);
                    table.push(SpeedRow {
                        image: name.to_string(),
                        operation: "gemm".to_string(),
                        shape: format!("{m} x {n} x {k}, the split included"),
                        us,
                        us_again: f64::NAN,
                        tb_s: (4.0 * m * k + 2.0 * n * k + 4.0 * m * n) / us / 1e6,
                        tflop_s: 2.0 * m * n * k / us / 1e6,
                        peers: BTreeMap::new(),
                        naive: None,
                    });
                }
            }
            let (words, work) = (&format!("{m} x {n} x {k}"), 2.0 * size.map(f64::from).iter().product::<f64>());
            let shape = Shape { image: "naive-gemm-f32", operation: "gemm", words, work, count: 6 };
            let body = |i: usize| naive.run(device, &plain.call(&inputs[i % 3]));
            suite.naive.time(device, &mut counterpart, &shape, body);
            if round == 0 {
                let peers = suite.peers.time(&format!("gemm {m} {n} {k}"))?;
                table.iter_mut().for_each(|row| row.peers.clone_from(&peers));
            }
        }
        table.iter_mut().for_each(|row| row.naive.clone_from(&counterpart));
        suite.evidence.speed.extend(table);
    }
    Ok(())
}
