//! What capturing costs golden: `captured MODEL DIR [THREADS [SECONDS]]`, or
//! `captured MODEL DIR once|turns|layer WHAT[,WHAT...] TOKENS THREADS [SECONDS]` of off, looked, sketch, dump, synced: one pass each, for a counter of
//! instructions; passes that take turns; or, where a whole pass takes too long, the first layer alone, which stays in memory.
//!
//! The first form is for 512 and for 2,048 tokens with every tap, and for SECONDS (35) each: capture off, taps looked at and nothing kept, and
//! sketches take turns; then capture off, a whole dump, and a dump whose files are synced, beside which the dump's own files are written again from memory and
//! synced, which is what the disk gives. DIR gets the traces, one at a time. Medians over the turns, and of each turn's ratios.
#![expect(clippy::print_stdout, reason = "an example is for people")]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use karat_model::Checkpoint;
use karat_reference::{Golden, Mode};
use karat_seam::{Lane, NoTaps, Path as _, Requests, RowId, Sequence, Site, TensorMut, Visitor, Want};
use karat_trace::{Header, Order, SketchWriter, TapGlob, TraceWriter};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What a pass leaves behind.
#[derive(Clone, Copy, PartialEq, Debug)]
enum What {
    Off,
    Looked,
    Sketch,
    Dump,
    Synced,
}

impl What {
    const ALL: [Self; 5] = [Self::Off, Self::Looked, Self::Sketch, Self::Dump, Self::Synced];

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|what| what.name() == name);
        found.ok_or_else(|| format!("expected off, looked, sketch, dump or synced, found `{name}`").into())
    }
}

/// Sees every tap and keeps nothing.
struct Looks;

impl Visitor for Looks {
    fn want(&self, _: Site) -> Want {
        Want::Read
    }
    fn takes_few_rows(&self) -> bool {
        true
    }
    fn visit(&mut self, _: Site, _: &[RowId], _: TensorMut<'_>) -> karat_seam::Result<()> {
        Ok(())
    }
}

fn main() -> Result<()> {
    // As the program does.
    karat_model::checkpoint::tune_allocator();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [model, dir, how @ ("once" | "turns" | "layer"), whats, tokens, threads, ref rest @ ..] => {
            let golden = golden(model, tokens.parse()?, threads.parse()?)?;
            let whats = whats.split(',').map(What::named).collect::<Result<Vec<_>>>()?;
            let (folder, seconds) =
                (FilePath::new(dir).join("captured"), rest.first().map_or(Ok(35.0), |n| n.parse())?);
            match how {
                "once" => whats.iter().try_for_each(|what| passed(&golden, *what, &folder, pass).map(drop))?,
                "turns" => drop(by_turns(&golden, &whats, &folder, seconds, pass)?),
                _ => {
                    let (x, layer) = (golden.0.embed(&mut NoTaps)?, golden.0.layer(0)?);
                    let pass = |_: &Golden, see: &mut dyn Visitor| Ok(layer.run(&mut [Lane::new(&x, see)])?);
                    drop(by_turns(&golden, &whats, &folder, seconds, pass)?);
                }
            }
        }
        [model, dir, ref rest @ ..] => {
            let threads = rest.first().map_or(Ok(cores), |n| n.parse())?;
            let seconds: f64 = rest.get(1).map_or(Ok(35.0), |n| n.parse())?;
            for tokens in [512, 2048] {
                let golden = golden(model, tokens, threads)?;
                by_turns(
                    &golden,
                    &[What::Off, What::Looked, What::Sketch],
                    &FilePath::new(dir).join("captured"),
                    seconds / 2.0,
                    pass,
                )?;
                to_the_disk(&golden, FilePath::new(dir), seconds / 2.0)?;
            }
        }
        _ => return Err("usage: captured MODEL DIR [THREADS [SECONDS]]".into()),
    }
    Ok(())
}

fn requests(vocab: usize, tokens: usize) -> Requests {
    let ids: Vec<u32> = (0..tokens).map(|i| ((i * 167 + i * i * 31) % vocab) as u32).collect();
    Requests { seqs: vec![Sequence::prompt("golden", ids)] }
}

fn golden(model: &str, tokens: usize, threads: usize) -> Result<(Golden, Requests)> {
    let checkpoint = Arc::new(Checkpoint::open(FilePath::new(model))?);
    let requests = requests(checkpoint.config().vocab_size, tokens);
    Ok((Golden::new(checkpoint, requests.clone(), Mode::F32, threads)?, requests))
}

/// Embedding, layers, head and draft blocks.
fn pass(golden: &Golden, see: &mut dyn Visitor) -> Result<()> {
    let mut x = golden.embed(see)?;
    for l in 0..golden.blocks().layers {
        let mut lanes = [Lane::new(&x, &mut *see)];
        golden.layer(l)?.run(&mut lanes)?;
        let [lane] = lanes;
        x = lane.out.ok_or("a layer left no streams")?.streams;
    }
    golden.head(&mut [Lane::new(&x, &mut *see)])?;
    Ok(())
}

