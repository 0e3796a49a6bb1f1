//! Comparing two tensors on the device: records against the diff engine's and the naive counterpart's, speed beside the read rate,
//! the counterpart and PyTorch. A part of its own (`bash run.sh compare`).

use std::path::Path;

use half::bf16;
use karat_diff::{Code, CoreSums, Grid, Values, View, measure_core};
use karat_model::{Error, Result};

use super::numbers::Random;
use super::peers::Peers;
use super::timing::{median, repeated};
use crate::compare_evidence::{CompareEvidence, CompareSpeed, SameRecord, digests};
use crate::cuda::{
    Buffer, Compare, CompareCall, Device, Element, Loader, NaiveCompare, RECORD, ReadRate, Side, compared,
};
use crate::evidence::Place;
use crate::pack::Pack;

/// Images of the same bits; which is quickest is what the part finds out.
const IMAGES: [&str; 2] = ["compare", "compare-deep"];
const NAIVE: &str = "naive-compare";
/// Bytes of each tensor that is timed, and of what they are made of.
const BYTES: usize = 1 << 30;
const PIECE: usize = 32 << 20;

/// Runs all of it and tells each row through `say`.
///
/// # Errors
/// The pack, the script or the device is not usable; a record that is wrong is no error.
pub fn comparing(
    device: &Device,
    pack: Pack,
    peers: Option<&Path>,
    date: String,
    seeds: u64,
    say: &mut dyn FnMut(String),
) -> Result<CompareEvidence> {
    let loader = Loader::new(Some(pack), None, None)?;
    let mut peers = Peers::start(peers)?;
    let place = Place {
        name: device.name.clone(),
        arch: device.arch().to_string(),
        driver: device.driver,
        processors: device.processors,
    };
    let mut evidence = CompareEvidence {
        format: 1,
        date,
        device: place,
        peers: peers.versions()?,
        images: digests()?,
        read_tb_s: 0.0,
        correctness: Vec::new(),
        speed: Vec::new(),
    };
    let naive = NaiveCompare::new(&loader.load(device, NAIVE)?)?;
    let images = IMAGES
        .into_iter()
        .map(|name| Ok((name, Compare::new(&loader.load(device, name)?)?)))
        .collect::<Result<Vec<_>>>()?;
    for (name, compare) in &images {
        for (a, x) in Element::ALL.into_iter().enumerate() {
            for (b, y) in Element::ALL.into_iter().enumerate() {
                let row = correctness(device, name, compare, &naive, [x, y], seeds, (2 * a + b) as u64)?;
                say(format!("{row:?}"));
                evidence.correctness.push(row);
            }
        }
    }
    let read = ReadRate::new(&loader.load(device, IMAGES[0])?)?;
    let room = Room::new(device)?;
    evidence.read_tb_s = room.read_rate(device, &read, say)?;
    for element in Element::ALL {
        room.fill(device, element)?;
        room.speed(device, &images, &naive, element, &mut peers, &mut evidence)?;
        evidence.speed.iter().rev().take(3).rev().for_each(|row| say(format!("{row:?}")));
    }
    Ok(evidence)
}

/// A tensor on the device and here.
struct Tensor {
    buffer: Buffer,
    element: Element,
    first: usize,
    bytes: Vec<u8>,
}

impl Tensor {
    /// These values behind `first` others.
    fn new(device: &Device, element: Element, first: usize, values: &[f32]) -> Result<Self> {
        let mut bytes = vec![0xff; first * element.size()];
        match element {
            Element::F32 => values.iter().for_each(|v| bytes.extend(v.to_le_bytes())),
            Element::Bf16 => values.iter().for_each(|v| bytes.extend(bf16::from_f32(*v).to_le_bytes())),
        }
        Ok(Self { buffer: device.upload(&bytes)?, element, first, bytes })
    }

    fn side(&self) -> Side<'_> {
        Side { buffer: &self.buffer, element: self.element, first: self.first }
    }

    fn values(&self) -> Values<'_> {
        let code = if self.element == Element::F32 { Code::F32 } else { Code::Bf16 };
        Values::Stored(code, &self.bytes[self.first * self.element.size()..])
    }
}

