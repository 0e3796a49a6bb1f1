//! Golden as a worker of `cargo xtask peers`: a command line on stdin, a JSON line on stdout.
//! `peer_golden DIR THREADS [avx2]`; DIR holds a checkpoint and prompt.json. The last word holds it to AVX2.
#![expect(clippy::print_stdout, reason = "its answers are read by the program that started it")]

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Instant;

use karat_model::Checkpoint;
use karat_reference::linalg::{Isa, Weight};
use karat_reference::{Golden, Mode, Session};
use karat_seam::{
    Block, DataMut, Error, NoTaps, Requests, Result as SeamResult, RowId, Site, Tap, TensorMut, Visitor, Want,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Choices that a row of a decision has at most.
const CHOICES: usize = 32;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, threads, held @ ..] = args.as_slice() else { return Err("peer_golden DIR THREADS [avx2]".into()) };
    let (dir, threads) = (FilePath::new(dir), threads.parse()?);
    let isa = if held == ["avx2"] { Isa::Avx2 } else { Isa::best() };
    let checkpoint = Arc::new(Checkpoint::open(dir)?);
    let prompt: Vec<u32> = serde_json::from_slice(&std::fs::read(dir.join("prompt.json"))?)?;
    let golden = Golden::new(checkpoint, Requests { seqs: Vec::new() }, Mode::F32, threads)?.on(isa);
    let mut session = Session::new(&golden)?;
    println!("{}", serde_json::json!({"ready": true}));
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |i: usize| -> Result<usize> { Ok(words.get(i).ok_or("a number is missing")?.parse()?) };
        let ids = |n: usize| prompt.get(..n).ok_or("the prompt is shorter");
        let answer = match words.first().copied().unwrap_or_default() {
            "forward" => {
                session.clear();
                let clock = Clock::start();
                session.extend(ids(number(1)?)?, &mut NoTaps)?;
                let mut took = clock.stop();
                took["peak_mib"] = peak_mib().into();
                took
            }
            "decode" => {
                session.clear();
                session.extend(ids(number(1)?)?, &mut NoTaps)?;
                let mut took = Vec::new();
                for i in 0..number(2)? {
                    let clock = Instant::now();
                    session.extend(&ids(i + 1)?[i..], &mut NoTaps)?;
                    took.push(clock.elapsed().as_secs_f64());
                }
                took.sort_by(f64::total_cmp);
                serde_json::json!({"seconds": took.get(took.len() / 2)})
            }
            "decisions" => {
                let stem = words.get(2).ok_or("a stem is missing")?;
                session.clear();
                let mut seen = Decisions::default();
                let logits = session.extend(ids(number(1)?)?, &mut seen)?;
                let values = logits.as_f32("logits")?;
                std::fs::write(
                    format!("{stem}.logits"),
                    values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>(),
                )?;
                std::fs::write(format!("{stem}.choices"), seen.bytes())?;
                serde_json::json!({"rows": logits.rows(), "width": logits.width(), "decisions": seen.0.len()})
            }
            "forced" => {
                let (from, to) = (words.get(2).ok_or("a stem is missing")?, words.get(3).ok_or("a stem is missing")?);
                session.clear();
                let mut forced = Forced::read(&std::fs::read(format!("{from}.choices"))?);
                let logits = session.extend(ids(number(1)?)?, &mut forced)?;
                let values = logits.as_f32("logits")?;
                std::fs::write(
                    format!("{to}.logits"),
                    values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>(),
                )?;
                serde_json::json!({"rows": logits.rows(), "forced": forced.done})
            }
            "product" => product([number(1)?, number(2)?, number(3)?], threads, isa)?,
            other => return Err(format!("unknown command {other:?}").into()),
        };
        println!("{answer}");
    }
    Ok(())
}

/// One product `[m,k] x [n,k]^T`, the weight packed before; short ones are repeated.
fn product([m, n, k]: [usize; 3], threads: usize, isa: Isa) -> Result<serde_json::Value> {
    let mut state = 1u32;
    let mut draw = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let x: Vec<f32> = (0..m * k).map(|_| draw()).collect();
    let w: Vec<f32> = (0..n * k).map(|_| draw()).collect();
    let weight = Weight::new(n, k, &w, threads)?.on(isa);
    let mut out = vec![0f32; m * n];
    weight.multiply(&x, &mut out);
    let times = (200_000_000 / (m * n * k).max(1)).max(1);
    let clock = Instant::now();
    for _ in 0..times {
        weight.multiply(&x, &mut out);
    }
    Ok(serde_json::json!({"seconds": clock.elapsed().as_secs_f64() / times as f64}))
}

/// Experts and entries that were chosen: (layer, kind, row, choices).
#[derive(Default)]
struct Decisions(Vec<(u16, i32, u32, Vec<i64>)>);

