//! The part `capture`: sketches and whole dumps of golden on the GPU against the CPU's, and what they cost.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use karat_kernels::cuda::Device;
use karat_kernels::evidence::Place;
use karat_kernels::golden::{CaptureEvidence, Cost, Dump, Gpu, SameFile, SameWords, median};
use karat_kernels::list::SKETCH;
use karat_kernels::pack::Pack;
use karat_model::{Checkpoint, Error, Result};
use karat_reference::{Golden, Mode, Session};
use karat_seam::{
    DataMut, Lane, Later, NoTaps, Path as _, Requests, RowId, Sequence, Site, TensorMut, There, Visitor, Want,
};
use karat_trace::{Header, ModelId, Order, RowSketch, SketchWriter, TapGlob, TraceWriter, told};

/// What the part is given.
pub(crate) struct Part {
    pub(crate) pack: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) date: String,
    /// Folder of the model.
    pub(crate) model: PathBuf,
}

/// Tokens of the compared runs.
const TOKENS: usize = 512;
/// Rounds of each prefill: tokens, how many at most, seconds after which nine are enough.
const PREFILLS: [(usize, usize, f64); 2] = [(512, 15, 15.0), (2048, 11, 30.0)];
const LEAST_ROUNDS: usize = 9;
/// Rounds of three decode steps.
const STEPS: usize = 40;

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
        dump: Dump::default(),
    };
    compare(&gpu, &checkpoint, &folder, &mut evidence)?;
    write(&it.out, &evidence)?;
    for (tokens, most, budget) in PREFILLS {
        prefill(&gpu, &checkpoint, &folder, (tokens, most, budget), &mut evidence)?;
        write(&it.out, &evidence)?;
    }
    decode(&gpu, &checkpoint, &folder, &mut evidence)?;
    write(&it.out, &evidence)?;
    let _ = std::fs::remove_dir_all(&folder);
    for cost in &evidence.costs {
        println!("{}: sketch {:.4}, dump {:.4} of off", cost.what, cost.sketch, cost.dump);
    }
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
enum What {
    Off,
    Sketch,
    Dump,
}

/// One pass; what is captured goes to a folder that must not be there yet. Seconds, with all that is written.
fn captured(path: &Golden, requests: &Requests, what: What, to: &Path) -> Result<f64> {
    let start = Instant::now();
    match what {
        What::Off => pass(path, &mut NoTaps)?,
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

/// Off, sketch and dump in turns, the first of them another one in each round.
fn prefill(
    gpu: &Gpu,
    checkpoint: &Arc<Checkpoint>,
    folder: &Path,
    (tokens, most, budget): (usize, usize, f64),
    evidence: &mut CaptureEvidence,
) -> Result<()> {
    let requests = requests(checkpoint, tokens);
    let path = golden(Some(gpu), checkpoint, &requests)?;
    let to = folder.join("run");
    let start = Instant::now();
    let (mut seconds, mut writes, mut bytes) = (Vec::new(), Vec::new(), 0);
    captured(&path, &requests, What::Off, &to)?;
    for round in 0..most {
        if round >= LEAST_ROUNDS && start.elapsed().as_secs_f64() > budget {
            break;
        }
        let mut took = [0.0; 3];
        for i in 0..3 {
            let i = (round + i) % 3;
            took[i] = captured(&path, &requests, [What::Off, What::Sketch, What::Dump][i], &to)?;
            if i == 2 {
                bytes = files(&to)?.iter().map(|f| to.join(f).metadata().map_or(0, |m| m.len())).sum();
                writes.push(bytes as f64 / raw_write(&folder.join("raw"), bytes)?);
            }
            let _ = std::fs::remove_dir_all(&to);
        }
        println!("prefill of {tokens}: {took:.4?} s");
        seconds.push(took);
    }
    let times = [2, 0].map(|i: usize| median(seconds.iter().map(|it| it[i])));
    evidence.dump = Dump { bytes, seconds: times, raw_write: median(writes), raw_copy: raw_copy(gpu)? };
    evidence.costs.push(Cost::new(format!("prefill of {tokens} tokens"), seconds));
    Ok(())
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

/// Captures the taps of a decode step.
#[derive(Default)]
struct Step {
    dump: Option<Vec<u8>>,
    begun: Vec<Box<dyn Later>>,
    kept: usize,
}

impl Visitor for Step {
    fn want(&self, _: Site) -> Want {
        Want::Read
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> karat_seam::Result<()> {
        match (&mut self.dump, &tensor.data) {
            (Some(to), DataMut::F32(values)) => to.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            (Some(to), DataMut::F64(values)) => to.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            (Some(to), DataMut::I64(values)) => to.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            (Some(to), DataMut::U8(values)) => to.extend_from_slice(values),
            (None, DataMut::F32(values)) if !at.tap.is_state() => {
                let width = values.len() / rows.len().max(1);
                for row in values.chunks_exact(width.max(1)) {
                    std::hint::black_box(RowSketch::of(row));
                    self.kept += 1;
                }
            }
            // Decisions are bits as they are.
            (None, data) => self.kept += data.len().min(1),
        }
        Ok(())
    }

    fn visit_there(
        &mut self,
        at: Site,
        rows: &[RowId],
        tensor: TensorMut<'_>,
        there: &dyn There,
    ) -> karat_seam::Result<()> {
        let short = !at.tap.is_ragged() && tensor.data.len() <= 22 * rows.len();
        let counts = self.dump.is_none() && !short && !rows.is_empty() && !tensor.data.is_empty();
        let begun = if counts { there.sketch(rows.len(), at.tap.is_ragged())? } else { None };
        match begun {
            Some(later) => self.begun.push(later),
            None => self.visit(at, rows, tensor)?,
        }
        Ok(())
    }
}

/// Steps of one session: off, sketch and dump in turns.
fn decode(gpu: &Gpu, checkpoint: &Arc<Checkpoint>, folder: &Path, evidence: &mut CaptureEvidence) -> Result<()> {
    let requests = requests(checkpoint, TOKENS + 3 * STEPS + 3);
    let ids = &requests.seqs[0].ids;
    let path = golden(Some(gpu), checkpoint, &requests)?;
    let mut session = Session::new(&path).map_err(told)?;
    session.extend(&ids[..TOKENS], &mut NoTaps).map_err(told)?;
    let mut file = File::create(folder.join("steps")).map_err(|e| failed("no file for steps", &e))?;
    let mut seconds = Vec::new();
    let mut at = TOKENS;
    for round in 0..=STEPS {
        let mut took = [0.0; 3];
        for i in 0..3 {
            let i = (round + i) % 3;
            let start = Instant::now();
            let mut see = Step { dump: (i == 2).then(Vec::new), ..Step::default() };
            let step = &ids[at..=at];
            let done = if i == 0 { session.extend(step, &mut NoTaps) } else { session.extend(step, &mut see) };
            done.map_err(told)?;
            for later in see.begun {
                see.kept += later.lines().map_err(told)?.len();
            }
            if let Some(bytes) = see.dump {
                file.write_all(&bytes).map_err(|e| failed("a step can't be written", &e))?;
            }
            took[i] = start.elapsed().as_secs_f64();
            at += 1;
        }
        // The first round decodes weights and makes memory.
        if round > 0 {
            seconds.push(took);
        }
    }
    evidence.costs.push(Cost::new(format!("decode steps behind {TOKENS} tokens"), seconds));
    Ok(())
}
