//! `cargo xtask evidence check`: every file under `kernels/evidence/` must speak for the sources as they are now.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use karat_kernels::audits::{AuditEvidence, PARTS};
use karat_kernels::compare_evidence::{self, CompareEvidence};
use karat_kernels::evidence::{Evidence, stale};
use karat_kernels::golden::{CaptureEvidence, GoldenEvidence, SplitEvidence, SpreadEvidence};
use karat_kernels::list::List;
use karat_kernels::mma::{FormEvidence, MmaEvidence};

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
        Kind::Add { file } if std::fs::read_to_string(file)?.contains("\"read_tb_s\"") => {
            add_part::<CompareEvidence>(&folder, file)
        }
        Kind::Add { file } if std::fs::read_to_string(file)?.contains("\"all_reduce\"") => {
            add_part::<SpreadEvidence>(&folder, file)
        }
        Kind::Add { file } if std::fs::read_to_string(file)?.contains("\"taken\"") => {
            add_part::<SplitEvidence>(&folder, file)
        }
        Kind::Add { file } if std::fs::read_to_string(file)?.contains("\"sketches\"") => {
            add_part::<CaptureEvidence>(&folder, file)
        }
        Kind::Add { file } if std::fs::read_to_string(file)?.contains("\"accumulation\"") => {
            add_part::<MmaEvidence>(&folder, file)
        }
        Kind::Add { file } if std::fs::read_to_string(file)?.contains("\"compared\"") => {
            add_part::<GoldenEvidence>(&folder, file)
        }
        Kind::Add { file } if std::fs::read_to_string(file)?.contains("\"runs\"") => {
            add_part::<AuditEvidence>(&folder, file)
        }
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
            evidence.write(&folder.join(&name))?;
            println!("evidence: kernels/evidence/{name}");
            Ok(())
        }
    }
}

/// `NVIDIA H200` is `nvidia-h200.json`.
fn file_name(device: &str) -> String {
    device.to_lowercase().split_whitespace().collect::<Vec<_>>().join("-") + ".json"
}

/// What a part of the suite brings back.
trait PartEvidence: serde::Serialize + Sized {
    /// What it is evidence of, in words.
    const OF: &'static str;

    fn read(file: &Path) -> Result<Self>;

    /// Reasons why it doesn't hold for the sources as they are now.
    fn against(&self) -> Result<Vec<String>>;

    /// The part of the suite, which is its folder's name too.
    fn part(&self) -> String;

    /// The device or host, as a file's name has it.
    fn host(&self) -> String;

    /// One line on what it shows.
    fn said(&self) -> String;
}

impl PartEvidence for GoldenEvidence {
    const OF: &'static str = "golden's bits on a GPU";

    fn read(file: &Path) -> Result<Self> {
        Ok(Self::read(file)?)
    }

    fn against(&self) -> Result<Vec<String>> {
        Ok(self.faults()?)
    }

    fn part(&self) -> String {
        "golden".to_string()
    }

    fn host(&self) -> String {
        self.device.name.clone()
    }

    fn said(&self) -> String {
        format!("golden on {} of {}: {} values, all bits equal", self.device.name, self.date, self.values().0)
    }
}

impl PartEvidence for CaptureEvidence {
    const OF: &'static str = "capturing on a GPU";

    fn read(file: &Path) -> Result<Self> {
        Ok(Self::read(file)?)
    }

    fn against(&self) -> Result<Vec<String>> {
        Ok(self.faults()?)
    }

    fn part(&self) -> String {
        "capture".to_string()
    }

    fn host(&self) -> String {
        self.device.name.clone()
    }

    fn said(&self) -> String {
        let costs = self.costs.iter().map(|it| format!("; {}: sketch {:.3}, dump {:.3}", it.what, it.sketch, it.dump));
        let (name, date, words) = (&self.device.name, &self.date, self.words());
        let costs = costs.collect::<String>();
        format!("capture on {name} of {date}: {words} words of sketches and all dumps equal{costs}")
    }
}

impl PartEvidence for CompareEvidence {
    const OF: &'static str = "comparing on a GPU";

    fn read(file: &Path) -> Result<Self> {
        Ok(Self::read(file)?)
    }

    fn against(&self) -> Result<Vec<String>> {
        Ok(self.faults()?)
    }

    fn part(&self) -> String {
        compare_evidence::PART.to_string()
    }

    fn host(&self) -> String {
        self.device.name.clone()
    }

    fn said(&self) -> String {
        self.said()
    }
}

impl PartEvidence for SplitEvidence {
    const OF: &'static str = "golden's exact-split tier";

    fn read(file: &Path) -> Result<Self> {
        Ok(Self::read(file)?)
    }

    fn against(&self) -> Result<Vec<String>> {
        Ok(self.faults()?)
    }

    fn part(&self) -> String {
        "split".to_string()
    }

    fn host(&self) -> String {
        self.device.name.clone()
    }

