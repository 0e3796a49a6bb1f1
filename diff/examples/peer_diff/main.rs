//! The diff engine, and the machine's own ceilings, as a worker of `cargo xtask peers`: a command line on stdin, a JSON
//! line on stdout. `peer_diff THREADS FOLDER [avx2]`; files of tensors are written into FOLDER where a command needs them.
//! The last word holds it to AVX2.
//!
//! | command | what is timed |
//! |---|---|
//! | `fma N` | N million multiply-adds of every chain |
//! | `read MIB` | reading the bytes of two tensors of MIB each, in memory |
//! | `cat MIB DTYPE` | reading the bytes of two mapped files |
//! | `core MIB DTYPE memory\|mapped`, `full ..` | comparing; a mapped file is opened and mapped within the time |
#![expect(clippy::print_stdout, reason = "its answers are read by the program that started it")]

mod pairs;
mod simd_probe;

use std::hint::black_box;
use std::io::BufRead;
use std::path::PathBuf;
use std::time::Instant;

use karat_diff::{Code, Grid, Isa, Metrics, RowMetrics, View, measure_core, measure_views};
use karat_trace::TensorFile;
use rayon::ThreadPool;
use rayon::prelude::*;

use pairs::{Pair, path};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Values that a thread reads at a time.
const PIECE: usize = 1 << 16;
/// Worst values that the full set names.
const WORST: usize = 8;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let threads: usize = arguments.next().ok_or("peer_diff THREADS FOLDER")?.parse()?;
    let folder = PathBuf::from(arguments.next().ok_or("peer_diff THREADS FOLDER")?);
    if arguments.next().as_deref() == Some("avx2") {
        Isa::Avx2.hold_to();
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let mut held: Option<Pair> = None;
    println!("{{\"ready\": true, \"isa\": \"{}\"}}", simd_probe::isa());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let number: usize = words.get(1).ok_or("a number is missing")?.parse()?;
        if words[0] == "fma" {
            let clock = Instant::now();
            let flops = pool.broadcast(|_| simd_probe::fma(black_box(number as u64 * 1_000_000)));
            let seconds = clock.elapsed().as_secs_f64();
            println!("{{\"seconds\": {seconds}, \"gflops\": {}}}", flops.iter().sum::<f64>() / seconds / 1e9);
            continue;
        }
        let code = code(words.get(2).copied().unwrap_or("f32"))?;
        if held.as_ref().is_none_or(|pair| !pair.is(number, code)) {
            // The old pair goes first: two are as much memory as a small machine has.
            drop(held.take());
            held = Some(Pair::make(number, code));
        }
        let Some(pair) = &held else { continue };
        let is_mapped = words[0] == "cat" || words.get(3) == Some(&"mapped");
        if is_mapped {
            pair.write(&folder)?;
        }
        let clock = Instant::now();
        if is_mapped {
            let (a, b) = (TensorFile::open(&path(&folder, "a"))?, TensorFile::open(&path(&folder, "b"))?);
            let (a, b) = (a.raw("t")?, b.raw("t")?);
            let x = View::stored("a", a.shape, code, a.bytes)?;
            let y = View::stored("b", b.shape, code, b.bytes)?;
            run(&pool, words[0], x, y, &|| read_bytes(a.bytes) + read_bytes(b.bytes))?;
        } else {
            let (x, y) = pair.views()?;
            let floats = pair.floats();
            run(&pool, words[0], x, y, &|| floats.map_or(f32::NAN, |sides| sides.into_iter().map(read_floats).sum()))?;
        }
        println!("{{\"seconds\": {}}}", clock.elapsed().as_secs_f64());
    }
    Ok(())
}

fn run(pool: &ThreadPool, command: &str, x: View<'_>, y: View<'_>, read: &(dyn Fn() -> f32 + Sync)) -> Result<()> {
    let grid = Grid::of_view(&x);
    match command {
        "core" => {
            black_box(pool.install(|| measure_core("pair", x, y, &grid))?);
        }
        "full" => {
            let storage = match y.values {
                karat_diff::Values::Stored(code, _) => code.storage(),
                _ => karat_diff::Storage::F32,
            };
            let measured = pool.install(|| measure_views("pair", x, y, storage, WORST, &grid))?;
            black_box((Metrics::of(&measured.total), RowMetrics::of(&measured.rows)));
        }
        "read" | "cat" => {
            black_box(pool.install(read));
        }
        other => return Err(format!("unknown command {other:?}").into()),
    }
    Ok(())
}

fn read_floats(values: &[f32]) -> f32 {
    values.par_chunks(PIECE).map(simd_probe::sum).sum()
}

/// As 32-bit numbers, whatever they are: only the reading counts.
fn read_bytes(bytes: &[u8]) -> f32 {
    bytes.as_chunks::<4>().0.par_chunks(PIECE).map(simd_probe::sum_bytes).sum()
}

fn code(name: &str) -> Result<Code> {
    match name {
        "f32" => Ok(Code::F32),
        "bf16" => Ok(Code::Bf16),
        "e4m3" => Ok(Code::E4m3),
        other => Err(format!("unknown element type {other:?}").into()),
    }
}