impl Decisions {
    /// As the other worker writes them; margins are its own.
    fn bytes(&self) -> Vec<u8> {
        let word = |v: i64| (v as i32).to_le_bytes();
        let mut out = Vec::new();
        for (layer, kind, row, chosen) in &self.0 {
            let head = [i64::from(*layer), i64::from(*kind), i64::from(*row), 0];
            let padding = std::iter::repeat_n(-1, CHOICES.saturating_sub(chosen.len()));
            out.extend(head.into_iter().chain(chosen.iter().copied().take(CHOICES)).chain(padding).flat_map(word));
        }
        out
    }
}

impl Visitor for Decisions {
    fn want(&self, at: Site) -> Want {
        if matches!(at.tap, Tap::AttnSelected | Tap::FfnIdx) { Want::Read } else { Want::Skip }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> SeamResult<()> {
        let Block::Layer(layer) = at.block else { return Ok(()) };
        for (i, row) in rows.iter().enumerate() {
            let (kind, mut chosen): (i32, Vec<i64>) = match &tensor.data {
                DataMut::U8(v) => {
                    let width = v.len() / rows.len();
                    let of_row = v[i * width..(i + 1) * width].iter().enumerate();
                    (0, of_row.filter(|(_, s)| **s != 0).map(|(e, _)| e as i64).collect())
                }
                DataMut::I64(v) => {
                    let width = v.len() / rows.len();
                    (1, v[i * width..(i + 1) * width].to_vec())
                }
                _ => continue,
            };
            chosen.sort_unstable();
            self.0.push((layer, kind, row.pos, chosen));
        }
        Ok(())
    }
}

/// Decisions of the other worker, taken over as far as it wrote them.
struct Forced {
    choices: HashMap<(u16, i32, u32), Vec<i64>>,
    /// Decisions that were taken over.
    done: usize,
}

impl Forced {
    /// Records of i32 words: layer, kind, row, margin, choices, filled up with -1.
    fn read(bytes: &[u8]) -> Self {
        let words: Vec<i32> = bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
        let mut choices = HashMap::new();
        for record in words.chunks_exact(4 + CHOICES) {
            let chosen = record[4..].iter().filter(|v| **v >= 0).map(|v| i64::from(*v)).collect();
            choices.insert((record[0] as u16, record[1], record[2] as u32), chosen);
        }
        Self { choices, done: 0 }
    }
}

impl Visitor for Forced {
    fn want(&self, at: Site) -> Want {
        if matches!(at.tap, Tap::AttnSelected | Tap::FfnIdx) { Want::Write } else { Want::Skip }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> SeamResult<()> {
        let Block::Layer(layer) = at.block else { return Ok(()) };
        match tensor.data {
            DataMut::U8(v) if !v.is_empty() => {
                let width = v.len() / rows.len();
                for (row, mask) in rows.iter().zip(v.chunks_exact_mut(width)) {
                    let Some(chosen) = self.choices.get(&(layer, 0, row.pos)) else { continue };
                    mask.fill(0);
                    for &entry in chosen {
                        let own = mask.get_mut(entry as usize).ok_or_else(|| past(at, entry))?;
                        *own = 1;
                    }
                    self.done += 1;
                }
            }
            DataMut::I64(v) => {
                let width = v.len() / rows.len();
                for (row, slots) in rows.iter().zip(v.chunks_exact_mut(width)) {
                    let Some(chosen) = self.choices.get(&(layer, 1, row.pos)) else { continue };
                    // Those that golden chose too keep their slots: the order of slots is part of a sum's.
                    let own = slots.to_vec();
                    let mut fresh = chosen.iter().filter(|e| !own.contains(e));
                    for slot in slots.iter_mut().filter(|slot| !chosen.contains(slot)) {
                        *slot = *fresh.next().ok_or_else(|| past(at, *slot))?;
                    }
                    self.done += 1;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn past(at: Site, choice: i64) -> Error {
    Error::Request(format!("{at}: the other worker's choices don't fit, at {choice}"))
}

/// Wall and processor time.
struct Clock(Instant, f64);

impl Clock {
    fn start() -> Self {
        Self(Instant::now(), cpu_seconds())
    }

    fn stop(&self) -> serde_json::Value {
        serde_json::json!({"seconds": self.0.elapsed().as_secs_f64(), "cpu_seconds": cpu_seconds() - self.1})
    }
}

/// Processor time of this process, where /proc tells it; it counts in hundredths of a second.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = |i: usize| behind_name.split(' ').nth(i).and_then(|t| t.parse::<f64>().ok()).unwrap_or(f64::NAN);
    (ticks(11) + ticks(12)) / 100.0
}

/// Largest resident size of this process so far.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse::<f64>().map_or(f64::NAN, |kib| kib / 1024.0)
}
