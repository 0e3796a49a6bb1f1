//! K2, index scores and their exact selection.

use std::collections::BTreeMap;

use crate::choice;
use crate::cuda::{Buffer, Device, IndexCall, IndexLogits, Select, SelectCall};
use crate::evidence::SpeedRow;
use karat_model::Result;

use super::cases::{Cases, wide};
use super::naive::Shape;
use super::numbers::Random;
use super::timing::median;
use super::{Suite, exact};

/// Images, their counterparts with f64 sums, and bounds: exact products, f32 sums. Where each q.k is rounded to bf16 the counterpart
/// rounds it too.
const IMAGES: [(&str, &str, f64); 4] = [
    ("index-fp8", "naive-index-f64", 1e-6),
    ("index-fp8-bf16", "naive-index-bf16-f64", 1e-6),
    ("index-fp8-full", "naive-index-f64", 1e-6),
    ("index-fp8-pair", "naive-index-f64", 1e-6),
];

/// Codes of a head.
const HEAD: usize = 128;
const TOPK: u32 = 512;
const PAGE: u32 = 64;

/// What the host knows of the operands.
pub(super) struct Host {
    pub(super) q: Vec<u8>,
    pub(super) q_scale: Vec<f32>,
    pub(super) weight: Vec<f32>,
    pub(super) keys: Vec<u8>,
    pub(super) key_scale: Vec<f32>,
    pub(super) table: Vec<i32>,
    pub(super) visible: Vec<i32>,
}

struct Operands {
    q: Buffer,
    q_scale: Buffer,
    weight: Buffer,
    keys: Buffer,
    key_scale: Buffer,
    table: Buffer,
    visible: Buffer,
    logits: Buffer,
    marks: Buffer,
    places: Buffer,
    chosen: Buffer,
    batch: u32,
    page: u32,
    table_pages: u32,
    topk: u32,
}

/// E4M3 codes of about normal values of deviation 40, no NaN.
fn codes(random: &mut Random, n: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(n + 8);
    while out.len() < n {
        // Exponents of a half-normal's size, any sign and mantissa.
        out.extend(random.bits().to_le_bytes().map(|b| (b & 0x87) | (0x40 + ((b >> 3) & 3) * 8)));
    }
    out.truncate(n);
    out
}

fn host(random: &mut Random, batch: usize, page: usize, table_pages: usize, visible: Vec<i32>, shared: bool) -> Host {
    // More pages than are used; a sequence's lie in any order.
    let pages = if shared { table_pages } else { batch * table_pages + 3 };
    let mut order: Vec<i32> = (0..pages as i32).collect();
    for i in (1..pages).rev() {
        order.swap(i, random.below(i as u32 + 1) as usize);
    }
    let table = (0..batch * table_pages).map(|i| order[if shared { i % table_pages } else { i }]).collect();
    Host {
        q: codes(random, batch * 64 * HEAD),
        q_scale: (0..batch * 64).map(|_| 0.01 + random.normal().abs()).collect(),
        weight: random.f32s(batch * 64, 0.1),
        keys: codes(random, pages * page * HEAD),
        key_scale: (0..pages * page).map(|_| 0.01 + random.normal().abs() * 0.1).collect(),
        table,
        visible,
    }
}

impl Operands {
    fn new(device: &Device, host: &Host, page: u32, table_pages: u32, topk: u32) -> Result<Self> {
        let batch = host.visible.len();
        let room = (page * table_pages) as usize;
        let kept = batch * (Select::chunks(page * table_pages) * topk) as usize * 4;
        Ok(Self {
            q: device.upload(&host.q)?,
            q_scale: device.upload(&host.q_scale)?,
            weight: device.upload(&host.weight)?,
            keys: device.upload(&host.keys)?,
            key_scale: device.upload(&host.key_scale)?,
            table: device.upload(&host.table)?,
            visible: device.upload(&host.visible)?,
            logits: device.alloc(batch * room * 4, 0xff)?,
            marks: device.alloc((batch * room * 4).max(kept), 0)?,
            places: device.alloc(kept, 0xff)?,
            chosen: device.alloc(batch * topk as usize * 4, 0xff)?,
            batch: batch as u32,
            page,
            table_pages,
            topk,
        })
    }

