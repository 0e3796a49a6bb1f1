//! Times the passes on pairs that fit into the second-level cache or a little more, so that the loops are what is
//! timed: `cargo bench -p karat-diff`. What memory makes of it `cargo xtask peers` tells.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use karat_diff::{Code, Grid, Storage, View, measure_core, measure_views, split};
use karat_seam::Tensor;

/// Values of mixed sign and size, and the same a part in a thousand off.
fn pair(n: usize) -> (Vec<f32>, Vec<f32>) {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut unit = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u32 << 24) as f32 - 0.5
    };
    let x: Vec<f32> = (0..n).map(|_| unit() + unit() + unit() + unit()).collect();
    let y = x.iter().map(|v| v * (1.0 + 1e-3 * unit())).collect();
    (x, y)
}

fn main() {
    let criterion = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(100));
    let mut criterion = criterion.measurement_time(Duration::from_millis(500)).configure_from_args();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread starts");
    for (rows, width) in [(256, 256), (64, 1024), (4096, 16), (1, 65536)] {
        let (x, y) = pair(rows * width);
        let mut group = criterion.benchmark_group(format!("{rows}x{width}"));
        group.throughput(Throughput::Elements((rows * width) as u64));
        let bytes = |v: &[f32], code| -> Vec<u8> {
            match code {
                Code::Bf16 => v.iter().flat_map(|v| half::bf16::from_f32(*v).to_bits().to_le_bytes()).collect(),
                Code::E4m3 => v.iter().map(|v| float8::F8E4M3::from_f32(*v).to_bits()).collect(),
                _ => v.iter().flat_map(|v| v.to_le_bytes()).collect(),
            }
        };
        let shape = [rows, width];
        let grid = Grid::new(rows, width);
        for code in [Code::F32, Code::Bf16, Code::E4m3] {
            let (x, y) = (bytes(&x, code), bytes(&y, code));
            let x = View::stored("x", &shape, code, &x).expect("the bytes fit");
            let y = View::stored("y", &shape, code, &y).expect("the bytes fit");
            group.bench_function(format!("core {code:?}"), |bencher| {
                bencher.iter(|| pool.install(|| measure_core("pair", black_box(x), y, &grid)));
            });
            group.bench_function(format!("full {code:?}"), |bencher| {
                bencher.iter(|| pool.install(|| measure_views("pair", black_box(x), y, code.storage(), 8, &grid)));
            });
        }
        let tensor = |v: &[f32]| Tensor::f32([rows, width], v.to_vec());
        let (a, b, c) = (tensor(&x), tensor(&y), tensor(&y));
        group.bench_function("split", |bencher| {
            bencher.iter(|| pool.install(|| split("three", black_box(&a), &b, &c, &grid)));
        });
        let (x, y) = (View::of("x", &a).expect("numbers"), View::of("y", &b).expect("numbers"));
        let parts = Grid::new(rows, width).repeated(&[16]).expect("whole parts");
        group.bench_function("full, parts of 16", |bencher| {
            bencher.iter(|| pool.install(|| measure_views("pair", black_box(x), y, Storage::F32, 0, &parts)));
        });
        group.finish();
    }
    criterion.final_summary();
}
