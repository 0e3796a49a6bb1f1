//! `cargo xtask evidence check`: every file under `kernels/evidence/` must speak for the sources as they are now.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use karat_kernels::audits::AuditEvidence;
use karat_kernels::evidence::{Evidence, stale};
use karat_kernels::golden::{GoldenEvidence, SpreadEvidence};
use karat_kernels::list::List;

/// Options of `cargo xtask evidence`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Kind,
}

#[derive(clap::Subcommand)]
enum Kind {
    /// Fails where a source changed since it was measured, a bound is broken, or a kernel has no evidence.
    Check,
    /// Puts a run's file where it belongs, if it is whole.
    Add {
        /// evidence.json of a run.
        file: PathBuf,
    },
}

/// Runs it.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let folder = root.join("kernels/evidence");
    match &args.command {
        Kind::Check => check(&folder),
        Kind::Add { file } if std::fs::read_to_string(file)?.contains("\"all_reduce\"") => add_spread(&folder, file),
        Kind::Add { file } if std::fs::read_to_string(file)?.contains("\"compared\"") => add_golden(&folder, file),
        Kind::Add { file } if std::fs::read_to_string(file)?.contains("\"runs\"") => add_audits(&folder, file),
        Kind::Add { file } => {
            let mut evidence = Evidence::read(file)?;
            // A run may have tried images that weren't kept.
            let list = List::read()?;
            let listed = |name: &str| list.images.iter().any(|image| image.name == name);
            evidence.images.retain(|row| listed(&row.image));
            evidence.correctness.retain(|row| listed(&row.image));
            evidence.speed.retain(|row| listed(&row.image));
            complain(file, &evidence)?;
            let name = file_name(&evidence.device.name);
            std::fs::create_dir_all(&folder)?;
            let text = serde_json::to_string_pretty(&evidence)? + "\n";
            std::fs::write(folder.join(&name), text)?;
            println!("evidence: kernels/evidence/{name}");
            Ok(())
        }
    }
}

/// `NVIDIA H200` is `nvidia-h200.json`.
fn file_name(device: &str) -> String {
    device.to_lowercase().split_whitespace().collect::<Vec<_>>().join("-") + ".json"
}

/// Keeps a run of the part `golden`, unless something was found wrong.
fn add_golden(folder: &Path, file: &Path) -> Result<()> {
    let evidence = GoldenEvidence::read(file)?;
    let faults = evidence.faults()?;
    if !faults.is_empty() {
        bail!("{} is no evidence that golden has the same bits there:\n  {}", file.display(), faults.join("\n  "));
    }
    let (folder, name) = (folder.join("golden"), file_name(&evidence.device.name));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(&name), serde_json::to_string_pretty(&evidence)? + "\n")?;
    println!("evidence: kernels/evidence/golden/{name}");
    Ok(())
}

/// Keeps a run of the part `nccl`, unless something was found wrong.
fn add_spread(folder: &Path, file: &Path) -> Result<()> {
    let evidence = SpreadEvidence::read(file)?;
    let faults = evidence.faults()?;
    if !faults.is_empty() {
        bail!("{} is no evidence on sums between GPUs:\n  {}", file.display(), faults.join("\n  "));
    }
    let name = file_name(&format!("{} x{}", evidence.device.name, evidence.device.gpus));
    let folder = folder.join("nccl");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(&name), serde_json::to_string_pretty(&evidence)? + "\n")?;
    println!("evidence: kernels/evidence/nccl/{name}");
    Ok(())
}

/// Several GPUs of one host: what there is must hold; nothing is said aloud.
fn check_spread(folder: &Path) -> Result<()> {
    let files = json_files(&folder.join("nccl"))?;
    if files.is_empty() {
        println!("evidence: several GPUs: NEVER RUN on any host");
    }
    for file in files {
        let evidence = SpreadEvidence::read(&file)?;
        let faults = evidence.faults()?;
        if !faults.is_empty() {
            bail!("{}: measure again (cargo xtask gpu-suite, part nccl):\n  {}", file.display(), faults.join("\n  "));
        }
        let (host, sums) = (&evidence.device, evidence.all_reduce.iter().map(|it| it.values).sum::<u64>());
        let (n, name, date) = (host.gpus, &host.name, &evidence.date);
        println!("evidence: {n} x {name} of {date}: {sums} sums of NCCL those of an order, golden's bits equal");
    }
    Ok(())
}

