//! How fast rows are sketched and traces written: `capture_speed DIR [PEER]`, where PEER is `xtask/peers/torch_save.py`. DIR gets 1 GB at
//! a time, and nothing of it stays.
//!
//! Sketches: GB/s of values, pieces of 1 MiB, by width and number of threads. Writing: tensors that are ready, shown row by row (32 KiB) or in
//! pieces of 1 MiB, by turns with plain writes of as many bytes, each once as the system takes it and once on the disk at the end (a dump by
//! [`TraceWriter::synced`], a plain file by one sync); and, with PEER, `torch.save` of every such row or piece into a file of its own, not synced.
#![expect(clippy::print_stdout, reason = "a measuring program")]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use karat_seam::{DataMut, Requests, RowId, Sequence, Site, Tap, Tensor, TensorMut, Visitor};
use karat_trace::{Header, Order, SketchWriter, TapGlob, TraceWriter};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Layers of a dump, each of 64 MiB.
const LAYERS: u16 = 16;
const LAYER: usize = 1 << 26;
const TURNS: usize = 5;

fn main() -> Result<(), Failed> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("which folder? (it gets 1 GB at a time)")?);
    let mut peer = std::env::args().nth(2).map(|script| Peer::start(&script, &dir)).transpose()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for threads in [1, 2, cores] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        for width in [64, 256, 1024, 4096, 16384] {
            println!("sketch, rows of {width}, {threads} threads: {:.1} GB/s", pool.install(|| sketched(&dir, width))?);
        }
    }
    for bytes in [1 << 15, 1 << 20] {
        // By what: raw, trace, both synced, torch.save.
        let mut rates: [Vec<f64>; 5] = Default::default();
        for turn in 0..TURNS {
            for what in 0..4 {
                // Raw or trace first by turns.
                let what = (what + turn) % 4;
                let seconds = match what {
                    0 | 2 => raw(&dir, bytes, what == 2)?,
                    _ => dumped(&dir, bytes / 4, what == 3)?,
                };
                rates[what].push(f64::from(LAYERS) * LAYER as f64 / seconds / 1e9);
            }
            if let Some(peer) = &mut peer {
                rates[4].push(peer.saved(bytes)?);
            }
        }
        let ratio = |a: usize, b: usize| median(rates[a].iter().zip(&rates[b]).map(|(a, b)| a / b).collect());
        println!("tensors of {} KiB, {TURNS} turns, GB/s (least to most):", bytes / 1024);
        for (what, rates) in ["raw", "trace", "raw, synced", "trace, synced", "torch.save"].iter().zip(&rates) {
            if !rates.is_empty() {
                let (least, most) = rates.iter().fold((f64::INFINITY, 0f64), |(l, m), v| (l.min(*v), m.max(*v)));
                println!("  {what:<14} {:.3} ({least:.3} to {most:.3})", median(rates.clone()));
            }
        }
        println!("  trace of raw {:.3}, synced {:.3}, medians of the turns' ratios", ratio(1, 0), ratio(3, 2));
        if peer.is_some() {
            println!("  trace is {:.1} times torch.save", ratio(1, 4));
        }
    }
    Ok(())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
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

/// Seconds of appending pieces of so many bytes to one file.
fn raw(dir: &Path, piece: usize, is_synced: bool) -> Result<f64, Failed> {
    let bytes: Vec<u8> = values(LAYER / 4).iter().flat_map(|v| v.to_le_bytes()).collect();
    let path = dir.join("raw");
    let start = Instant::now();
    let mut file = File::create(&path)?;
    for _ in 0..LAYERS {
        bytes.chunks(piece).try_for_each(|bytes| file.write_all(bytes))?;
    }
    if is_synced {
        file.sync_data()?;
    }
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(seconds)
}

/// Seconds of a dump whose rows come one at a time.
fn dumped(dir: &Path, width: usize, is_synced: bool) -> Result<f64, Failed> {
    let mut values = values(LAYER / 4);
    let rows = values.len() / width;
    let (target, all) = (dir.join("trace"), ids(rows));
    let start = Instant::now();
    let header = Header::default();
    let mut writer = TraceWriter::create(&target, &requests(rows), header, TapGlob::all(), Order::LayerMajor)?;
    if is_synced {
        writer = writer.synced();
    }
    for l in 0..LAYERS {
        for (row, values) in all.chunks(1).zip(values.chunks_mut(width)) {
            let tensor = TensorMut { shape: &[1, width], data: DataMut::F32(values) };
            writer.visit(Site::layer(l, Tap::Out), row, tensor)?;
        }
    }
    let target = writer.finish()?;
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_dir_all(target)?;
    Ok(seconds)
}

/// A program that saves tensors each time it is asked, and says how fast.
struct Peer {
    process: Child,
    ask: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Peer {
    fn start(script: &str, dir: &Path) -> Result<Self, Failed> {
        let mut process =
            Command::new("python3").arg(script).arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (ask, said) = (process.stdin.take().ok_or("no stdin")?, process.stdout.take().ok_or("no stdout")?);
        let mut peer = Self { process, ask, said: BufReader::new(said) };
        println!("torch {}", peer.line()?);
        Ok(peer)
    }

    /// GB/s of `torch.save`, tensors of so many bytes.
    fn saved(&mut self, bytes: usize) -> Result<f64, Failed> {
        writeln!(self.ask, "{bytes}")?;
        Ok(self.line()?.parse()?)
    }

    fn line(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        if self.said.read_line(&mut line)? == 0 {
            return Err(format!("the peer ended: {}", self.process.wait()?).into());
        }
        Ok(line.trim().to_string())
    }
}
