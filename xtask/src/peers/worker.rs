//! A program that measures on request: a command line in, a JSON line out.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A running program.
pub(super) struct Worker {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts it and waits until it is ready.
    pub(super) fn start(name: &str, command: &mut Command) -> Result<(Self, Value)> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start {name}"))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("a piped output")?);
        let mut worker = Self { name: name.to_owned(), child, input, output };
        let ready = worker.answer()?;
        Ok((worker, ready))
    }

    /// One command.
    pub(super) fn ask(&mut self, command: &str) -> Result<Value> {
        let input = self.input.as_mut().context("the worker has ended")?;
        writeln!(input, "{command}")
            .and_then(|()| input.flush())
            .with_context(|| format!("{} has ended", self.name))?;
        self.answer().with_context(|| format!("{}: {command}", self.name))
    }

    /// One command's time in seconds.
    pub(super) fn seconds(&mut self, command: &str) -> Result<f64> {
        let answer = self.ask(command)?;
        answer["seconds"].as_f64().with_context(|| format!("{}: {command}: no time in {answer}", self.name))
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("{} ended without an answer", self.name);
        }
        serde_json::from_str(&line).with_context(|| format!("{} answered {line:?}", self.name))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Without input it ends by itself; a program that doesn't is stopped.
        self.input = None;
        for _ in 0..50 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
