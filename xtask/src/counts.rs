//! `cargo xtask counts`: how many instructions each hot loop of golden, of the diff engine and of capturing takes, against tables. A
//! count doesn't depend on how busy the machine is, so a loop that no longer becomes a vector loop shows at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Options of `cargo xtask counts`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the counts of this machine into the table.
    #[arg(long)]
    update: bool,
}

/// A program that lists its loops and runs one, and its table: instructions by loop, on AVX2.
struct Loops {
    package: &'static str,
    program: &'static str,
    table: &'static str,
}

/// What builds them. With the CLI in the same command they link the very libraries of the release program that README builds,
/// and there is nothing to compile again behind it.
const BUILD: &str = "build --release --locked --quiet -p karat-cli -p karat-reference -p karat-diff -p karat-trace --bin counts --bin diff_counts --bin trace_counts";

const ALL: [Loops; 3] = [
    Loops { package: "karat-reference", program: "counts", table: "reference/counts.toml" },
    Loops { package: "karat-diff", program: "diff_counts", table: "diff/counts.toml" },
    Loops { package: "karat-trace", program: "trace_counts", table: "trace/counts.toml" },
];
/// Relative difference that is no change: the C library picks its copy routines by processor, and what is inlined where
/// shifts a little with every crate that is linked in and with the checkout's path (11 % was seen). A vector loop that became a scalar one
/// takes twice as many or more.
const TOLERANCE: f64 = 0.30;
/// The frame in which instructions count.
const FRAME: &str = "*::counted*";

/// Counts and compares. Without valgrind, or where the loops wouldn't run on AVX2, it says so and passes.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    if !has_valgrind() {
        println!("counts: SKIPPED, nothing was counted: valgrind is not installed");
        return Ok(());
    }
    // An incremental build cuts crates into other units, and so inlines otherwise: its counts are not the table's.
    let mut build = Command::new("cargo");
    build.args(BUILD.split(' ')).env("CARGO_INCREMENTAL", "0").current_dir(root);
    let built = build.status().context("failed to run cargo")?;
    if !built.success() {
        bail!("the loops don't build");
    }
    let mut broken = Vec::new();
    for loops in &ALL {
        broken.extend(measure(root, loops, args.update)?);
    }
    if !broken.is_empty() {
        bail!("{}. If that is meant, `cargo xtask counts --update`", broken.join("; "));
    }
    Ok(())
}

/// True where the counter can be run.
pub(crate) fn has_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// What differs from the table.
fn measure(root: &Path, loops: &Loops, update: bool) -> Result<Option<String>> {
    let Loops { package, program, table: path } = *loops;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let program = target.join("release").join(program);
    let list = valgrind(&program, None)?.0;
    let mut lines = list.lines();
    if lines.next() != Some("isa Avx2") {
        println!("counts: SKIPPED, {package} was not counted: no AVX2 under valgrind, which the table is for");
        return Ok(None);
    }
    let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let table: BTreeMap<String, u64> = toml::from_str(&text).with_context(|| format!("failed to read {path}"))?;
    let mut counts = BTreeMap::new();
    println!("{package:<28} {:>12} {:>12} {:>8}", "table", "now", "change");
    for name in lines {
        let count = valgrind(&program, Some(name))?.1.with_context(|| format!("callgrind gave no count for {name}"))?;
        let before = table.get(name).copied();
        let shown = before.map_or("new".into(), |before| format!("{:+.1} %", change(before, count) * 100.0));
        println!("{name:<28} {:>12} {count:>12} {shown:>8}", before.map_or("-".into(), |v| v.to_string()));
        counts.insert(name.to_string(), count);
    }
    if update {
        let head =
            "# Instructions of one run of each hot loop on AVX2. `cargo xtask counts --update` writes this file.\n";
        let body = toml::to_string(&counts).context("failed to write the table")?;
        std::fs::write(root.join(path), format!("{head}{body}")).with_context(|| format!("failed to write {path}"))?;
        println!("counts: {path} written");
        return Ok(None);
    }
    Ok(differs(&table, &counts).map(|what| format!("{path}: {what}")))
}

fn change(before: u64, now: u64) -> f64 {
    if before == 0 { f64::INFINITY } else { now as f64 / before as f64 - 1.0 }
}

/// Loops whose count changed by more than the tolerance, that are new, or that are gone.
fn differs(table: &BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) -> Option<String> {
    let mut out = Vec::new();
    for (name, &count) in counts {
        match table.get(name) {
            None => out.push(format!("{name} is not in it")),
            Some(&before) if count == 0 || change(before, count).abs() > TOLERANCE => {
                out.push(format!("{name} changed by more than {} %", TOLERANCE * 100.0));
            }
            Some(_) => {}
        }
    }
    out.extend(table.keys().filter(|name| !counts.contains_key(*name)).map(|name| format!("{name} is gone")));
    (!out.is_empty()).then(|| out.join(", "))
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

#[cfg(test)]
mod tests;
