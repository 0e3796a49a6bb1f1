//! A real engine behind HTTP: transformers' model of the mini golden model (`adapters/python/serve_transformers.py`).
//!
//! Runs where Python has torch, transformers and tokenizers (`KARAT_PYTHON` names one, else `python3`); elsewhere it says that it was skipped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{Ran, karat};

/// A server that ends with the test.
struct Engine {
    child: Child,
    url: String,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn python() -> Option<PathBuf> {
    let python = std::env::var_os("KARAT_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let needs = "import torch, tokenizers; from transformers import DeepseekV4ForCausalLM";
    let has = Command::new(&python).args(["-c", needs]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    has.is_ok_and(|status| status.success()).then_some(python)
}

fn start(python: &Path, options: &[&str]) -> Engine {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../adapters/python/serve_transformers.py");
    let mut command = Command::new(python);
    command.arg(script).args(["--port", "0", "--threads", "2"]).args(options);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.split_whitespace().nth(3).unwrap_or_else(|| panic!("{line}"));
    Engine { url: format!("http://127.0.0.1:{port}"), child }
}

fn recall(engine: &Engine, more: &[&str]) -> Ran {
    let args =
        ["recall", "turn-two", "tic-tac-toe", "--endpoint", &engine.url, "--concurrency", "1", "--requests", "60"];
    karat(Path::new("."), &[&args[..], &["--json", "--quiet"], more].concat())
}

fn audit(engine: &Engine, api: &str) -> Ran {
    let args = ["audit", "--endpoint", &engine.url, "--api", api, "--claims", "f32", "--json", "--quiet"];
    karat(Path::new("."), &args)
}

#[test]
#[ignore = "slow, and skipped where Python has no torch (as in CI): run with --include-ignored"]
fn a_real_engine_end_to_end() {
    let Some(python) = python() else {
        // Straight to the terminal: a passing test's captured output is never shown.
        let _ =
            writeln!(std::io::stderr(), "skipped: a real engine: no Python with torch, transformers and tokenizers");
        return;
    };
    let sglang = ["--api", "sglang", "--route", "generate"];
    let vllm = ["--api", "vllm", "--route", "completions"];
    let chat = ["--api", "sglang", "--route", "chat"];
    {
        let engine = start(&python, &[]);
        for api in ["sglang", "vllm"] {
            assert_eq!(audit(&engine, api).expect(0).json()["verdict"], "pass");
        }
        for route in [sglang, vllm, chat] {
            // Nothing is lost, and so few answers prove no margin.
            let said = recall(&engine, &route).expect(4).json();
            let reasons = said["reasons"].to_string();
            assert!(reasons.contains(" 0 lost") && reasons.contains("ruled out"), "{reasons}");
        }
    }
    {
        let engine = start(&python, &["--fault", "other-prefix"]);
        let said = recall(&engine, &sglang).expect(1).json();
        assert!(said["reasons"][0].as_str().unwrap().contains("behind a stream that was closed"), "{said}");
    }
    for (fault, route) in [("stale-abort", chat), ("next-prefix", sglang)] {
        let engine = start(&python, &["--fault", fault]);
        let said = recall(&engine, &route).expect(1).json()["reasons"].to_string();
        assert!(said.contains("behind a stream that was closed than twice before"), "{fault}: {said}");
    }
    let engine = start(&python, &["--fault", "scale"]);
    for api in ["sglang", "vllm"] {
        assert_eq!(audit(&engine, api).expect(1).json()["verdict"], "fail");
    }
}