    fn said(&self) -> String {
        let ([worst, rel_l2, bits], name, date) = (self.worst(), &self.device.name, &self.date);
        let n: u64 = self.products.iter().map(|it| it.values).sum();
        format!(
            "exact-split tier on {name} of {date}: {n} outputs within {worst:.2} of their bound, rel-L2 {rel_l2:.1e} at most (tier of bits {bits:.1e})"
        )
    }
}

impl PartEvidence for MmaEvidence {
    const OF: &'static str = "how mma.sync accumulates";

    fn read(file: &Path) -> Result<Self> {
        Ok(Self::read(file)?)
    }

    fn against(&self) -> Result<Vec<String>> {
        Ok(self.faults()?)
    }

    fn part(&self) -> String {
        "mma".to_string()
    }

    fn host(&self) -> String {
        self.device.name.clone()
    }

    fn said(&self) -> String {
        let n: u64 = self.accumulation.iter().map(|it| FormEvidence::outputs(it).0).sum();
        let (name, date, forms) = (&self.device.name, &self.date, self.accumulation.len());
        format!(
            "mma.sync on {name} of {date}: {forms} forms as mma.toml declares, all {n} outputs what their models make"
        )
    }
}

impl PartEvidence for SpreadEvidence {
    const OF: &'static str = "sums between GPUs";

    fn read(file: &Path) -> Result<Self> {
        Ok(Self::read(file)?)
    }

    fn against(&self) -> Result<Vec<String>> {
        Ok(self.faults()?)
    }

    fn part(&self) -> String {
        "nccl".to_string()
    }

    fn host(&self) -> String {
        format!("{} x{}", self.device.name, self.device.gpus)
    }

    fn said(&self) -> String {
        let (host, sums) = (&self.device, self.all_reduce.iter().map(|it| it.values).sum::<u64>());
        let (n, name, date) = (host.gpus, &host.name, &self.date);
        format!("{n} x {name} of {date}: {sums} sums of NCCL those of an order, golden's bits equal")
    }
}

/// Kept whatever the runs say, unless they speak for other kernels.
impl PartEvidence for AuditEvidence {
    const OF: &'static str = "audits with these kernels";

    fn read(file: &Path) -> Result<Self> {
        Ok(Self::read(file)?)
    }

    fn against(&self) -> Result<Vec<String>> {
        Ok(self.stale()?)
    }

    fn part(&self) -> String {
        self.part.clone()
    }

    fn host(&self) -> String {
        self.device.get("name").cloned().unwrap_or_else(|| "unknown".to_string())
    }

    fn said(&self) -> String {
        let (passed, others) = self.passed();
        let others = if others.is_empty() { String::new() } else { format!("; not passed: {}", others.join(", ")) };
        let (part, host, date) = (&self.part, self.host(), &self.date);
        format!("{part} on {host} of {date}: {passed} of {} runs passed{others}", self.runs.len())
    }
}

/// Keeps what a part brought back, unless something speaks against it.
fn add_part<T: PartEvidence>(folder: &Path, file: &Path) -> Result<()> {
    let evidence = T::read(file)?;
    let against = evidence.against()?;
    if !against.is_empty() {
        bail!("{} is no evidence of {}:\n  {}", file.display(), T::OF, against.join("\n  "));
    }
    let (part, name) = (evidence.part(), file_name(&evidence.host()));
    std::fs::create_dir_all(folder.join(&part))?;
    std::fs::write(folder.join(&part).join(&name), serde_json::to_string_pretty(&evidence)? + "\n")?;
    println!("evidence: kernels/evidence/{part}/{name}: {}", evidence.said());
    Ok(())
}

/// What there is of a part must hold; what there is not is said aloud.
fn check_part<T: PartEvidence>(folder: &Path, part: &str) -> Result<()> {
    let files = json_files(&folder.join(part))?;
    // The one part that is called otherwise than its folder.
    let part = if part == "mma" { "probe" } else { part };
    if files.is_empty() {
        println!("evidence: {} (part {part} of the suite): NEVER RUN on any device", T::OF);
    }
    for file in files {
        let evidence = T::read(&file)?;
        let against = evidence.against()?;
        if !against.is_empty() {
            let at = file.display();
            bail!("{at}: measure again (cargo xtask gpu-suite, part {part}):\n  {}", against.join("\n  "));
        }
        println!("evidence: {}", evidence.said());
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
            "evidence: {} of {}: {} images, {} rows of correctness, {} of speed, {} of these beside the naive counterpart",
            evidence.device.name,
            evidence.date,
            evidence.images.len(),
            evidence.correctness.len(),
            evidence.speed.len(),
            evidence.speed.iter().filter(|row| row.naive.as_ref().is_some_and(|naive| naive.us.is_some())).count()
        );
    }
    check_part::<GoldenEvidence>(folder, "golden")?;
    check_part::<CaptureEvidence>(folder, "capture")?;
    check_part::<CompareEvidence>(folder, compare_evidence::PART)?;
    check_part::<SplitEvidence>(folder, "split")?;
    check_part::<SpreadEvidence>(folder, "nccl")?;
    check_part::<MmaEvidence>(folder, "mma")?;
    PARTS.into_iter().try_for_each(|part| check_part::<AuditEvidence>(folder, part))
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