    fn scores<'a>(&'a self, q: &'a Buffer, table: &'a Buffer) -> IndexCall<'a> {
        IndexCall {
            q,
            q_scale: &self.q_scale,
            weight: &self.weight,
            keys: &self.keys,
            key_scale: &self.key_scale,
            table,
            visible: &self.visible,
            logits: &self.logits,
            batch: self.batch,
            page: self.page,
            table_pages: self.table_pages,
        }
    }

    fn selection(&self) -> SelectCall<'_> {
        SelectCall {
            logits: &self.logits,
            visible: &self.visible,
            keys: &self.marks,
            places: &self.places,
            chosen: &self.chosen,
            batch: self.batch,
            room: self.page * self.table_pages,
            topk: self.topk,
        }
    }

    /// Poisons the logits, runs, and gives back those of visible keys.
    fn logits(&self, device: &Device, index: &IndexLogits, visible: &[i32]) -> Result<Vec<f64>> {
        device.fill(&self.logits, 0xff)?;
        index.run(device, &self.scores(&self.q, &self.table))?;
        let all = wide(&device.download::<f32>(&self.logits)?);
        let room = (self.page * self.table_pages) as usize;
        Ok(all.chunks(room).zip(visible).flat_map(|(row, n)| row[..*n as usize].to_vec()).collect())
    }

    /// The chosen keys, from the logits that are there.
    fn chosen(&self, device: &Device, select: &Select, marks: u8) -> Result<Vec<i32>> {
        device.fill(&self.marks, marks)?;
        device.fill(&self.places, 0xff)?;
        device.fill(&self.chosen, 0x7f)?;
        select.run(device, &self.selection())?;
        device.download(&self.chosen)
    }
}

/// What one seed asks: page, pages of a table, visible keys, best of how many.
fn shape(random: &mut Random, seed: u64) -> (u32, u32, Vec<i32>, u32) {
    let page = if seed.is_multiple_of(2) { 64 } else { 256 };
    let batch = 1 + random.below(if seed < 5 { 2 } else { 5 });
    let most = if seed < 5 { 6 } else { 300 };
    let table_pages = 1 + random.below(most * 64 / page);
    let room = page * table_pages;
    let visible = (0..batch).map(|i| if i == 1 { room } else { random.below(room + 1) } as i32).collect();
    let topk = if seed % 3 == 2 { 1 + random.below(64) } else { TOPK };
    (page, table_pages, visible, topk)
}

pub(super) fn correctness(suite: &mut Suite) -> Result<()> {
    let device = &suite.device;
    let load = |name: &str| IndexLogits::new(&suite.loader.load(device, name)?);
    let naive = load("naive-index-f32")?;
    let plain = Select::new(&suite.loader.load(device, "naive-index-f32")?)?;
    let select = Select::new(&suite.loader.load(device, "select")?)?;
    let mut sets = Cases::new("select", "chosen keys that differ", 0.0);
    for (name, counterpart, bound) in IMAGES {
        let (index, exactly) = (load(name)?, load(counterpart)?);
        let mut cases = Cases::new(name, "logits", bound);
        for seed in 0..suite.seeds {
            let mut random = Random::new(seed + 301);
            let (page, table_pages, visible, topk) = shape(&mut random, seed);
            let mut host = host(&mut random, visible.len(), page as usize, table_pages as usize, visible, false);
            if seed % 4 == 3 {
                // Many equal scores: keys of few kinds, half of them zero.
                let kinds = host.keys[..8 * HEAD].to_vec();
                for (i, key) in host.keys.chunks_mut(HEAD).enumerate() {
                    key.copy_from_slice(&kinds[i % 8 * HEAD..][..HEAD]);
                    host.key_scale[i] = if i % 2 == 0 { 0.0 } else { 0.25 };
                }
            }
            let it = Operands::new(device, &host, page, table_pages, topk)?;
            let what = format!("seed {seed}: {} x {page} x {table_pages}, sees {:?}", host.visible.len(), host.visible);
            let right = it.logits(device, &exactly, &host.visible)?;
            let other = it.logits(device, &naive, &host.visible)?;
            let found = it.logits(device, &index, &host.visible)?;
            cases.add(&found, &right, &other, &what);
            if seed < 5 && !right.is_empty() {
                cases.add_cpu(
                    &found,
                    &exact::index(&host, page as usize, table_pages as usize, name == "index-fp8-bf16"),
                    &what,
                );
            }
            if name == "index-fp8" {
                let ours = it.chosen(device, &select, 0xff)?;
                let theirs = it.chosen(device, &plain, 0)?;
                let differ = ours.iter().zip(&theirs).filter(|(a, b)| a != b).count();
                sets.add(&[differ as f64], &[0.0], &[0.0], &format!("{what}, the best {topk}"));
            }
        }
        suite.evidence.correctness.push(cases.row());
    }
    suite.evidence.correctness.push(sets.row());
    Ok(())
}

/// What is timed.
const TIMED: [&str; 3] = ["logits", "logits and the best 512", "the best 512"];

