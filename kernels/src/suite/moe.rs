//! K4, routed experts with FP4 weights.

use std::collections::BTreeMap;

use crate::choice;
use crate::cuda::{Buffer, Device, Matrix, Moe, MoeCall};
use crate::evidence::SpeedRow;
use karat_model::Result;

use super::cases::{Cases, wide};
use super::naive::Shape;
use super::numbers::{Random, from_bf16};
use super::timing::median;
use super::{Suite, exact};

/// Images, their naive counterparts, and bounds: bf16 roundings of gate, up, activation and expert output (without the first two
/// where the clamp is fused).
const IMAGES: [(&str, &str, f64); 7] = [
    ("moe-mx-8", "naive-moe-mx", 4e-3),
    ("moe-mx-8-deep", "naive-moe-mx", 4e-3),
    ("moe-mx-32", "naive-moe-mx", 4e-3),
    ("moe-mx-64", "naive-moe-mx", 4e-3),
    ("moe-mx-8-fused", "naive-moe-mx", 3e-3),
    ("moe-nv-8", "naive-moe-nv", 4e-3),
    ("moe-nv-32", "naive-moe-nv", 4e-3),
];

/// Experts, picks, width, inner of the released model.
const RELEASED: [u32; 4] = [256, 6, 4096, 2048];

/// What the host knows of one matrix of all experts.
pub(super) struct HostMatrix {
    pub(super) codes: Vec<u8>,
    pub(super) scales: Vec<u8>,
    pub(super) global: Vec<f32>,
}

/// All operands on the host.
pub(super) struct Host {
    pub(super) x: Vec<u16>,
    pub(super) expert: Vec<i32>,
    pub(super) weight: Vec<f32>,
    pub(super) matrices: [HostMatrix; 3],
    /// experts, picks, width, inner.
    pub(super) sizes: [u32; 4],
    pub(super) limit: f32,
    pub(super) block: usize,
}

struct Operands {
    x: Buffer,
    expert: Buffer,
    weight: Buffer,
    matrices: [Matrix; 3],
    outputs: [Buffer; 5],
    tokens: u32,
    sizes: [u32; 4],
    limit: f32,
}

fn bytes(random: &mut Random, n: usize, map: impl Fn(u8) -> u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(n + 8);
    while out.len() < n {
        out.extend(random.bits().to_le_bytes().map(&map));
    }
    out.truncate(n);
    out
}

/// A matrix of all experts whose products with rows of deviation 1 have a deviation of about 2.
fn matrix(random: &mut Random, experts: u32, rows: u32, columns: u32, block: usize) -> HostMatrix {
    let all = experts as usize * rows as usize * columns as usize;
    let gain = 2.0 / (2.9 * f64::from(columns).sqrt());
    let scale_bytes = if block == 32 {
        let base = (127.0 + gain.log2().round()) as u8 - 1;
        bytes(random, all / block, |b| base + b % 3)
    } else {
        // 0.5 to 1.9, the rest in the second scale.
        bytes(random, all / block, |b| 0x30 + b % 16)
    };
    HostMatrix {
        codes: bytes(random, all / 2, |b| b),
        scales: scale_bytes,
        global: (0..experts).map(|_| gain as f32 * (1.0 + 0.1 * random.normal())).collect(),
    }
}

/// `tokens` choices of different experts each.
fn picks(random: &mut Random, tokens: u32, experts: u32, picks: u32) -> Vec<i32> {
    let mut out: Vec<i32> = Vec::new();
    for _ in 0..tokens {
        let start = out.len();
        while out.len() - start < picks as usize {
            let e = random.below(experts) as i32;
            if !out[start..].contains(&e) {
                out.push(e);
            }
        }
    }
    out
}

impl Host {
    fn new(random: &mut Random, tokens: u32, sizes: [u32; 4], block: usize) -> Self {
        let [experts, k, width, inner] = sizes;
        Self {
            x: random.bf16s((tokens * width) as usize),
            expert: picks(random, tokens, experts, k),
            weight: (0..tokens * k).map(|_| 0.1 + random.normal().abs() * 0.3).collect(),
            matrices: [(inner, width), (inner, width), (width, inner)]
                .map(|(rows, columns)| matrix(random, experts, rows, columns, block)),
            sizes,
            limit: 3.0,
            block,
        }
    }
}

