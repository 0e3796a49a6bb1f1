//! The part `golden`: golden on the GPU against golden on this processor, on the given model, on small ones with experts of either
//! format, and every code of every form of stored weights; then the default audit with golden on either, then what
//! must be refused.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use karat_kernels::cuda::Device;
use karat_kernels::evidence::Place;
use karat_kernels::golden::{GoldenEvidence, Gpu, OpBits, Refusal, SameFile, compare};
use karat_kernels::pack::Pack;
use karat_model::new::{Experts, Geometry, new_model_with};
use karat_model::{Checkpoint, Error, Result};

/// What the part is given.
pub(crate) struct Golden {
    pub(crate) pack: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) date: String,
    /// Folder of the model.
    pub(crate) model: PathBuf,
    /// The program `karat`, built with CUDA; none: no audit is run.
    pub(crate) karat: Option<PathBuf>,
}

/// Tokens of the comparison, and how many of them the session takes in one piece: longer than a window and two HCA entries.
const TOKENS: usize = 400;
const PREFILL: usize = 320;

/// Runs it; true if no bit differs and everything ended as it must.
pub(crate) fn run(it: &Golden) -> Result<bool> {
    let device = Device::open()?;
    println!("{}", device.describe());
    let place = Place {
        name: device.name.clone(),
        arch: device.arch().to_string(),
        driver: device.driver,
        processors: device.processors,
    };
    let gpu = Gpu::new(device, Some(Pack::open(&it.pack)?), None, None)?;
    let checkpoint = Arc::new(Checkpoint::open(&it.model)?);
    let vocab = checkpoint.config().vocab_size;
    let ids: Vec<u32> = (0..TOKENS).map(|i| ((i * 167 + i * i * 31) % vocab) as u32).collect();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut compared = compare(&checkpoint, &ids, PREFILL, &gpu.backend(), threads)?;
    gpu.compare_decoding(&mut compared)?;
    for (form, name) in [(Experts::Mxfp4, "mini, mxfp4"), (Experts::Nvfp4, "mini, nvfp4")] {
        let files = new_model_with(Geometry::Mini, 3, form);
        let made = Arc::new(Checkpoint::from_memory(name, files)?);
        let vocab = made.config().vocab_size;
        let ids: Vec<u32> = (0..70).map(|i| ((i * 167 + i * i * 31) % vocab) as u32).collect();
        let of_made = compare(&made, &ids, 24, &gpu.backend(), threads)?;
        let named = |row: OpBits| OpBits { what: format!("{}, {name}", row.what), ..row };
        compared.rows.extend(of_made.rows.into_iter().map(named));
        compared.seconds.extend(of_made.seconds.into_iter().map(|(what, s)| (format!("{what}, {name}"), s)));
    }
    for row in &compared.rows {
        let word = if row.differing == 0 { "equal" } else { "DIFFERS" };
        println!(
            "{:<20} {:<28} {:>10} values, {:>8} differ, {:>6} steps: {word}",
            row.what, row.name, row.values, row.differing, row.worst_ulp
        );
    }
    println!("seconds: {:?}", compared.seconds);
    let weights: String = checkpoint.weights_sha256().iter().map(|b| format!("{b:02x}")).collect();
    let mut evidence = GoldenEvidence {
        format: 1,
        date: it.date.clone(),
        device: place,
        images: gpu.digests().clone(),
        model: format!("{} {weights}", checkpoint.label()),
        tokens: [TOKENS as u64, PREFILL as u64],
        compared,
        audit: Vec::new(),
        audit_seconds: [0.0; 2],
        refusals: vec![full(&gpu)],
    };
    // Written before the audits: whatever becomes of them, this is known.
    write(&it.out, &evidence)?;
    drop(gpu);
    if let Some(karat) = &it.karat {
        audits(it, karat, &mut evidence)?;
        refusals(it, karat, &mut evidence)?;
        write(&it.out, &evidence)?;
    }
    let faults = evidence.faults()?;
    for fault in &faults {
        println!("FAULT: {fault}");
    }
    let (values, differing) = evidence.values();
    println!("golden: {values} values compared, {differing} differ; {} faults", faults.len());
    Ok(faults.is_empty())
}

fn write(path: &Path, evidence: &GoldenEvidence) -> Result<()> {
    let text = serde_json::to_string_pretty(evidence)
        .map_err(|e| Error::input(format!("the evidence cannot be written: {e}")))?;
    std::fs::write(path, text + "\n")
        .map_err(|e| Error::input(format!("the evidence cannot be written: {e}")).at(path.display()))
}

