//! `cargo xtask ci`: every check, one after the other, each timed and bounded.

mod readme;
mod step;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use step::{Outcome, Step};

/// Options of `cargo xtask ci`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The test suite has just run: leave that step out.
    #[arg(long)]
    tests_done: bool,
    /// Run only the steps whose name starts with this.
    #[arg(long, value_name = "STEP")]
    only: Option<String>,
    /// Print the steps and their budgets, and run none.
    #[arg(long)]
    list: bool,
}

/// Runs the steps at `root`. All of them run, whatever fails, so that one run tells everything.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let readme = std::fs::read_to_string(root.join("README.md")).context("failed to read README.md")?;
    let in_ci = std::env::var_os("CI").is_some_and(|v| v == "true");
    let xtask = std::env::current_exe().context("failed to find this program's own file")?;
    let found = Found { in_ci, nextest: nextest(), valgrind: crate::counts::has_valgrind() };
    let mut steps = steps(&readme, &xtask, found);
    steps.retain(|s| !(args.tests_done && s.name == TESTS));
    if let Some(only) = &args.only {
        steps.retain(|s| s.name.starts_with(only.as_str()));
    }
    if steps.is_empty() {
        bail!("no step is left to run; `cargo xtask ci --list` prints them");
    }
    if args.list {
        for step in &steps {
            println!("{:<12} at most {:>4} s: {}", step.name, step.budget.as_secs(), step.command);
        }
        return Ok(());
    }
    let mut rows = Vec::new();
    for step in &steps {
        println!("== {}: {}", step.name, step.command);
        let (outcome, took) = step.run(root, in_ci)?;
        println!("== {}: {outcome} after {:.1} s of {} s", step.name, took.as_secs_f64(), step.budget.as_secs());
        rows.push((step, outcome, took));
    }
    println!("\n{:<12} {:>8} {:>8}  outcome", "step", "seconds", "budget");
    for (step, outcome, took) in &rows {
        println!("{:<12} {:>8.1} {:>8}  {outcome}", step.name, took.as_secs_f64(), step.budget.as_secs());
    }
    if args.tests_done {
        println!("{TESTS:<12} left out: they have just run");
    }
    if !found.valgrind {
        println!("{COUNTS:<12} left out: valgrind is not installed");
    }
    let broken: Vec<String> = rows
        .iter()
        .filter(|(_, outcome, _)| *outcome != Outcome::Passed)
        .map(|(step, outcome, _)| format!("{} {outcome}", step.name))
        .collect();
    if !broken.is_empty() {
        bail!("ci: {}", broken.join(", "));
    }
    println!("ci: {} steps passed", rows.len());
    Ok(())
}

const TESTS: &str = "tests";
const COUNTS: &str = "counts";

/// What there is around ci.
#[derive(Clone, Copy)]
struct Found {
    /// CI=true.
    in_ci: bool,
    nextest: bool,
    valgrind: bool,
}

/// The steps in order: the quick ones first. Budgets are for two cores and an empty target folder. Steps of xtask itself run
/// this program (`xtask`) as it is: `cargo xtask` would build it anew where it was built with the rest of the workspace.
fn steps(readme: &str, xtask: &Path, found: Found) -> Vec<Step> {
    let seconds = Duration::from_secs;
    let own = |name, budget, args| Step::new(name, budget, format!("\"$XTASK\" {args}")).with_env("XTASK", xtask);
    let mut out = vec![
        Step::new("fmt", seconds(30), "cargo fmt --all --check"),
        own("tidy", seconds(60), "tidy"),
        // Compiles for a GPU without one; says SKIPPED where there is no compiler to be had.
        own("kernels", seconds(300), "kernels check"),
        own("evidence", seconds(60), "evidence check"),
        Step::new("clippy", seconds(420), "cargo clippy --workspace --all-targets --locked -- -D warnings"),
        Step::new(TESTS, seconds(1200), tests_command(found)),
        Step::new("doc", seconds(240), "cargo doc --workspace --no-deps --document-private-items --locked")
            .with_env("RUSTDOCFLAGS", "-D warnings"),
    ];
    let commands = readme::commands(readme);
    for command in commands.iter().filter(|c| !readme::is_test(c)) {
        // The first one builds the release binary: what README promises for a cold start, and without a C compiler.
        // Six minutes are the aim; a shared machine's wall clock is allowed a third more before it fails a change.
        let step = Step::new("readme", seconds(480), command);
        out.push(step.with_env("CC", "false").with_env("CXX", "false"));
    }
    if let Some(audit) = commands.iter().find(|c| readme::is_audit(c)) {
        // Built, but computed in full: what the first run left in the cache doesn't count.
        out.push(Step::new("audit-warm", seconds(60), audit).with_env("KARAT_NO_CACHE", "1"));
    }
    if found.valgrind {
        // Behind the release build, whose libraries it links.
        out.push(own(COUNTS, seconds(60), "counts"));
    }
    out
}

/// The test suite; slow tests too where CI=true.
fn tests_command(found: Found) -> &'static str {
    match (found.nextest, found.in_ci) {
        (true, true) => "cargo nextest run --workspace --locked --no-fail-fast --run-ignored all",
        (true, false) => "cargo nextest run --workspace --locked --no-fail-fast",
        (false, true) => "cargo test --workspace --locked --no-fail-fast -- --include-ignored",
        (false, false) => "cargo test --workspace --locked --no-fail-fast",
    }
}

fn nextest() -> bool {
    let found = std::process::Command::new("cargo").args(["nextest", "--version"]).output();
    found.is_ok_and(|output| output.status.success())
}
