//! One hot loop of capturing, once: what `cargo xtask counts` runs under callgrind. Without an argument it lists them.
#![expect(clippy::print_stdout, reason = "a program for `cargo xtask counts`")]

use std::cell::RefCell;
use std::hint::black_box;

use karat_seam::{DataMut, NoTaps, Requests, RowId, Sequence, Site, Tap, TensorMut, Visitor, Want};
use karat_trace::{SketchWriter, TapGlob};

fn main() {
    let wanted = std::env::args().nth(1);
    println!("isa {}", isa());
    for (name, run) in loops() {
        match &wanted {
            Some(wanted) if wanted == name => counted(&*run),
            Some(_) => {}
            None => println!("{name}"),
        }
    }
}

/// The frame by which instruction counts are told from everything around them.
#[inline(never)]
fn counted(run: &dyn Fn()) {
    run();
    black_box(());
}

fn isa() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return "Avx2";
    }
    "Scalar"
}

fn loops() -> Vec<(&'static str, Box<dyn Fn()>)> {
    vec![
        ("sketch 512x64", sketches(512, 64)),
        ("sketch 64x512", sketches(64, 512)),
        ("sketch 8x4096", sketches(8, 4096)),
        ("off 10000 taps", Box::new(off)),
    ]
}

/// Rows of values of mixed sign and size.
fn sketches(rows: usize, width: usize) -> Box<dyn Fn()> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut unit = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let mut values: Vec<f32> = (0..rows * width).map(|_| unit()).collect();
    // A visit of them, outside of any pool; nothing is written, and the folder goes with the writer.
    let ids: Vec<u32> = (0..rows as u32).collect();
    let at: Vec<RowId> = ids.iter().map(|pos| RowId::new(0, *pos)).collect();
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids)] };
    let folder = std::env::temp_dir().join(format!("karat-trace-counts-{}-{width}", std::process::id()));
    let mut writer = SketchWriter::create(&folder, &requests, TapGlob::all()).expect("a folder for temporary files");
    let mut visit = move || {
        let tensor = TensorMut { shape: &[rows, width], data: DataMut::F32(&mut values) };
        writer.visit(Site::layer(0, Tap::AttnQ), &at, tensor).expect("rows of one tap");
    };
    // What memory costs at first is no matter of the loop.
    visit();
    let visit = RefCell::new(visit);
    Box::new(move || visit.borrow_mut()())
}

/// What each tap asks of a run that keeps nothing.
fn off() {
    let see: &dyn Visitor = black_box(&NoTaps);
    for l in 0..10_000 {
        let wants = see.want(black_box(Site::layer(l, Tap::AttnQ)));
        assert_eq!(black_box(wants), Want::Skip);
    }
}
