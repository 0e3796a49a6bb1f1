//! A program that measures on request: a command line in, a JSON line out.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A running program.
pub(super) struct Worker {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    log: Log,
}

/// Answers as they come, one JSON line each; or nothing.
#[derive(Clone, Default)]
pub(super) struct Log(Option<Arc<File>>);

impl Log {
    pub(super) fn open(path: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| File::create(path).with_context(|| format!("failed to write {}", path.display()));
        Ok(Self(path.map(open).transpose()?.map(Arc::new)))
    }

    fn note(&self, who: &str, command: &str, answer: &Value) -> Result<()> {
        if let Some(file) = &self.0 {
            writeln!(&**file, "{}", serde_json::json!({"program": who, "command": command, "answer": answer}))?;
        }
        Ok(())
    }
}

impl Worker {
    /// Starts it and waits until it is ready.
    pub(super) fn start(name: &str, command: &mut Command, log: &Log) -> Result<(Self, Value)> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start {name}"))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("a piped output")?);
        let mut worker = Self { name: name.to_owned(), child, input, output, log: log.clone() };
        let ready = worker.answer()?;
        worker.log.note(name, "", &ready)?;
        Ok((worker, ready))
    }

    /// One command.
    pub(super) fn ask(&mut self, command: &str) -> Result<Value> {
        let input = self.input.as_mut().context("the worker has ended")?;
        writeln!(input, "{command}")
            .and_then(|()| input.flush())
            .with_context(|| format!("{} has ended", self.name))?;
        let answer = self.answer().with_context(|| format!("{}: {command}", self.name))?;
        self.log.note(&self.name, command, &answer)?;
        Ok(answer)
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
