//! The part `capture`: sketches and whole dumps of golden on the GPU against the CPU's, and what they cost; the same of one layer of
//! released shapes, where its folder is given.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use karat_kernels::cuda::Device;
use karat_kernels::evidence::Place;
use karat_kernels::golden::{CaptureEvidence, Cost, Dump, Gpu, Look, Phases, SameFile, SameWords, median};
use karat_kernels::list::SKETCH;
use karat_kernels::pack::Pack;
use karat_model::{Checkpoint, Error, Result};
use karat_reference::{Golden, Mode, Session};
use karat_seam::{Lane, Layer, NoTaps, Path as _, Requests, Sequence, Streams, Visitor};
use karat_trace::{Header, ModelId, Order, SketchWriter, TapGlob, TraceWriter, told};

use super::looks::{Looks, Step, Timed};

/// What the part is given.
pub(crate) struct Part {
    pub(crate) pack: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) date: String,
    /// Folder of the model.
    pub(crate) model: PathBuf,
    /// Folder of a model of released shapes.
    pub(crate) layer: Option<PathBuf>,
}

/// Tokens of the compared runs.
const TOKENS: usize = 512;
/// Rounds of each prefill: tokens, and how many.
const PREFILLS: [(usize, usize); 2] = [(512, 15), (2048, 11)];
/// Rounds of decode steps.
const STEPS: usize = 40;
/// The layer of released shapes: rows, rounds at least and at most, and seconds after which the least are enough.
const LAYER: (usize, [usize; 2], f64) = (2048, [5, 9], 30.0);
/// Its decode steps: tokens before them, and rounds.
const LAYER_STEPS: (usize, usize) = (128, 24);
/// Runs whose parts are timed.
const PHASES: usize = 3;

/// Runs it; true if everything is the same as on the CPU.
pub(crate) fn run(it: &Part) -> Result<bool> {
    let device = Device::open()?;
    println!("{}", device.describe());
    let place = Place {
        name: device.name.clone(),
        arch: device.arch().to_string(),
        driver: device.driver,
        processors: device.processors,
    };
    let gpu = Gpu::new(device, Some(Pack::open(&it.pack)?), None, None)?;
    if gpu.sketch_digests().is_empty() {
        return Err(Error::input(format!("the pack has no image {SKETCH}")).at(it.pack.display()));
    }
    let mut images = gpu.digests().clone();
    images.extend(gpu.sketch_digests().clone());
    let checkpoint = Arc::new(Checkpoint::open(&it.model)?);
    let weights: String = checkpoint.weights_sha256().iter().map(|b| format!("{b:02x}")).collect();
    // Beside the evidence: the disk whose speed is measured.
    let folder = it.out.with_extension("tmp");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|e| failed("no folder for traces", &e))?;
    let mut evidence = CaptureEvidence {
        format: 1,
        date: it.date.clone(),
        device: place,
        images,
        model: format!("{} {weights}", checkpoint.label()),
        tokens: TOKENS as u64,
        sketches: Vec::new(),
        rows_there: 0,
        traces: Vec::new(),
        costs: Vec::new(),
        looks: Vec::new(),
        dump: Dump::default(),
    };
    let start = Instant::now();
    let on = Some(&gpu);
    let done = |what: &str, evidence: &CaptureEvidence| {
        println!("== {what}: {:.1} s since the start", start.elapsed().as_secs_f64());
        write(&it.out, evidence)
    };
    compare(&gpu, &checkpoint, &folder, &mut evidence)?;
    done("compared", &evidence)?;
    for (tokens, rounds) in PREFILLS {
        prefill(&gpu, &checkpoint, &folder, (tokens, rounds), &mut evidence)?;
        done("prefill", &evidence)?;
    }
    let steps = decode(on, &checkpoint, &folder, (TOKENS, STEPS), &ALL)?;
    let what = format!("decode steps behind {TOKENS} tokens");
    evidence.costs.push(Cost::new(what.clone(), of(&steps, [0, 2, 3])));
    evidence.looks.push(Look::new(what, of(&steps, [0, 1, 2]), Vec::new()));
    done("decode", &evidence)?;
    if let Some(layer) = &it.layer {
        let checkpoint = Arc::new(Checkpoint::open(layer)?);
        let (same, look) = one_layer(on, &checkpoint, &folder, LAYER)?;
        evidence.sketches.extend(same);
        evidence.looks.push(look);
        done("layer", &evidence)?;
        let (tokens, rounds) = LAYER_STEPS;
        let steps = decode(on, &checkpoint, &folder, (tokens, rounds), &ALL[..3])?;
        let what = format!("layer of released shapes, decode steps behind {tokens} tokens");
        evidence.looks.push(Look::new(what, of(&steps, [0, 1, 2]), Vec::new()));
        done("layer's decode", &evidence)?;
    }
    let _ = std::fs::remove_dir_all(&folder);
    for cost in &evidence.costs {
        println!("{}: sketch {:.4}, dump {:.4} of off", cost.what, cost.sketch, cost.dump);
    }
    evidence.looks.iter().for_each(show);
    println!("{:?}", evidence.dump);
    let faults = evidence.faults()?;
    faults.iter().for_each(|fault| println!("FAULT: {fault}"));
    let (words, rows) = (evidence.words(), evidence.rows_there);
    println!("capture: {words} words of sketches compared, {rows} rows sketched there; {} faults", faults.len());
    Ok(faults.is_empty())
}