/// Keeps a run of the part `audit` or `layer`, whatever it says, unless it speaks for other kernels.
fn add_audits(folder: &Path, file: &Path) -> Result<()> {
    let evidence = AuditEvidence::read(file)?;
    let stale = evidence.stale()?;
    if !stale.is_empty() {
        bail!("{} is no evidence of these kernels:\n  {}", file.display(), stale.join("\n  "));
    }
    let name = file_name(evidence.device.get("name").map_or("unknown", String::as_str));
    let folder = folder.join(&evidence.part);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(&name), serde_json::to_string_pretty(&evidence)? + "\n")?;
    println!("evidence: kernels/evidence/{}/{name}: {}", evidence.part, standing(&evidence));
    Ok(())
}

/// How many runs passed, and which did not.
fn standing(evidence: &AuditEvidence) -> String {
    let (passed, others) = evidence.passed();
    let others = if others.is_empty() { String::new() } else { format!("; not passed: {}", others.join(", ")) };
    format!("{passed} of {} runs passed{others}", evidence.runs.len())
}

/// Audits on GPUs: what there is must speak for the kernels as they are; what it says of them is said again.
fn check_audits(folder: &Path) -> Result<()> {
    for part in ["audit", "layer"] {
        let files = json_files(&folder.join(part))?;
        if files.is_empty() {
            println!("evidence: part {part} of the suite: NEVER RUN on any device");
        }
        for file in files {
            let evidence = AuditEvidence::read(&file)?;
            let stale = evidence.stale()?;
            if !stale.is_empty() {
                let at = file.display();
                bail!("{at}: measure again (cargo xtask gpu-suite, part {part}):\n  {}", stale.join("\n  "));
            }
            let device = evidence.device.get("name").map_or("unknown", String::as_str);
            println!("evidence: {part} on {device} of {}: {}", evidence.date, standing(&evidence));
        }
    }
    Ok(())
}

/// Golden on GPUs: what there is must hold; nothing is said aloud.
fn check_golden(folder: &Path) -> Result<()> {
    let files = json_files(&folder.join("golden"))?;
    if files.is_empty() {
        println!("evidence: golden on a GPU: NEVER RUN on any device");
    }
    for file in files {
        let evidence = GoldenEvidence::read(&file)?;
        let faults = evidence.faults()?;
        if !faults.is_empty() {
            bail!("{}: measure again (cargo xtask gpu-suite, part golden):\n  {}", file.display(), faults.join("\n  "));
        }
        let (device, date, n) = (&evidence.device.name, &evidence.date, evidence.values().0);
        println!("evidence: golden on {device} of {date}: {n} values, all bits equal");
    }
    Ok(())
}

fn json_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = match std::fs::read_dir(folder) {
        Ok(entries) => entries.map(|e| Ok(e?.path())).collect::<Result<_>>()?,
        Err(_) => Vec::new(),
    };
    files.retain(|f| f.extension().is_some_and(|e| e == "json"));
    files.sort();
    Ok(files)
}

fn check(folder: &Path) -> Result<()> {
    let files = json_files(folder)?;
    if files.is_empty() {
        bail!("no evidence under {}", folder.display());
    }
    for file in &files {
        let evidence = Evidence::read(file)?;
        complain(file, &evidence)?;
        println!(
            "evidence: {} of {}: {} images, {} rows of correctness, {} of speed",
            evidence.device.name,
            evidence.date,
            evidence.images.len(),
            evidence.correctness.len(),
            evidence.speed.len()
        );
    }
    check_golden(folder)?;
    check_spread(folder)?;
    check_audits(folder)
}

fn complain(file: &Path, evidence: &Evidence) -> Result<()> {
    let found = stale(&List::read()?, evidence)?;
    if !found.is_empty() {
        bail!(
            "{} is no evidence for these sources; measure again (cargo xtask gpu-suite):\n  {}",
            file.display(),
            found.join("\n  ")
        );
    }
    Ok(())
}