/// Real keys, room of the table, batch, and whether all queries share their pages.
const SHAPES: [(u32, u32, u32, bool); 10] = [
    (8192, 8192, 1, false),
    (8192, 8192, 16, false),
    (65_536, 65_536, 1, false),
    (2048, 2048, 1, false),
    (2048, 65_536, 1, false),
    (2048, 262_144, 1, false),
    (2048, 2048, 16, false),
    (2048, 65_536, 16, false),
    (2048, 262_144, 16, false),
    (8192, 8192, 512, true),
];

pub(super) fn speed(suite: &mut Suite) -> Result<()> {
    let device = &suite.device;
    let select = Select::new(&suite.loader.load(device, "select")?)?;
    let loaded = suite.loader.load(device, "naive-index-f32")?;
    let (naive, naive_select) = (IndexLogits::new(&loaded)?, Select::new(&loaded)?);
    for (real, room, batch, shared) in SHAPES {
        let mut random = Random::new(37);
        let table_pages = room / PAGE;
        // Pages past the real keys exist, once: a table may name a page many times.
        let mut it = host(
            &mut random,
            batch as usize,
            PAGE as usize,
            real as usize / PAGE as usize,
            vec![real as i32; batch as usize],
            shared,
        );
        let short = real as usize / PAGE as usize;
        it.table = it.table.chunks(short).flat_map(|row| (0..table_pages as usize).map(|i| row[i % short])).collect();
        let it = Operands::new(device, &it, PAGE, table_pages, TOPK)?;
        let queries: Vec<Buffer> =
            (0..8).map(|_| device.upload(&codes(&mut random, batch as usize * 64 * HEAD))).collect::<Result<_>>()?;
        // The counterpart of the selection counts on marks that are zero, and marks what it chooses: one query's for all executions.
        let marks = device.alloc((batch * room) as usize * 4, 0)?;
        let (mut table, mut counterparts) = (Vec::new(), [None, None, None]);
        let keys = f64::from(batch) * f64::from(real);
        for round in 0..2 {
            let mut at = 0;
            for (name, _, _) in IMAGES {
                let other = choice::index(!shared);
                if name == other || (shared && name == "index-fp8-full") {
                    continue;
                }
                let index = IndexLogits::new(&suite.loader.load(device, name)?)?;
                for (what, words) in TIMED.into_iter().enumerate() {
                    if what == 2 && name != choice::index(shared) {
                        continue;
                    }
                    let us = median(device, 16, |i| {
                        if what != 2 {
                            index.run(device, &it.scores(&queries[i % 8], &it.table))?;
                        }
                        if what == 0 { Ok(()) } else { select.run(device, &it.selection()) }
                    })?;
                    if round == 1 {
                        let row: &mut SpeedRow = &mut table[at];
                        row.us_again = us;
                    } else {
                        table.push(SpeedRow {
                            image: if what == 2 { "select" } else { name }.to_string(),
                            operation: "index".to_string(),
                            shape: format!("batch {batch}, {real} keys of {room}, {words}"),
                            us,
                            us_again: f64::NAN,
                            tb_s: if shared { f64::from(real) } else { keys } * 132.0 / us / 1e6,
                            tflop_s: if what == 2 { 0.0 } else { keys * 16_384.0 / us / 1e6 },
                            peers: BTreeMap::new(),
                            naive: None,
                        });
                    }
                    at += 1;
                }
            }
            for (what, slot) in counterparts.iter_mut().enumerate() {
                device.fill(&marks, 0)?;
                let words = &format!("batch {batch}, {real} keys of {room}");
                let work = [keys * 16_384.0, keys * (16_384.0 + f64::from(real)), keys * f64::from(real)][what];
                let shape = Shape { image: "naive-index-f32", operation: TIMED[what], words, work, count: 16 };
                suite.naive.time(device, slot, &shape, |i| {
                    if what != 2 {
                        let query = if what == 0 { i % 8 } else { 0 };
                        naive.run(device, &it.scores(&queries[query], &it.table))?;
                    }
                    let call = SelectCall { keys: &marks, ..it.selection() };
                    if what == 0 { Ok(()) } else { naive_select.run(device, &call) }
                });
            }
            if round == 0 {
                let peers = suite.peers.time(&format!("index {batch} {real} {room} {}", u32::from(shared)))?;
                table.iter_mut().for_each(|row| row.peers.clone_from(&peers));
            }
        }
        for row in &mut table {
            let what = TIMED.iter().position(|words| row.shape.ends_with(&format!(", {words}")));
            row.naive = what.and_then(|what| counterparts[what].clone());
        }
        suite.evidence.speed.extend(table);
    }
    Ok(())
}
