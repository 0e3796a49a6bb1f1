//! One step: a command, the time it may take, and what became of it.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// A command with a budget.
pub(super) struct Step {
    /// Short name, for the table and for `--only`.
    pub(super) name: &'static str,
    /// Most wall time it may take.
    pub(super) budget: Duration,
    /// Command line for bash.
    pub(super) command: String,
    env: Vec<(&'static str, OsString)>,
}

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Exit 0 within the budget.
    Passed,
    /// The command failed, with this exit code if it had one.
    Failed(Option<i32>),
    /// The command took longer than the budget, whatever its exit code.
    OverBudget,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(Some(code)) => write!(f, "failed with exit code {code}"),
            Self::Failed(None) => f.write_str("was killed"),
            Self::OverBudget => f.write_str("went over its budget"),
        }
    }
}

impl Step {
    /// A step without environment of its own.
    pub(super) fn new(name: &'static str, budget: Duration, command: impl Into<String>) -> Self {
        Self { name, budget, command: command.into(), env: Vec::new() }
    }

    /// Sets an environment variable for this step.
    pub(super) fn with_env(mut self, key: &'static str, value: impl Into<OsString>) -> Self {
        self.env.push((key, value.into()));
        self
    }

    /// Runs it at `root`. With `stop` it is ended, with all that it started, when its budget is spent; without (at a
    /// terminal, where a person may end it) it runs to its end and then counts as over budget.
    pub(super) fn run(&self, root: &Path, stop: bool) -> Result<(Outcome, Duration)> {
        let start = Instant::now();
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &self.command]).current_dir(root).stdin(Stdio::null());
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        if stop {
            command.process_group(0);
        }
        let mut child = command.spawn().context("failed to start bash")?;
        let status = if stop { wait_until(&mut child, start + self.budget)? } else { Some(child.wait()?) };
        let took = start.elapsed();
        let outcome = match status {
            Some(status) if took <= self.budget => outcome(status),
            _ => Outcome::OverBudget,
        };
        Ok((outcome, took))
    }
}

fn outcome(status: ExitStatus) -> Outcome {
    if status.success() { Outcome::Passed } else { Outcome::Failed(status.code()) }
}

/// Waits for the child until `deadline`; then ends its process group. `None` when it had to be ended.
fn wait_until(child: &mut Child, deadline: Instant) -> Result<Option<ExitStatus>> {
    let mut pause = Duration::from_millis(2);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
        pause = (pause * 2).min(Duration::from_millis(200));
    }
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    // The child leads its own group, so this reaches the compilers and tests that it started.
    let group = format!("-{}", child.id());
    let killed = Command::new("kill").args(["-KILL", "--", &group]).status().context("failed to run kill")?;
    if !killed.success() {
        child.kill()?;
    }
    child.wait()?;
    Ok(None)
}
