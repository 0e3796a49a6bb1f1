//! The diff engine, and the machine's own ceilings, as a worker of `cargo xtask peers`: a command line on stdin, a JSON
//! line on stdout. `peer_diff THREADS`.
#![expect(clippy::print_stdout, reason = "its answers are read by the program that started it")]

mod simd_probe;

use std::hint::black_box;
use std::io::BufRead;
use std::time::Instant;

use karat_diff::{Grid, Storage, measure};
use karat_seam::{Data, Tensor};
use rayon::prelude::*;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Columns of the pair.
const WIDTH: usize = 1024;
/// Values that a thread reads at a time.
const PIECE: usize = 1 << 16;

fn main() -> Result<()> {
    let threads: usize = std::env::args().nth(1).ok_or("peer_diff THREADS")?.parse()?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let mut made: Option<(usize, Tensor, Tensor)> = None;
    println!("{{\"ready\": true, \"isa\": \"{}\"}}", simd_probe::isa());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let command = words.first().copied().unwrap_or_default();
        let number: usize = words.get(1).ok_or("a number is missing")?.parse()?;
        if command == "fma" {
            // `number` million steps of every chain on every thread.
            let clock = Instant::now();
            let flops = pool.broadcast(|_| simd_probe::fma(black_box(number as u64 * 1_000_000)));
            let seconds = clock.elapsed().as_secs_f64();
            println!("{{\"seconds\": {seconds}, \"gflops\": {}}}", flops.iter().sum::<f64>() / seconds / 1e9);
            continue;
        }
        if made.as_ref().is_none_or(|(mib, ..)| *mib != number) {
            made = None;
            let (x, y) = pair(number);
            made = Some((number, x, y));
        }
        let Some((_, x, y)) = &made else { continue };
        let grid = Grid::of(x);
        let clock = Instant::now();
        match command {
            "full" => {
                let measured = pool.install(|| measure("pair", x, y, Storage::F32, &grid))?;
                black_box(measured);
            }
            "read" => {
                let sum: f32 = pool.install(|| {
                    let parts = |t: &Tensor| -> Result<f32> {
                        let values = t.as_f32("pair")?;
                        Ok(values.par_chunks(PIECE).map(simd_probe::sum).sum())
                    };
                    parts(x).and_then(|a| parts(y).map(|b| a + b)).unwrap_or(f32::NAN)
                });
                black_box(sum);
            }
            other => return Err(format!("unknown command {other:?}").into()),
        }
        println!("{{\"seconds\": {}}}", clock.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Two tensors of so many MiB, about normal, the second a part in a thousand off the first.
fn pair(mib: usize) -> (Tensor, Tensor) {
    let n = mib << 18;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u32 << 24) as f32
    };
    // A sum of four uniform values is near enough to normal here: only the spread of magnitudes matters.
    let mut normal = || (uniform() + uniform() + uniform() + uniform() - 2.0) * 1.732;
    let x: Vec<f32> = (0..n).map(|_| normal()).collect();
    let y: Vec<f32> = x.iter().map(|v| v + 1e-3 * normal()).collect();
    let tensor = |v: Vec<f32>| Tensor::new(vec![n / WIDTH, WIDTH], Data::F32(v));
    (tensor(x), tensor(y))
}
