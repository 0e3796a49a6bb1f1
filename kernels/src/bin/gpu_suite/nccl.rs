//! The part `nccl`: sums and copies between all GPUs of this host, golden with its experts spread over them against golden on
//! this processor, and audits whose all-reduces are NCCL's against audits whose all-reduces are contracts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use half::bf16;
use karat_kernels::cuda::{Device, Nccl, Wire};
use karat_kernels::golden::{Gpu, compare, digests};
use karat_kernels::pack::Pack;
use karat_model::{Checkpoint, Error, Result};
use serde_json::{Value, json};

use crate::golden::{audit_twice, run_karat};

/// What the part is given.
pub(crate) struct Part {
    pub(crate) pack: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) date: String,
    /// Folder of the model.
    pub(crate) model: PathBuf,
    /// The program `karat`, built with CUDA.
    pub(crate) karat: Option<PathBuf>,
}

/// Tokens of the comparison, and how many of them the session takes in one piece.
const TOKENS: usize = 400;
const PREFILL: usize = 320;
/// Values of an all-reduce: a row, rows that don't split evenly, and a long prompt's.
const SIZES: [usize; 4] = [4096, 12_289, 1 << 20, 1 << 25];

/// Runs it; true if every bit is one that was predicted.
pub(crate) fn run(it: &Part) -> Result<bool> {
    let count = Device::count()?;
    if count < 2 {
        return Err(Error::input("the part nccl needs at least two GPUs").found(count));
    }
    let root = std::env::var_os("KARAT_CUDA_ROOT").map(PathBuf::from);
    let devices: Vec<Arc<Device>> = Device::open_all(count)?.into_iter().map(Arc::new).collect();
    devices.iter().for_each(|device| println!("{}", device.describe()));
    let place = json!({"name": devices[0].name, "arch": devices[0].arch(), "driver": devices[0].driver, "gpus": count});
    let nccl = Arc::new(Nccl::new(devices, root.as_deref())?);
    println!("NCCL {} over {count} GPUs", nccl.version);
    let mut evidence =
        json!({"format": 1, "date": it.date, "device": place, "nccl": nccl.version, "images": digests()?});
    let mut good = true;
    let mut sums = Vec::new();
    for wire in [Wire::Bf16, Wire::F32] {
        for n in SIZES {
            let found = all_reduce(&nccl, wire, n)?;
            println!("all-reduce {found}");
            good &= found["neither"] == 0 && found["again"] == 0 && found["between_ranks"] == 0;
            sums.push(found);
        }
    }
    evidence["all_reduce"] = Value::Array(sums);
    let copied = all_gather(&nccl)?;
    println!("all-gather {copied}");
    good &= copied["differing"] == 0;
    evidence["all_gather"] = copied;
    write(&it.out, &evidence)?;

    let gpu = Gpu::spread(&nccl, Some(Pack::open(&it.pack)?), None, root)?;
    let checkpoint = Arc::new(Checkpoint::open(&it.model)?);
    let vocab = checkpoint.config().vocab_size;
    let ids: Vec<u32> = (0..TOKENS).map(|i| ((i * 167 + i * i * 31) % vocab) as u32).collect();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let compared = compare(&checkpoint, &ids, PREFILL, &gpu.backend(), threads)?;
    for row in compared.rows.iter().filter(|row| row.differing > 0) {
        println!("golden: {} {}: {} of {} values differ", row.what, row.name, row.differing, row.values);
    }
    let values: u64 = compared.rows.iter().map(|row| row.values).sum();
    println!("golden over {count} GPUs: {values} values, equal: {}; {:?}", compared.equal(), compared.seconds);
    good &= compared.equal();
    evidence["golden"] = json!(compared);
    write(&it.out, &evidence)?;
    // Their devices are wanted by other processes.
    drop(gpu);
    drop(nccl);
    if let Some(karat) = &it.karat {
        good &= audits(it, karat, count, &mut evidence)?;
        write(&it.out, &evidence)?;
    }
    println!("nccl: {}", if good { "every bit as predicted" } else { "NOT as predicted" });
    Ok(good)
}

fn write(path: &Path, evidence: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(evidence)
        .map_err(|e| Error::input(format!("the evidence cannot be written: {e}")))?;
    std::fs::write(path, text + "\n")
        .map_err(|e| Error::input(format!("the evidence cannot be written: {e}")).at(path.display()))
}

