//! `cargo xtask counts`: how many instructions each hot loop of golden takes, against a table. A count doesn't
//! depend on how busy the machine is, so a loop that no longer becomes a vector loop shows at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Options of `cargo xtask counts`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the counts of this machine into the table.
    #[arg(long)]
    update: bool,
}

/// The table: instructions by loop, on AVX2.
const TABLE: &str = "reference/counts.toml";
/// Relative difference that is no change: the C library picks its copy routines by processor.
const TOLERANCE: f64 = 0.04;
/// The frame in which instructions count.
const FRAME: &str = "*workloads::counted*";

/// Counts and compares. Without valgrind, or where the loops wouldn't run on AVX2, it says so and passes.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("counts: skipped, valgrind is not installed");
        return Ok(());
    }
    let build = ["build", "--release", "--locked", "--quiet", "-p", "karat-reference", "--bin", "counts"];
    let built = Command::new("cargo").args(build).current_dir(root).status().context("failed to run cargo")?;
    if !built.success() {
        bail!("the loops don't build");
    }
    let program = root.join("target/release/counts");
    let list = valgrind(&program, None)?.0;
    let mut lines = list.lines();
    if lines.next() != Some("isa Avx2") {
        println!("counts: skipped, this machine has no AVX2 under valgrind; the table is for AVX2");
        return Ok(());
    }
    let text = std::fs::read_to_string(root.join(TABLE)).unwrap_or_default();
    let table: BTreeMap<String, u64> = toml::from_str(&text).with_context(|| format!("failed to read {TABLE}"))?;
    let mut counts = BTreeMap::new();
    let mut changed = Vec::new();
    println!("{:<28} {:>12} {:>12} {:>8}", "loop", "table", "now", "change");
    for name in lines {
        let count = valgrind(&program, Some(name))?.1.with_context(|| format!("callgrind gave no count for {name}"))?;
        let before = table.get(name).copied();
        let change = before.map(|before| count as f64 / before as f64 - 1.0);
        let shown = change.map_or("new".into(), |change| format!("{:+.1} %", change * 100.0));
        println!("{name:<28} {:>12} {count:>12} {shown:>8}", before.map_or("-".into(), |v| v.to_string()));
        if change.is_none_or(|change| change.abs() > TOLERANCE) {
            changed.push(name);
        }
        counts.insert(name.to_string(), count);
    }
    let gone: Vec<&String> = table.keys().filter(|name| !counts.contains_key(*name)).collect();
    if args.update {
        let head =
            "# Instructions of one run of each hot loop on AVX2. `cargo xtask counts --update` writes this file.\n";
        let body = toml::to_string(&counts).context("failed to write the table")?;
        std::fs::write(root.join(TABLE), format!("{head}{body}"))
            .with_context(|| format!("failed to write {TABLE}"))?;
        println!("counts: {TABLE} written");
    } else if table.is_empty() {
        println!("counts: nothing to compare with, {TABLE} is missing; `cargo xtask counts --update` writes it");
    } else if !changed.is_empty() || !gone.is_empty() {
        bail!(
            "{} of {} loops changed by more than {} %{}: {}. If that is meant, `cargo xtask counts --update`",
            changed.len(),
            counts.len(),
            TOLERANCE * 100.0,
            if gone.is_empty() { String::new() } else { format!(", {} are gone", gone.len()) },
            changed.join(", ")
        );
    }
    Ok(())
}

/// What the program prints, and the instructions in its counted frame.
fn valgrind(program: &Path, name: Option<&str>) -> Result<(String, Option<u64>)> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", &format!("--toggle-collect={FRAME}")]);
    let output = command.arg(program).args(name).stdin(Stdio::null()).output().context("failed to run valgrind")?;
    let messages = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{} {} fails under valgrind:\n{messages}", program.display(), name.unwrap_or_default());
    }
    let count = messages.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse().ok());
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), count))
}