impl Operands {
    fn new(device: &Device, host: &Host) -> Result<Self> {
        let [experts, k, width, inner] = host.sizes.map(|n| n as usize);
        let tokens = host.x.len() / width;
        let up = |m: &HostMatrix| -> Result<Matrix> {
            Ok(Matrix {
                codes: device.upload(&m.codes)?,
                scales: device.upload(&m.scales)?,
                global: device.upload(&m.global)?,
            })
        };
        let [a, b, c] = &host.matrices;
        Ok(Self {
            x: device.upload(&host.x)?,
            expert: device.upload(&host.expert)?,
            weight: device.upload(&host.weight)?,
            matrices: [up(a)?, up(b)?, up(c)?],
            outputs: [
                device.alloc(experts * 4, 0xff)?,
                device.alloc(experts * tokens * k * 4, 0xff)?,
                device.alloc(tokens * k * inner * 4, 0xff)?,
                device.alloc(tokens * k * width * 4, 0xff)?,
                device.alloc(tokens * width * 4, 0xff)?,
            ],
            tokens: tokens as u32,
            sizes: host.sizes,
            limit: host.limit,
        })
    }

    fn call<'a>(&'a self, x: &'a Buffer, expert: &'a Buffer) -> MoeCall<'a> {
        let [experts, picks, width, inner] = self.sizes;
        let [count, list, act, out, sum] = &self.outputs;
        MoeCall {
            x,
            expert,
            weight: &self.weight,
            matrices: &self.matrices,
            count,
            list,
            act,
            out,
            sum,
            tokens: self.tokens,
            picks,
            experts,
            width,
            inner,
            limit: self.limit,
        }
    }

    /// Poisons everything that is written, runs, and gives back activations and sums.
    fn output(&self, device: &Device, moe: &Moe, naive: bool, there: &[bool]) -> Result<[Vec<f64>; 2]> {
        self.outputs.iter().try_for_each(|b| device.fill(b, 0xff))?;
        moe.run(device, &self.call(&self.x, &self.expert))?;
        let act = if naive {
            wide(&device.download::<f32>(&self.outputs[2])?)
        } else {
            let bits = device.download::<u16>(&self.outputs[2])?;
            bits[..bits.len() / 2].iter().map(|b| f64::from(from_bf16(*b))).collect()
        };
        // A slot without an expert has no activation.
        let inner = self.sizes[3] as usize;
        let act = act.chunks(inner).zip(there).filter(|(_, there)| **there).flat_map(|(row, _)| row.to_vec()).collect();
        Ok([act, wide(&device.download::<f32>(&self.outputs[4])?)])
    }
}

pub(super) fn correctness(suite: &mut Suite) -> Result<()> {
    let device = &suite.device;
    let load = |name: &str| Moe::new(&suite.loader.load(device, name)?);
    for (name, counterpart, bound) in IMAGES {
        let moe = load(name)?;
        let (naive, exactly) = (load(&format!("{counterpart}-f32"))?, load(&format!("{counterpart}-f64"))?);
        let mut cases =
            [("activations", bound), ("sum", bound)].map(|(quantity, bound)| Cases::new(name, quantity, bound));
        for seed in 0..suite.seeds {
            let mut random = Random::new(seed + 401);
            let small = seed < 3;
            let experts = 3 + random.below(if small { 3 } else { 60 });
            let k = 1 + random.below(experts.min(6));
            let tokens = 1 + random.below(if small { 3 } else { 150 });
            let [width, inner] = [0; 2].map(|_| 256 * (1 + random.below(if small { 1 } else { 3 })));
            let mut host = Host::new(&mut random, tokens, [experts, k, width, inner], moe.block());
            if seed % 4 == 1 {
                // Slots that no expert takes, and a token that has none.
                host.expert.iter_mut().step_by(5).for_each(|e| *e = -1);
                host.expert[..k as usize].fill(experts as i32);
            }
            if seed % 4 == 2 {
                // All on one expert.
                host.expert.iter_mut().step_by(k as usize).for_each(|e| *e = 1);
                host.expert.chunks_mut(k as usize).for_each(|p| (1..p.len()).for_each(|i| p[i] = -1));
            }
            if moe.block() == 32 && seed % 4 == 3 {
                // The least scale, 2^-127: not zero.
                host.matrices[2].scales[..16].fill(0);
            }
            let there: Vec<bool> = host.expert.iter().map(|e| *e >= 0 && *e < experts as i32).collect();
            let it = Operands::new(device, &host)?;
            let what = format!("seed {seed}: {tokens} tokens, {k} of {experts}, {width} by {inner}");
            let found = it.output(device, &moe, false, &there)?;
            let plain = it.output(device, &naive, true, &there)?;
            let right = it.output(device, &exactly, true, &there)?;
            for i in 0..2 {
                cases[i].add(&found[i], &right[i], &plain[i], &what);
            }
            if small {
                cases[1].add_cpu(&found[1], &exact::experts(&host), &what);
            }
        }
        suite.evidence.correctness.extend(cases.map(Cases::row));
    }
    Ok(())
}

