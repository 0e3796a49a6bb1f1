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
        let Some((child, stdin, stdout)) = &mut self.0 else { return Ok(T::default()) };
        let failed = |e: String| Error::input(format!("the peers gave no answer to `{what}`: {e}"));
        let mut line = String::new();
        let asked = writeln!(stdin, "{what}").and_then(|()| stdin.flush());
        let read = asked.and_then(|()| stdout.read_line(&mut line));
        // A closed pipe on either side: the process is gone, or about to go.
        if matches!(read, Ok(0)) || read.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe) {
            let status = child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
            let error = failed(format!("their process ended ({status})"));
            return Err(error.hint("what it said stands above; it needs Python 3 with torch"));
        }
        read.map_err(|e| failed(e.to_string()))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A script of these lines, started; none where there is no Python.
    fn script(lines: &str) -> Option<(tempfile::TempDir, Peers)> {
        Command::new("python3").arg("--version").output().ok()?;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("peers.py");
        std::fs::write(&file, lines).unwrap();
        let peers = Peers::start(Some(&file)).unwrap();
        Some((folder, peers))
    }

    #[test]
    fn answers_are_taken_line_by_line() {
        let lines =
            "import sys, json\nfor line in sys.stdin:\n    print(json.dumps({line.strip(): len(line)}), flush=True)\n";
        let Some((_folder, mut peers)) = script(lines) else { return };
        assert_eq!(peers.time("mhc 64").unwrap(), [("mhc 64".to_string(), 7.0)].into());
        assert_eq!(peers.time("mla 8").unwrap(), [("mla 8".to_string(), 6.0)].into());
        assert!(Peers::start(None).unwrap().time("mhc 64").unwrap().is_empty());
    }

    #[test]
    fn a_process_that_ends_and_one_that_answers_nonsense_are_told_apart() {
        let Some((_folder, mut peers)) = script("import sys\nsys.exit(3)\n") else { return };
        let said = peers.versions().unwrap_err().to_string();
        assert!(said.contains("ended (exit status: 3)") && said.contains("torch"), "{said}");
        let (_folder, mut peers) = script("import sys\nfor line in sys.stdin: print('hello', flush=True)\n").unwrap();
        let said = peers.versions().unwrap_err().to_string();
        assert!(said.contains("hello") && !said.contains("ended"), "{said}");
    }
}
