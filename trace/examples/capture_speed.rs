//! How fast rows are sketched, and how fast a trace is written: `cargo run --release -p karat-trace --example capture_speed DIR`.
//! DIR gets the file `raw`, each value's bytes in order, and the folder `trace`, which hold the same number of bytes of values.
//! Both are written by turns, each with `fsync`.
#![expect(clippy::print_stdout, reason = "a measuring program")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use karat_seam::{Requests, TensorMut};
use karat_seam::{RowId, Sequence, Site, Tap, Tensor, Visitor};
use karat_trace::{Header, Order, SketchWriter, TapGlob, TraceWriter};

type Failed = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("which folder? (it gets 3 GB at most)")?);
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        for width in [64, 256, 1024, 4096, 16384] {
            println!("sketch, rows of {width}, {threads} threads: {:.1} GB/s", pool.install(|| sketched(&dir, width))?);
        }
    }
    // Rows of 32 KiB and of 1 MiB.
    for (width, rows) in [(8192, 2048), (1 << 18, 64)] {
        for turn in 0..3 {
            let (raw, trace) = (raw(&dir, width, rows)?, dumped(&dir, width, rows)?);
            println!("rows of {} KiB, turn {turn}: raw {raw:.2} GB/s, trace {trace:.2} GB/s", width * 4 / 1024);
        }
    }
    Ok(())
}

fn values(n: usize) -> Vec<f32> {
    (0..n as u32).map(|i| (i.wrapping_mul(2654435761) >> 8) as f32 / 8388608.0 - 1.0).collect()
}

fn requests(rows: usize) -> Requests {
    Requests { seqs: vec![Sequence::prompt("a", vec![0; rows])] }
}

fn ids(rows: usize) -> Vec<RowId> {
    (0..rows as u32).map(|pos| RowId::new(0, pos)).collect()
}

/// GB/s of values, pieces of 1 MiB over and over: what a layer leaves in the caches.
fn sketched(dir: &Path, width: usize) -> Result<f64, Failed> {
    let (rows, turns) = ((1 << 18) / width, 400);
    let mut piece = Tensor::f32([rows, width], values(rows * width));
    let target = dir.join("sketch");
    let mut writer = SketchWriter::create(&target, &requests(rows * turns), TapGlob::all())?;
    let (all, start) = (ids(rows * turns), Instant::now());
    for rows in all.chunks(rows) {
        writer.visit(Site::layer(0, Tap::AttnQ), rows, piece.as_mut())?;
    }
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_dir_all(writer.finish()?)?;
    Ok((turns * rows * width * 4) as f64 / seconds / 1e9)
}

/// Layers of a dump.
const LAYERS: u16 = 16;

fn raw(dir: &Path, width: usize, rows: usize) -> Result<f64, Failed> {
    let bytes: Vec<u8> = values(width * rows).iter().flat_map(|v| v.to_le_bytes()).collect();
    let path = dir.join("raw");
    let start = Instant::now();
    let mut file = std::fs::File::create(&path)?;
    for _ in 0..LAYERS {
        bytes.chunks(1 << 20).try_for_each(|bytes| file.write_all(bytes))?;
    }
    file.sync_all()?;
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(f64::from(LAYERS) * bytes.len() as f64 / seconds / 1e9)
}

fn dumped(dir: &Path, width: usize, rows: usize) -> Result<f64, Failed> {
    let mut values = values(width * rows);
    let (target, all) = (dir.join("trace"), ids(rows));
    let start = Instant::now();
    let header = Header::default();
    let mut writer = TraceWriter::create(&target, &requests(rows), header, TapGlob::all(), Order::LayerMajor)?;
    let piece = (rows / 8).max(1);
    for l in 0..LAYERS {
        for (rows, values) in all.chunks(piece).zip(values.chunks_mut(piece * width)) {
            let shape = [rows.len(), width];
            let tensor = TensorMut { shape: &shape, data: karat_seam::DataMut::F32(values) };
            writer.visit(Site::layer(l, Tap::Out), rows, tensor)?;
        }
    }
    let target = writer.finish()?;
    for file in std::fs::read_dir(&target)? {
        std::fs::File::open(file?.path())?.sync_all()?;
    }
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_dir_all(target)?;
    Ok(f64::from(LAYERS) * (width * rows * 4) as f64 / seconds / 1e9)
}
