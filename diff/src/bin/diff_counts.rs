//! One hot loop of the diff engine, once: what `cargo xtask counts` runs under callgrind. Without an argument it lists
//! them.
#![expect(clippy::print_stdout, reason = "a program for `cargo xtask counts`")]

use std::hint::black_box;

use karat_diff::{Code, Grid, Storage, Values, View, measure_core, measure_views, split};
use karat_seam::{Result, Tensor};

/// Rows and columns of every pair.
const SHAPE: [usize; 2] = [64, 512];

/// A loop's name, and the loop.
type Loop = (&'static str, Box<dyn Fn() -> Result<()> + Send + Sync>);

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let wanted = std::env::args().nth(1);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    println!("isa {}", isa());
    for (name, run) in loops() {
        match &wanted {
            Some(wanted) if wanted == name => pool.install(|| counted(&*run))?,
            Some(_) => {}
            None => println!("{name}"),
        }
    }
    Ok(())
}

/// The frame by which instruction counts are told from everything around them.
#[inline(never)]
fn counted(run: &(dyn Fn() -> Result<()> + Send + Sync)) -> Result<()> {
    let done = run();
    black_box(&done);
    done
}

fn isa() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        match has!("avx2") && has!("fma") {
            true if has!("avx512f") => return "Avx512",
            true => return "Avx2",
            false => {}
        }
    }
    "Scalar"
}

fn loops() -> Vec<Loop> {
    let (x, y) = pair();
    let (nx, ny) = (x.clone(), y.clone());
    let core = move || {
        let side = |v| View { shape: &SHAPE, values: Values::F32(v) };
        measure_core("pair", side(&nx), side(&ny), &Grid::new(SHAPE[0], SHAPE[1])).map(|m| drop(black_box(m)))
    };
    let (nx, ny) = (x.clone(), y.clone());
    let full = move || {
        let side = |v| View { shape: &SHAPE, values: Values::F32(v) };
        let grid = Grid::new(SHAPE[0], SHAPE[1]);
        measure_views("pair", side(&nx), side(&ny), Storage::F32, 8, &grid).map(|m| drop(black_box(m)))
    };
    let halves = |v: &[f32]| v.iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect::<Vec<u8>>();
    let bf16 = stored(Code::Bf16, halves(&x), halves(&y));
    // Bytes of codes of about 1/16 to 15, and a neighbour now and then.
    let code = |v: &f32| (((v.to_bits() >> 20) as u8) & 0x1f) + 0x20;
    let codes = |v: &[f32]| v.iter().map(code).collect::<Vec<u8>>();
    let e4m3 = stored(Code::E4m3, codes(&x), codes(&y));
    let side = |v: &[f32]| Tensor::f32(SHAPE, v.to_vec());
    let (a, b, c) = (side(&x), side(&y), side(&y));
    let three = move || split("three", &a, &b, &c, &Grid::new(SHAPE[0], SHAPE[1])).map(|s| drop(black_box(s)));
    vec![
        ("core f32", Box::new(core)),
        ("full f32", Box::new(full)),
        ("full bf16", bf16),
        ("full e4m3", e4m3),
        ("split f32", Box::new(three)),
    ]
}

fn stored(code: Code, x: Vec<u8>, y: Vec<u8>) -> Box<dyn Fn() -> Result<()> + Send + Sync> {
    Box::new(move || {
        let side = |bytes| View::stored("pair", &SHAPE, code, bytes);
        let grid = Grid::new(SHAPE[0], SHAPE[1]);
        measure_views("pair", side(&x)?, side(&y)?, code.storage(), 8, &grid).map(|m| drop(black_box(m)))
    })
}

/// Values of mixed sign and size, and the same a part in a thousand off.
fn pair() -> (Vec<f32>, Vec<f32>) {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut unit = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let x: Vec<f32> = (0..SHAPE[0] * SHAPE[1]).map(|_| unit() + unit() + unit() + unit()).collect();
    let y = x.iter().map(|v| v * (1.0 + 1e-3 * unit())).collect();
    (x, y)
}