/// Values between -1 and 1 times a power of two between 2^-6 and 2^6, from a counter (splitmix64).
fn values(n: usize, seed: u64) -> Vec<f32> {
    let one = |i: u64| {
        let mut z = (i ^ (seed << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((z >> 40) as f32 / (1 << 23) as f32 - 1.0) * 2f32.powi((z & 15) as i32 - 6)
    };
    (0..n as u64).map(one).collect()
}

/// The sum of one value a rank, from rank `first` on, forwards or backwards around; every addition is rounded to the wire's format.
fn around(at: &[f32], first: usize, back: bool, wire: Wire) -> f32 {
    let n = at.len();
    let rank = |i: usize| if back { (first + n - i) % n } else { (first + i) % n };
    (1..n).fold(at[rank(0)], |sum, i| {
        let sum = sum + at[rank(i)];
        if wire == Wire::Bf16 { bf16::from_f32(sum).to_f32() } else { sum }
    })
}

/// One size: how many sums are those of an order, how many of none, and how fast.
fn all_reduce(nccl: &Nccl, wire: Wire, n: usize) -> Result<Value> {
    let ranks = nccl.devices().len();
    let narrow = |v: f32| if wire == Wire::Bf16 { bf16::from_f32(v).to_f32() } else { v };
    let sums: Vec<Vec<f32>> = (0..ranks as u64).map(|r| values(n, r + 1).into_iter().map(narrow).collect()).collect();
    let found = nccl.reduced(&sums, wire)?;
    let apart = |a: &[f32], b: &[f32]| a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    let between: usize = found.iter().map(|other| apart(&found[0], other)).sum();
    let again = apart(&found[0], &nccl.reduced(&sums, wire)?[0]);
    // How many are the sum of each order; one sum may be that of many.
    let mut forwards = vec![0u64; ranks];
    let mut ring = 0u64;
    let mut neither = 0u64;
    let mut at = vec![0.0; ranks];
    for (i, got) in found[0].iter().enumerate() {
        at.iter_mut().zip(&sums).for_each(|(v, sum)| *v = sum[i]);
        let is = |first, back| around(&at, first, back, wire).to_bits() == got.to_bits();
        let mut any = false;
        for (first, count) in forwards.iter_mut().enumerate() {
            let hit = is(first, false);
            *count += u64::from(hit);
            any |= hit || is(first, true);
        }
        // The contract's ring: equal chunks, chunk c from rank c + 1 on.
        ring += u64::from(is((i * ranks / n + 1) % ranks, false));
        neither += u64::from(!any);
    }
    let seconds = timed(nccl, wire, n)?;
    let bytes = n * if wire == Wire::Bf16 { 2 } else { 4 };
    Ok(json!({
        "wire": format!("{wire:?}"), "values": n, "as_ranks_ascending": forwards[0], "as_contract_ring": ring,
        "from_rank": forwards, "neither": neither, "between_ranks": between, "again": again,
        "microseconds": seconds * 1e6, "bus_gb_s": bytes as f64 * 2.0 * (ranks as f64 - 1.0) / ranks as f64 / seconds / 1e9,
    }))
}

/// Seconds of an all-reduce, launch and wait included: the median of nine.
fn timed(nccl: &Nccl, wire: Wire, n: usize) -> Result<f64> {
    let bytes = n * if wire == Wire::Bf16 { 2 } else { 4 };
    let make = || nccl.devices().iter().map(|d| d.alloc(bytes, 0)).collect::<Result<Vec<_>>>();
    let (from, to) = (make()?, make()?);
    let mut times = Vec::new();
    for _ in 0..9 {
        let start = Instant::now();
        nccl.all_reduce(&from, &to, n, wire)?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[4])
}

/// Shares of different lengths, one of them empty where there are three ranks or more.
fn all_gather(nccl: &Nccl) -> Result<Value> {
    let ranks = nccl.devices().len();
    let shares: Vec<Vec<f32>> =
        (0..ranks).map(|r| values(if r == 2 { 0 } else { 100_003 * (r + 1) }, r as u64 + 9)).collect();
    let start = Instant::now();
    let found = nccl.gathered(&shares)?;
    let seconds = start.elapsed().as_secs_f64();
    let pairs = shares.iter().flatten().zip(found.iter().flatten());
    let differing = pairs.filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    let whole = shares.iter().map(Vec::len).eq(found.iter().map(Vec::len));
    let n: usize = shares.iter().map(Vec::len).sum();
    Ok(json!({"values": n, "differing": differing + usize::from(!whole), "seconds_with_copies": seconds}))
}

/// Audits of tp-allreduce with as many ranks as there are GPUs: on this processor with the contract's order, and with golden's experts
/// and the all-reduce on the GPUs; every table of the bundles.
fn audits(it: &Part, karat: &Path, count: usize, evidence: &mut Value) -> Result<bool> {
    let mut all = Vec::new();
    let mut good = true;
    let gpus = count.to_string();
    let pack = it.pack.display().to_string();
    let there = ["--backend", "cuda", "--pack", &pack, "--gpus", &gpus];
    if [2, 4, 8].contains(&count) {
        for options in [":sum=bf16", ":sum=f32", ":sum=bf16:order=ring"] {
            let patch = format!("tp-allreduce:ranks={count}{options}");
            let (codes, seconds, files, said) = audit_twice(karat, &["--patches", &patch], &there)?;
            let differing: Vec<&str> = files.iter().filter(|f| !f.same).map(|f| f.file.as_str()).collect();
            println!("audit {patch}: exit {codes:?}, {seconds:.1?} s, files that differ: {differing:?} {said}");
            // With two ranks an order has one result; with more the contract's order is compared and reported.
            good &= codes[0] == codes[1] && (count > 2 || differing.is_empty());
            all.push(json!({"patch": patch, "exit": codes, "seconds": seconds, "files": files.len(), "differing": differing}));
        }
    }
    evidence["audits"] = Value::Array(all);
    let more = (count + 1).to_string();
    let cases: [(&[&str], i32); 2] = [
        (&["audit", "--no-cache", "--quiet", "--backend", "cuda", "--pack", &pack, "--gpus", &more], 2),
        (&["audit", "--no-cache", "--quiet", "--gpus", "2"], 2),
    ];
    let mut refused = Vec::new();
    for (args, expected) in cases {
        let (found, message, _) = run_karat(karat, args, None)?;
        println!("refused: exit {found}, expected {expected}: {message}");
        good &= found == expected;
        refused.push(json!({"args": args, "expected": expected, "found": found, "message": message}));
    }
    evidence["refusals"] = Value::Array(refused);
    Ok(good)
}