/// One pass, with all that is written; seconds of the clock and of all processors.
fn passed(
    (golden, requests): &(Golden, Requests),
    what: What,
    to: &FilePath,
    pass: impl Fn(&Golden, &mut dyn Visitor) -> Result<()>,
) -> Result<[f64; 2]> {
    let (start, before) = (Instant::now(), processors());
    match what {
        What::Off => pass(golden, &mut NoTaps)?,
        What::Looked => pass(golden, &mut Looks)?,
        What::Sketch => {
            let mut writer = SketchWriter::create(to, requests, TapGlob::all())?;
            pass(golden, &mut writer)?;
            writer.finish()?;
        }
        What::Dump | What::Synced => {
            let (header, glob) = (Header::default(), TapGlob::all());
            let mut writer = TraceWriter::create(to, requests, header, glob, Order::LayerMajor)?;
            pass(golden, &mut writer)?;
            let folder = writer.finish()?;
            if what == What::Synced {
                files(&folder)?.iter().try_for_each(|path| File::open(path)?.sync_data())?;
            }
        }
    }
    Ok([start.elapsed().as_secs_f64(), processors() - before])
}

fn files(folder: &FilePath) -> Result<Vec<PathBuf>> {
    Ok(fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<std::result::Result<_, _>>()?)
}

/// Seconds of user and system that this process took so far, in hundredths, where Linux says so.
fn processors() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// What was dumped, written once more from memory by plain writes, and synced.
fn raw(contents: &[Vec<u8>], dir: &FilePath) -> Result<f64> {
    let start = Instant::now();
    let mut file = File::create(dir.join("raw"))?;
    for bytes in contents {
        bytes.chunks(4 << 20).try_for_each(|bytes| file.write_all(bytes))?;
    }
    file.sync_data()?;
    let seconds = start.elapsed().as_secs_f64();
    fs::remove_file(dir.join("raw"))?;
    Ok(seconds)
}

/// A dump beside the disk.
fn to_the_disk(golden: &(Golden, Requests), dir: &FilePath, seconds: f64) -> Result<()> {
    let folder = dir.join("captured");
    passed(golden, What::Dump, &folder, pass)?;
    let contents = files(&folder)?.iter().map(fs::read).collect::<std::result::Result<Vec<_>, _>>()?;
    let bytes = contents.iter().map(Vec::len).sum::<usize>() as f64;
    fs::remove_dir_all(&folder)?;
    let [off, dump, synced] = by_turns(golden, &[What::Off, What::Dump, What::Synced], &folder, seconds, pass)?[..]
    else {
        return Ok(());
    };
    let raws = (0..5).map(|_| raw(&contents, dir)).collect::<Result<Vec<_>>>()?;
    let raw = median(raws);
    println!("  raw     {raw:.4} s for as many bytes ({:.0} MB), synced: {:.2} GB/s", bytes / 1e6, bytes / raw / 1e9);
    println!(
        "  a synced dump: {:.2} of the disk's speed over all of its time, {:.2} over what it takes beyond the run or the disk, whichever is longer; {:.2} GB/s not synced",
        raw / synced,
        off.max(raw) / synced,
        bytes / dump / 1e9
    );
    Ok(())
}

/// Medians of the clock, after all are printed.
fn by_turns(
    golden: &(Golden, Requests),
    whats: &[What],
    folder: &FilePath,
    seconds: f64,
    pass: impl Fn(&Golden, &mut dyn Visitor) -> Result<()>,
) -> Result<Vec<f64>> {
    let begun = Instant::now();
    // By what: seconds of the clock, and of processors.
    let mut took = vec![[Vec::new(), Vec::new()]; whats.len()];
    // Before the first turn, one pass each that doesn't count.
    for turn in 0..=41 {
        if turn > 5 && begun.elapsed().as_secs_f64() > seconds {
            break;
        }
        for i in 0..whats.len() {
            // Another one begins each time, and each comes behind each other one as often: what a pass leaves in caches and of memory is
            // no other pass's gain.
            let place = (i + turn / 2) % whats.len();
            let i = if turn % 2 == 0 { place } else { whats.len() - 1 - place };
            let times = passed(golden, whats[i], folder, &pass)?;
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
            if turn > 0 {
                took[i].iter_mut().zip(times).for_each(|(to, time)| to.push(time));
            }
        }
    }
    let tokens: usize = golden.1.seqs.iter().map(|seq| seq.ids.len()).sum();
    println!("{tokens} tokens, {} turns", took[0][0].len());
    for (what, [wall, processors]) in whats.iter().zip(&took) {
        let mut ratios: Vec<f64> = wall.iter().zip(&took[0][0]).map(|(a, first)| a / first).collect();
        ratios.sort_by(f64::total_cmp);
        let busy = processors.iter().sum::<f64>() / took[0][1].iter().sum::<f64>();
        let (seconds, (least, most)) = (median(wall.clone()), ends(wall));
        println!(
            "  {:<7} {seconds:.4} s ({least:.4} to {most:.4}), {:.3} of {} by turns (quartiles {:.3} and {:.3}), {busy:.3} of its processor time",
            what.name(),
            median(ratios.clone()),
            whats[0].name(),
            ratios[ratios.len() / 4],
            ratios[ratios.len() * 3 / 4],
        );
    }
    Ok(took.into_iter().map(|[wall, _]| median(wall)).collect())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn ends(of: &[f64]) -> (f64, f64) {
    of.iter().fold((f64::INFINITY, 0.0), |(least, most), v| (least.min(*v), most.max(*v)))
}