/// Golden's values and the candidate's; `kind` says what is strewn in.
fn pair(random: &mut Random, n: usize, kind: u64) -> (Vec<f32>, Vec<f32>) {
    let strewn: &[f32] = match kind {
        1 => &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0],
        2 => &[f32::from_bits(1), -f32::from_bits(77), f32::MIN_POSITIVE],
        3 => &[3e38, -3e38, 1e-30],
        4 => &[f32::NEG_INFINITY],
        _ => &[],
    };
    let one = |_| {
        let x = random.normal();
        let bits = random.bits();
        let pick = |at: u64| strewn.get((bits >> at & 15) as usize).copied();
        let y = x + 0.01 * (((bits >> 32) as f32) / u32::MAX as f32 - 0.5);
        let masked = kind == 4 && bits.is_multiple_of(16);
        if masked { (strewn[0], strewn[0]) } else { (pick(0).unwrap_or(x), pick(4).unwrap_or(y)) }
    };
    (0..n).map(one).unzip()
}

/// The record of one call into poisoned memory.
fn record(
    device: &Device,
    run: &dyn Fn(&CompareCall<'_>) -> Result<()>,
    call: [&Tensor; 2],
    n: usize,
    room: (usize, u32),
) -> Result<CoreSums> {
    let (partial, record) = (device.alloc(room.0, 0xff)?, device.alloc(RECORD, 0xff)?);
    let [x, y] = call.map(Tensor::side);
    run(&CompareCall { x, y, n, partial: &partial, record: &record, blocks: room.1 })?;
    compared(device, &record, n)
}

/// Sums, and the sums of their terms' magnitudes (by Cauchy and Schwarz, or what bounds them).
fn sums(it: &CoreSums) -> [(f64, f64); 8] {
    let n = it.finite as f64;
    let [size_x, size_y] = [it.xx, it.yy].map(|sum| (sum * n).sqrt());
    let sizes = [size_x, size_y, it.xx, it.yy, (it.xx * it.yy).sqrt(), it.abs_d, it.abs_d, it.dd];
    let all = [it.x, it.y, it.xx, it.yy, it.xy, it.abs_d, it.d, it.dd];
    std::array::from_fn(|i| (all[i], sizes[i]))
}

/// What must be equal.
fn exact(it: &CoreSums) -> ([u64; 7], [Option<karat_diff::moments::At>; 2], [u64; 3]) {
    let counts = [it.n, it.finite, it.masked, it.nan_x, it.nan_y, it.inf_x, it.inf_y];
    (counts, [it.first_nonfinite_at, it.max_abs_at], [it.max_abs, it.max_x, it.max_y].map(f64::to_bits))
}

fn correctness(
    device: &Device,
    name: &str,
    compare: &Compare,
    naive: &NaiveCompare,
    elements: [Element; 2],
    seeds: u64,
    salt: u64,
) -> Result<SameRecord> {
    let types = elements.map(Element::name).join("/");
    let mut row = SameRecord {
        image: name.to_string(),
        types,
        cases: 0,
        pairs: 0,
        differing: 0,
        unsteady: 0,
        worst: 0.0,
        worst_case: String::new(),
    };
    for seed in 0..seeds {
        let mut random = Random::new(1000 * salt + seed + 301);
        // Less than a group, than a tile, some tiles; one that has a tile of more than the least.
        let n = [1 + random.below(8), 1 + random.below(20_000), random.below(700_000), 16_384 * (1 + random.below(40))];
        let n = n[(seed % 4) as usize] as usize;
        let kind = seed % 5;
        let offsets = if seed % 3 == 0 { [0; 2] } else { [0; 2].map(|_| random.below(9) as usize) };
        let (xs, ys) = pair(&mut random, n, kind);
        let make = |first: [usize; 2]| -> Result<[Tensor; 2]> {
            Ok([Tensor::new(device, elements[0], first[0], &xs)?, Tensor::new(device, elements[1], first[1], &ys)?])
        };
        let ([x, y], [apart_x, apart_y]) = (make(offsets)?, make([offsets[0] + 1, offsets[1] + 4])?);
        let what = format!("seed {seed}: {n} pairs of kind {kind} behind {offsets:?}");
        let run = |call: &CompareCall<'_>| compare.run(device, call);
        let room = Compare::partial(n);
        let found = record(device, &run, [&x, &y], n, (room, 0))?;
        let again =
            [record(device, &run, [&x, &y], n, (room, 3))?, record(device, &run, [&apart_x, &apart_y], n, (room, 0))?];
        let by_naive = |call: &CompareCall<'_>| naive.run(device, call);
        let naive = record(device, &by_naive, [&x, &y], n, (NaiveCompare::partial(n), 0))?;
        let shape = [1, n];
        let engine = measure_core(&what, view(&x, &shape), view(&y, &shape), &Grid::new(1, n))
            .map_err(|e| Error::input(format!("the diff engine refuses {what}: {e}")))?
            .total;
        row.cases += 1;
        row.pairs += n as u64;
        row.differing += u64::from(exact(&found) != exact(&engine) || exact(&found) != exact(&naive));
        // Every bit of them, which for numbers that are none of NaN equality tells, but for the sign of zeros.
        row.unsteady += u64::from(again.iter().any(|it| *it != found));
        for other in [&engine, &naive] {
            for ((sum, _), (right, size)) in sums(&found).into_iter().zip(sums(other)) {
                let error = if sum == right { 0.0 } else { (sum - right).abs() / size };
                if error.is_nan() || error > row.worst {
                    row.worst = error;
                    row.worst_case.clone_from(&what);
                }
            }
        }
    }
    Ok(row)
}

fn view<'a>(it: &'a Tensor, shape: &'a [usize]) -> View<'a> {
    View { shape, values: it.values() }
}

/// Two tensors of a GiB each.
struct Room {
    sides: [Buffer; 2],
    sink: Buffer,
    record: Buffer,
    partial: Buffer,
}

impl Room {
    fn new(device: &Device) -> Result<Self> {
        let n = BYTES / 2;
        Ok(Self {
            sides: [device.alloc(BYTES + 16, 0x3c)?, device.alloc(BYTES + 16, 0x3c)?],
            sink: device.alloc(16 << 20, 0)?,
            record: device.alloc(RECORD, 0xff)?,
            partial: device.alloc(Compare::partial(n).max(NaiveCompare::partial(n)), 0xff)?,
        })
    }

    /// Random values of one type, the candidate's a little off.
    fn fill(&self, device: &Device, element: Element) -> Result<()> {
        let (xs, ys) = pair(&mut Random::new(77), PIECE / element.size(), 0);
        for (side, values) in self.sides.iter().zip([xs, ys]) {
            let bytes: Vec<u8> = match element {
                Element::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
                Element::Bf16 => values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
            };
            (0..BYTES / PIECE).try_for_each(|i| device.write(side, i * PIECE, &bytes))?;
        }
        device.settle()
    }

    /// The best of some numbers of blocks.
    fn read_rate(&self, device: &Device, read: &ReadRate, say: &mut dyn FnMut(String)) -> Result<f64> {
        let mut best = 0.0f64;
        for each in [2, 4, 8, 16, 32] {
            let sides = [&self.sides[0], &self.sides[1]];
            let us = median(device, 2, |_| read.run(device, sides, &self.sink, device.processors * each))?;
            let rate = 2.0 * BYTES as f64 / us / 1e6;
            say(format!("read rate with {each} blocks a multiprocessor: {rate:.3} TB/s"));
            best = best.max(rate);
        }
        Ok(best)
    }

    /// Each image where loads are aligned, and the first where they are not.
    fn speed(
        &self,
        device: &Device,
        images: &[(&str, Compare)],
        naive: &NaiveCompare,
        element: Element,
        peers: &mut Peers,
        evidence: &mut CompareEvidence,
    ) -> Result<()> {
        let pairs = BYTES / element.size();
        let call = |first: usize| {
            let [x, y] = [0, 1].map(|i| Side { buffer: &self.sides[i], element, first });
            CompareCall { x, y, n: pairs, partial: &self.partial, record: &self.record, blocks: 0 }
        };
        let naive_us = repeated(device, 1, 3, &|_| naive.run(device, &call(0)))?;
        let cases: Vec<(&str, &Compare, usize)> =
            images.iter().map(|(name, it)| (*name, it, 0)).chain([(images[0].0, &images[0].1, 1)]).collect();
        let all = || -> Result<Vec<f64>> {
            cases.iter().map(|(_, it, first)| median(device, 3, |_| it.run(device, &call(*first)))).collect()
        };
        let before = all()?;
        let asked = peers.time(&format!("compare {} {pairs}", 8 * element.size()))?;
        let after = all()?;
        for (i, (name, _, first)) in cases.iter().enumerate() {
            let tb_s = 2.0 * BYTES as f64 / f64::midpoint(before[i], after[i]) / 1e6;
            evidence.speed.push(CompareSpeed {
                image: (*name).to_string(),
                types: [element.name(); 2].join("/"),
                pairs: pairs as u64,
                bytes: 2 * BYTES as u64,
                offset: *first as u64,
                us: [before[i], after[i]],
                tb_s,
                of_read: tb_s / evidence.read_tb_s,
                naive_us: (*first == 0).then_some(naive_us),
                peers: asked.clone(),
            });
        }
        Ok(())
    }
}
