//! What capturing costs golden: `captured MODEL DIR [THREADS [SECONDS]]`, or one pass alone, for a counter of instructions:
//! `captured MODEL DIR once off|looked|sketch|dump TOKENS THREADS`.
//!
//! For 512 and for 2,048 tokens, passes with every tap take turns: capture off, taps looked at and nothing kept, sketches, a whole dump, and a dump whose
//! files are synced; beside them the dump's own files are written again from memory and synced, which is what the disk gives.
//! DIR gets the traces, one at a time. SECONDS (35) bounds each number of tokens; medians over the turns, and of each turn's ratios.
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
        [model, dir, "once", what, tokens, threads] => {
            let what = match what {
                "off" => What::Off,
                "looked" => What::Looked,
                "sketch" => What::Sketch,
                "dump" => What::Dump,
                other => return Err(format!("expected off, looked, sketch or dump, found `{other}`").into()),
            };
            let golden = golden(model, tokens.parse()?, threads.parse()?)?;
            passed(&golden, what, &FilePath::new(dir).join("once"))?;
        }
        [model, dir, ref rest @ ..] => {
            let threads = rest.first().map_or(Ok(cores), |n| n.parse())?;
            let seconds: f64 = rest.get(1).map_or(Ok(35.0), |n| n.parse())?;
            for tokens in [512, 2048] {
                by_turns(&golden(model, tokens, threads)?, FilePath::new(dir), tokens, seconds)?;
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
fn passed((golden, requests): &(Golden, Requests), what: What, to: &FilePath) -> Result<[f64; 2]> {
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

fn by_turns(golden: &(Golden, Requests), dir: &FilePath, tokens: usize, seconds: f64) -> Result<()> {
    const ALL: [What; 5] = [What::Off, What::Looked, What::Sketch, What::Dump, What::Synced];
    let (folder, begun) = (dir.join("captured"), Instant::now());
    passed(golden, What::Off, &folder)?;
    passed(golden, What::Dump, &folder)?;
    let contents = files(&folder)?.iter().map(fs::read).collect::<std::result::Result<Vec<_>, _>>()?;
    let bytes = contents.iter().map(Vec::len).sum::<usize>() as f64;
    fs::remove_dir_all(&folder)?;
    // By what: seconds of the clock, and of processors.
    let (mut took, mut raws) = (vec![[Vec::new(), Vec::new()]; ALL.len()], Vec::new());
    for turn in 0.. {
        if turn >= 5 && begun.elapsed().as_secs_f64() > seconds || turn == 41 {
            break;
        }
        // Another one begins each time.
        for i in 0..ALL.len() {
            let i = (i + turn) % ALL.len();
            let [wall, processors] = passed(golden, ALL[i], &folder)?;
            took[i][0].push(wall);
            took[i][1].push(processors);
            if folder.exists() {
                fs::remove_dir_all(&folder)?;
            }
        }
        raws.push(raw(&contents, dir)?);
    }
    println!("{tokens} tokens, {} turns; {:.0} MB of dump", raws.len(), bytes / 1e6);
    for (what, [wall, processors]) in ALL.iter().zip(&took) {
        let ratios = wall.iter().zip(&took[0][0]).map(|(a, off)| a / off).collect();
        let busy = processors.iter().sum::<f64>() / took[0][1].iter().sum::<f64>();
        let (seconds, (least, most)) = (median(wall.clone()), ends(wall));
        println!(
            "  {:<7} {seconds:.4} s ({least:.4} to {most:.4}), {:.3} of off by turns, {busy:.3} of its processor time",
            format!("{what:?}").to_lowercase(),
            median(ratios),
        );
    }
    let (off, dump, synced, raw) =
        (median(took[0][0].clone()), median(took[3][0].clone()), median(took[4][0].clone()), median(raws));
    println!("  raw     {raw:.4} s for as many bytes, synced: {:.2} GB/s", bytes / raw / 1e9);
    println!(
        "  a synced dump: {:.2} of the disk's speed over all of its time, {:.2} over what it takes beyond the run or the disk, whichever is longer; {:.2} GB/s not synced",
        raw / synced,
        off.max(raw) / synced,
        bytes / dump / 1e9
    );
    Ok(())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn ends(of: &[f64]) -> (f64, f64) {
    of.iter().fold((f64::INFINITY, 0.0), |(least, most), v| (least.min(*v), most.max(*v)))
}