/// More memory than any device has.
fn full(gpu: &Gpu) -> Refusal {
    let message = match gpu.device().alloc(1 << 45, 0) {
        Ok(_) => "32 TiB were given".to_string(),
        Err(error) => error.to_string(),
    };
    // No process ends here: the code is that of the program where `was_full` says so.
    let found = if gpu.device().was_full() { 75 } else { 3 };
    println!("out of memory: {message}");
    Refusal { what: "memory full".to_string(), expected: 75, found, message }
}

pub(crate) fn run_karat(karat: &Path, args: &[&str], env: Option<(&str, &str)>) -> Result<(i32, String, f64)> {
    let start = Instant::now();
    let mut command = Command::new(karat);
    command.args(args).envs(env);
    let out = command.output().map_err(|e| Error::input(format!("cannot be run: {e}")).at(karat.display()))?;
    let said = String::from_utf8_lossy(&out.stderr).trim().to_string();
    Ok((out.status.code().unwrap_or(-1), said, start.elapsed().as_secs_f64()))
}

/// The default audit with golden on this processor, and on the GPU; every table of the bundle.
fn audits(it: &Golden, karat: &Path, evidence: &mut GoldenEvidence) -> Result<()> {
    let pack = it.pack.display().to_string();
    let (codes, seconds, files, said) = audit_twice(karat, &[], &["--backend", "cuda", "--pack", &pack])?;
    println!("audit: cpu exit {} {:.1} s, cuda exit {} {:.1} s {said}", codes[0], seconds[0], codes[1], seconds[1]);
    evidence.audit_seconds = seconds;
    let (expected, found) = (codes[0], codes[1]);
    evidence.refusals.push(Refusal { what: "audit".to_string(), expected, found, message: said });
    for it in &files {
        println!("audit: {}: {} bytes, {}", it.file, it.bytes, if it.same { "equal" } else { "DIFFERS" });
    }
    evidence.audit = files;
    Ok(())
}

/// Two audits.
type Twice = ([i32; 2], [f64; 2], Vec<SameFile>, String);

/// An audit with the options `both`, and once more with those of `there` besides: exit codes, seconds, every table of the bundles
/// (`run.json` says where it ran), and what the second one said.
pub(crate) fn audit_twice(karat: &Path, both: &[&str], there: &[&str]) -> Result<Twice> {
    let folder = std::env::temp_dir().join(format!("karat-golden-{}", std::process::id()));
    let out = ["cpu", "cuda"].map(|name| folder.join(name));
    let text = out.each_ref().map(|path| path.display().to_string());
    let common = [&["audit", "--no-cache", "--quiet"], both].concat();
    let cpu = run_karat(karat, &[&common[..], &["--out", &text[0]]].concat(), None)?;
    let cuda = run_karat(karat, &[&common[..], there, &["--out", &text[1]]].concat(), None)?;
    let files = std::fs::read_dir(&out[0]).map_err(|e| Error::input(format!("no bundle: {e}")).at(out[0].display()))?;
    let mut names: Vec<_> = files.filter_map(|f| Some(f.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    let one = |file: String| {
        let (a, b) = (std::fs::read(out[0].join(&file)), std::fs::read(out[1].join(&file)));
        let bytes = a.as_ref().map_or(0, |a| a.len() as u64);
        SameFile { file, bytes, same: matches!((&a, &b), (Ok(a), Ok(b)) if a == b) }
    };
    let tables = names.into_iter().filter(|name| Path::new(name).extension().is_some_and(|e| e == "csv")).map(one);
    let tables = tables.collect();
    // Two small folders of the system's temporary ones.
    let _ = std::fs::remove_dir_all(&folder);
    Ok(([cpu.0, cuda.0], [cpu.2, cuda.2], tables, cuda.1))
}

/// Each must end with one message and its code, and never with a panic (70).
fn refusals(it: &Golden, karat: &Path, evidence: &mut GoldenEvidence) -> Result<()> {
    let pack = it.pack.display().to_string();
    let cuda = ["audit", "--no-cache", "--quiet", "--backend", "cuda", "--pack"];
    let cases: [(&str, &str, Option<(&str, &str)>, i32); 2] =
        [("no GPU visible", &pack, Some(("CUDA_VISIBLE_DEVICES", "-1")), 2), ("no pack", "no-such-pack", None, 3)];
    for (what, pack, env, expected) in cases {
        let (found, message, _) = run_karat(karat, &[&cuda[..], &[pack]].concat(), env)?;
        println!("{what}: exit {found}, expected {expected}: {message}");
        evidence.refusals.push(Refusal { what: what.to_string(), expected, found, message });
    }
    Ok(())
}
