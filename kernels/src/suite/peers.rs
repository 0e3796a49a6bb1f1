//! The peers: one Python process that keeps its compiled functions, asked line by line between our own measurements.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use karat_model::{Error, Result};

/// The process, or none.
pub(super) struct Peers(Option<(Child, ChildStdin, BufReader<ChildStdout>)>);

impl Peers {
    /// Starts the script, if there is one.
    pub(super) fn start(script: Option<&Path>) -> Result<Self> {
        let Some(script) = script else { return Ok(Self(None)) };
        let failed = |e| Error::input(format!("the peers cannot be started: {e}")).at(script.display());
        let mut child =
            Command::new("python3").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else { return Err(Error::input("the peers have no pipes")) };
        Ok(Self(Some((child, stdin, BufReader::new(stdout)))))
    }

    /// Versions of what they run in.
    pub(super) fn versions(&mut self) -> Result<BTreeMap<String, String>> {
        self.ask("versions")
    }

    /// Microseconds by name of an operation at a shape: `mhc 64`, `mla 8`, `gemm 4096 4096 4096`.
    pub(super) fn time(&mut self, what: &str) -> Result<BTreeMap<String, f64>> {
        self.ask(what)
    }

    fn ask<T: serde::de::DeserializeOwned + Default>(&mut self, what: &str) -> Result<T> {
        let Some((_, stdin, stdout)) = &mut self.0 else { return Ok(T::default()) };
        let failed = |e: String| Error::input(format!("the peers gave no answer to `{what}`: {e}"));
        writeln!(stdin, "{what}").and_then(|()| stdin.flush()).map_err(|e| failed(e.to_string()))?;
        let mut line = String::new();
        stdout.read_line(&mut line).map_err(|e| failed(e.to_string()))?;
        serde_json::from_str(&line).map_err(|e| failed(format!("{e}: {}", line.trim())))
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        if let Some((mut child, stdin, _)) = self.0.take() {
            drop(stdin);
            let _ = child.wait();
        }
    }
}