pub(super) fn speed(suite: &mut Suite) -> Result<()> {
    let device = &suite.device;
    let [experts, k, width, inner] = RELEASED;
    for format in ["mx", "nv"] {
        let counterpart = format!("naive-moe-{format}-f32");
        let naive = Moe::new(&suite.loader.load(device, &counterpart)?)?;
        let mut random = Random::new(47);
        let block = if format == "mx" { 32 } else { 16 };
        let mut host = Host::new(&mut random, 1, RELEASED, block);
        let mut it = Operands::new(device, &host)?;
        for tokens in [1_u32, 4, 16, 64, 256, 1024, 8192] {
            let t = tokens as usize;
            host.x = random.bf16s(t * width as usize);
            it.x = device.upload(&host.x)?;
            it.weight = device.upload(&vec![0.25_f32; t * k as usize])?;
            it.tokens = tokens;
            let slots = t * k as usize;
            it.outputs = [
                device.alloc(experts as usize * 4, 0xff)?,
                device.alloc(experts as usize * slots * 4, 0xff)?,
                device.alloc(slots * inner as usize * 4, 0xff)?,
                device.alloc(slots * width as usize * 4, 0xff)?,
                device.alloc(t * width as usize * 4, 0xff)?,
            ];
            // Other experts each time, so that no weight waits in the cache.
            let choices: Vec<Vec<i32>> = (0..16).map(|_| picks(&mut random, tokens, experts, k)).collect();
            let sets: Vec<Buffer> = choices.iter().map(|c| device.upload(c)).collect::<Result<_>>()?;
            let used: f64 = choices
                .iter()
                .map(|c| {
                    let mut seen = vec![false; experts as usize];
                    c.iter().for_each(|e| seen[*e as usize] = true);
                    seen.iter().filter(|s| **s).count() as f64
                })
                .sum::<f64>()
                / 16.0;
            let mut images = vec![choice::moe(format == "nv", tokens)];
            if format == "mx" && tokens <= 256 {
                images.push("moe-mx-8-fused");
            }
            let (mut table, mut plain) = (Vec::new(), None);
            let one = 3.0 * f64::from(width) * f64::from(inner);
            let count = if tokens > 256 { 2 } else { 16 };
            for round in 0..2 {
                for (at, name) in images.iter().enumerate() {
                    let moe = Moe::new(&suite.loader.load(device, name)?)?;
                    let us = median(device, count, |i| moe.run(device, &it.call(&it.x, &sets[i])))?;
                    if round == 1 {
                        let row: &mut SpeedRow = &mut table[at];
                        row.us_again = us;
                    } else {
                        let packed = one / 2.0 + one / block as f64;
                        table.push(SpeedRow {
                            image: (*name).to_string(),
                            operation: "moe".to_string(),
                            shape: format!("{tokens} tokens, 6 of 256, 4096 by 2048, {used:.0} experts used"),
                            us,
                            us_again: f64::NAN,
                            tb_s: (used * packed + f64::from(tokens) * f64::from(width) * 6.0) / us / 1e6,
                            tflop_s: 2.0 * one * slots as f64 / us / 1e6,
                            peers: BTreeMap::new(),
                            naive: None,
                        });
                    }
                }
                let (words, work) = (&format!("{tokens} tokens"), 2.0 * one * slots as f64);
                let shape = Shape { image: &counterpart, operation: "moe", words, work, count };
                suite.naive.time(device, &mut plain, &shape, |i| naive.run(device, &it.call(&it.x, &sets[i])));
                if round == 0 && format == "mx" {
                    let peers = suite.peers.time(&format!("moe {tokens}"))?;
                    table.iter_mut().for_each(|row| row.peers.clone_from(&peers));
                }
            }
            table.iter_mut().for_each(|row| row.naive.clone_from(&plain));
            suite.evidence.speed.extend(table);
        }
    }
    Ok(())
}