fn write(path: &Path, evidence: &CaptureEvidence) -> Result<()> {
    let text = serde_json::to_string_pretty(evidence)
        .map_err(|e| Error::input(format!("the evidence cannot be written: {e}")))?;
    std::fs::write(path, text + "\n")
        .map_err(|e| Error::input(format!("the evidence cannot be written: {e}")).at(path.display()))
}

fn failed(what: &str, error: &std::io::Error) -> Error {
    Error::input(format!("{what}: {error}"))
}

fn requests(checkpoint: &Checkpoint, n: usize) -> Requests {
    let vocab = checkpoint.config().vocab_size;
    let ids: Vec<u32> = (0..n).map(|i| ((i * 167 + i * i * 31) % vocab) as u32).collect();
    Requests { seqs: vec![Sequence::prompt("golden", ids)] }
}

fn golden(gpu: Option<&Gpu>, checkpoint: &Arc<Checkpoint>, requests: &Requests) -> Result<Golden> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let path = Golden::new(checkpoint.clone(), requests.clone(), Mode::F32, threads)?;
    Ok(path.computed_by(gpu.map(Gpu::backend)))
}

/// Embedding, layers and head.
fn pass(path: &Golden, see: &mut dyn Visitor) -> Result<()> {
    let mut x = path.embed(see).map_err(told)?;
    for l in 0..path.blocks().layers {
        let mut lanes = [Lane::new(&x, &mut *see)];
        path.layer(l).map_err(told)?.run(&mut lanes).map_err(told)?;
        let [lane] = lanes;
        x = lane.out.ok_or_else(|| Error::input(format!("layer {l} left no streams")))?.streams;
    }
    path.head(&mut [Lane::new(&x, &mut *see)]).map_err(told)?;
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum What {
    Off,
    Looked,
    Sketch,
    Dump,
}

const ALL: [What; 4] = [What::Off, What::Looked, What::Sketch, What::Dump];

/// Some columns of rounds.
fn of(rounds: &[[f64; 4]], columns: [usize; 3]) -> Vec<[f64; 3]> {
    rounds.iter().map(|it| columns.map(|i| it[i])).collect()
}

/// Its medians and phases, a line each.
fn show(it: &Look) {
    let seconds = [0, 1, 2].map(|i: usize| median(it.seconds.iter().map(|round| round[i])));
    println!(
        "{}: {} rounds, off {:.4} s, looked {:.4}, sketch {:.4} of it",
        it.what,
        it.seconds.len(),
        seconds[0],
        it.looked,
        it.sketch
    );
    for at in &it.phases {
        let ms = |seconds: f64| format!("{:.2} ms", 1e3 * seconds);
        let [there, alone, here] = [0, 1, 2].map(|i| format!("{} in {} visits", ms(at.notes[i]), at.visits[i]));
        println!("  of {}: noted {there} of what lies there too, {alone} there alone, {here} here;", ms(at.whole));
        println!("    begun or waited for {} times in {}; {} after the last op", at.times, ms(at.begun), ms(at.end));
    }
}

/// One pass; what is captured goes to a folder that must not be there yet. Seconds, with all that is written.
fn captured(path: &Golden, requests: &Requests, what: What, to: &Path) -> Result<f64> {
    let start = Instant::now();
    match what {
        What::Off => pass(path, &mut NoTaps)?,
        What::Looked => pass(path, &mut Looks)?,
        What::Sketch => {
            let mut writer = SketchWriter::create(to, requests, TapGlob::all())?;
            pass(path, &mut writer)?;
            writer.finish()?;
        }
        What::Dump => {
            let header = Header { producer: "gpu_suite".into(), model: ModelId::default(), ..Header::default() };
            let mut writer = TraceWriter::create(to, requests, header, TapGlob::all(), Order::LayerMajor)?;
            pass(path, &mut writer)?;
            writer.finish()?;
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

fn files(folder: &Path) -> Result<Vec<String>> {
    let all = std::fs::read_dir(folder).map_err(|e| failed("nothing was captured", &e))?;
    let mut names: Vec<String> =
        all.filter_map(|it| Some(it.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    Ok(names)
}

/// Words behind the header of two safetensors files, and those that differ.
fn words(a: &[u8], b: &[u8]) -> (u64, u64) {
    let body = |bytes: &[u8]| -> usize {
        let length: [u8; 8] = bytes.first_chunk::<8>().copied().unwrap_or_default();
        (8 + u64::from_le_bytes(length) as usize).min(bytes.len())
    };
    let (from, n) = (body(a), a.len().saturating_sub(body(a)) / 4);
    if a.len() != b.len() || a[..from] != b[..from] {
        return (n as u64, n.max(1) as u64);
    }
    let (a, b) = (a[from..].chunks(4), b[from..].chunks(4));
    (n as u64, a.zip(b).filter(|(a, b)| a != b).count() as u64)
}

fn compare(gpu: &Gpu, checkpoint: &Arc<Checkpoint>, folder: &Path, evidence: &mut CaptureEvidence) -> Result<()> {
    let requests = requests(checkpoint, TOKENS);
    let (here, there) = (golden(None, checkpoint, &requests)?, golden(Some(gpu), checkpoint, &requests)?);
    let read = |at: PathBuf| std::fs::read(&at).unwrap_or_default();
    for what in [What::Sketch, What::Dump] {
        let out = ["cpu", "gpu"].map(|name| folder.join(name));
        captured(&here, &requests, what, &out[0])?;
        let before = gpu.sketched_rows();
        captured(&there, &requests, what, &out[1])?;
        if what == What::Sketch {
            evidence.rows_there = gpu.sketched_rows() - before;
        }
        for file in files(&out[0])? {
            let (a, b) = (read(out[0].join(&file)), read(out[1].join(&file)));
            if what == What::Sketch {
                let (words, differing) = words(&a, &b);
                println!("sketches: {file}: {words} words, {differing} differ");
                evidence.sketches.push(SameWords { file, words, differing });
            } else {
                println!("trace: {file}: {} bytes, {}", a.len(), if a == b { "equal" } else { "DIFFERS" });
                evidence.traces.push(SameFile { file, bytes: a.len() as u64, same: a == b });
            }
        }
        for out in out {
            std::fs::remove_dir_all(out).map_err(|e| failed("a trace can't be removed", &e))?;
        }
    }
    Ok(())
}

/// A run with sketches whose parts are timed.
fn phases(
    gpu: Option<&Gpu>,
    requests: &Requests,
    to: &Path,
    run: impl Fn(&mut dyn Visitor) -> Result<()>,
) -> Result<Phases> {
    let spent = || gpu.map(Gpu::sketches_spent).unwrap_or_default();
    let (start, before) = (Instant::now(), spent());
    let mut writer = SketchWriter::create(to, requests, TapGlob::all())?;
    let mut timed = Timed::new(&mut writer);
    run(&mut timed)?;
    let (notes, visits, ended, after) = (timed.seconds, timed.visits, Instant::now(), spent());
    writer.finish()?;
    let (whole, end) = (start.elapsed().as_secs_f64(), ended.elapsed().as_secs_f64());
    let _ = std::fs::remove_dir_all(to);
    let (begun, times) = (after.seconds - before.seconds, after.times - before.times);
    Ok(Phases { whole, notes, visits, begun, times, end })
}

/// Off, looked, sketch and dump in turns, the first of them another one in each round.
fn prefill(
    gpu: &Gpu,
    checkpoint: &Arc<Checkpoint>,
    folder: &Path,
    (tokens, rounds): (usize, usize),
    evidence: &mut CaptureEvidence,
) -> Result<()> {
    let requests = requests(checkpoint, tokens);
    let path = golden(Some(gpu), checkpoint, &requests)?;
    let to = folder.join("run");
    let (mut seconds, mut writes, mut bytes) = (Vec::new(), Vec::new(), 0);
    captured(&path, &requests, What::Off, &to)?;
    for round in 0..rounds {
        let mut took = [0.0; 4];
        for i in 0..4 {
            let i = (round + i) % 4;
            took[i] = captured(&path, &requests, ALL[i], &to)?;
            if ALL[i] == What::Dump {
                bytes = files(&to)?.iter().map(|f| to.join(f).metadata().map_or(0, |m| m.len())).sum();
                writes.push(bytes as f64 / raw_write(&folder.join("raw"), bytes)?);
            }
            let _ = std::fs::remove_dir_all(&to);
        }
        println!("prefill of {tokens}: {took:.4?} s");
        seconds.push(took);
    }
    let parts = (0..PHASES).map(|_| phases(Some(gpu), &requests, &to, |see| pass(&path, see)));
    let parts = parts.collect::<Result<_>>()?;
    let times = [3, 0].map(|i: usize| median(seconds.iter().map(|it| it[i])));
    evidence.dump = Dump { bytes, seconds: times, raw_write: median(writes), raw_copy: raw_copy(gpu)? };
    let what = format!("prefill of {tokens} tokens");
    evidence.costs.push(Cost::new(what.clone(), of(&seconds, [0, 2, 3])));
    evidence.looks.push(Look::new(what, of(&seconds, [0, 1, 2]), parts));
    Ok(())
}

/// Rows through a layer.
fn through(layer: &dyn Layer, x: &Streams, see: &mut dyn Visitor) -> Result<()> {
    layer.run(&mut [Lane::new(x, see)]).map_err(told)
}

/// The first layer of a model: its sketches against the CPU's, and off, looked and sketch in turns. Its weights are at hand; routed
/// experts travel in each run, as they do in a run of many layers, and the end of a run is in it whole.
fn one_layer(
    gpu: Option<&Gpu>,
    checkpoint: &Arc<Checkpoint>,
    folder: &Path,
    (tokens, [least, most], budget): (usize, [usize; 2], f64),
) -> Result<(Vec<SameWords>, Look)> {
    let requests = requests(checkpoint, tokens);
    let out = ["there", "here", "run"].map(|name| folder.join(name));
    let run = |layer: &dyn Layer, x: &Streams, what: What, to: &Path| -> Result<f64> {
        let start = Instant::now();
        match what {
            What::Off => through(layer, x, &mut NoTaps)?,
            What::Looked => through(layer, x, &mut Looks)?,
            What::Sketch | What::Dump => {
                let mut writer = SketchWriter::create(to, &requests, TapGlob::all())?;
                through(layer, x, &mut writer)?;
                writer.finish()?;
            }
        }
        Ok(start.elapsed().as_secs_f64())
    };
    let path = golden(gpu, checkpoint, &requests)?;
    let x = path.embed(&mut NoTaps).map_err(told)?;
    {
        let here = golden(None, checkpoint, &requests)?;
        let took = run(&*here.layer(0).map_err(told)?, &x, What::Sketch, &out[1])?;
        println!("layer of released shapes, {tokens} rows on the CPU: {took:.3} s");
    }
    let start = Instant::now();
    let layer = path.layer(0).map_err(told)?;
    println!("its weights: {:.3} s", start.elapsed().as_secs_f64());
    run(&*layer, &x, What::Sketch, &out[0])?;
    let read = |of: &Path, file: &str| std::fs::read(of.join(file)).unwrap_or_default();
    let mut same = Vec::new();
    for file in files(&out[1])? {
        let (words, differing) = words(&read(&out[1], &file), &read(&out[0], &file));
        println!("sketches: {file} of released shapes: {words} words, {differing} differ");
        same.push(SameWords { file: format!("released shapes, {file}"), words, differing });
    }
    run(&*layer, &x, What::Off, &out[2])?;
    let (start, mut seconds) = (Instant::now(), Vec::new());
    for round in 0..most {
        if round >= least && start.elapsed().as_secs_f64() > budget {
            break;
        }
        let mut took = [0.0; 3];
        for i in 0..3 {
            let i = (round + i) % 3;
            took[i] = run(&*layer, &x, ALL[i], &out[2])?;
            let _ = std::fs::remove_dir_all(&out[2]);
        }
        println!("layer of released shapes: {took:.4?} s");
        seconds.push(took);
    }
    let parts = (0..PHASES).map(|_| phases(gpu, &requests, &out[2], |see| through(&*layer, &x, see)));
    let look = Look::new(format!("layer of released shapes, {tokens} rows"), seconds, parts.collect::<Result<_>>()?);
    Ok((same, look))
}

/// Seconds to write as many bytes into one file.
fn raw_write(path: &Path, bytes: u64) -> Result<f64> {
    let block = vec![0x5a; 1 << 20];
    let start = Instant::now();
    let body = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        let mut left = bytes as usize;
        while left > 0 {
            let n = left.min(block.len());
            file.write_all(&block[..n])?;
            left -= n;
        }
        Ok(())
    };
    body().map_err(|e| failed("the disk can't be measured", &e))?;
    let took = start.elapsed().as_secs_f64();
    let _ = std::fs::remove_file(path);
    Ok(took)
}

/// Bytes a second from the device into new memory, as results of golden come.
fn raw_copy(gpu: &Gpu) -> Result<f64> {
    const BYTES: usize = 64 << 20;
    let buffer = gpu.device().alloc(BYTES, 0)?;
    let mut rates = Vec::new();
    for _ in 0..9 {
        let start = Instant::now();
        std::hint::black_box(gpu.device().download::<u32>(&buffer)?);
        rates.push(BYTES as f64 / start.elapsed().as_secs_f64());
    }
    Ok(median(rates))
}

/// Seconds of steps of one session, in turns: the kinds that are asked for, from the first of all on.
fn decode(
    gpu: Option<&Gpu>,
    checkpoint: &Arc<Checkpoint>,
    folder: &Path,
    (tokens, rounds): (usize, usize),
    kinds: &[What],
) -> Result<Vec<[f64; 4]>> {
    let requests = requests(checkpoint, tokens + kinds.len() * (rounds + 1));
    let ids = &requests.seqs[0].ids;
    let path = golden(gpu, checkpoint, &requests)?;
    let mut session = Session::new(&path).map_err(told)?;
    session.extend(&ids[..tokens], &mut NoTaps).map_err(told)?;
    let mut file = File::create(folder.join("steps")).map_err(|e| failed("no file for steps", &e))?;
    let mut seconds = Vec::new();
    let mut at = tokens;
    for round in 0..=rounds {
        let mut took = [0.0; 4];
        for i in 0..kinds.len() {
            let i = (round + i) % kinds.len();
            let start = Instant::now();
            let mut see = Step::new(kinds[i]);
            let step = &ids[at..=at];
            let done = if i == 0 { session.extend(step, &mut NoTaps) } else { session.extend(step, &mut see) };
            done.map_err(told)?;
            file.write_all(&see.ended()?).map_err(|e| failed("a step can't be written", &e))?;
            took[i] = start.elapsed().as_secs_f64();
            at += 1;
        }
        // The first round decodes weights and makes memory.
        if round > 0 {
            seconds.push(took);
        }
    }
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_and_steps_are_measured_on_any_backend() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = Arc::new(Checkpoint::open(Path::new("../golden")).unwrap());
        let (same, look) = one_layer(None, &checkpoint, folder.path(), (40, [2, 2], 0.0)).unwrap();
        assert!(same.len() == 1 && same[0].differing == 0 && same[0].words > 0, "{same:?}");
        assert_eq!((look.seconds.len(), look.phases.len()), (2, PHASES));
        let at = &look.phases[0];
        assert!(at.visits[2] > 20 && at.visits[..2] == [0, 0] && at.whole > at.end + at.notes[2], "{at:?}");
        let steps = decode(None, &checkpoint, folder.path(), (9, 2), &ALL[..3]).unwrap();
        assert!(steps.len() == 2 && steps.iter().all(|it| it[..3].iter().all(|s| *s > 0.0)), "{steps:?}");
        assert!(std::fs::read_dir(folder.path()).unwrap().count() > 0);
    }
}
