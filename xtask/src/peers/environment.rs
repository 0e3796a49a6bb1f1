//! Other people's programs in a scratch environment: pinned versions, brought by pip as this machine has it set up.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Installed with their dependencies.
const PACKAGES: &[&str] = &[
    "torch==2.15.*",
    "transformers==5.24.*",
    "numpy==2.4.*",
    "safetensors==0.8.*",
    "polygraphy==0.53.6",
    "pydantic==2.*",
];
/// A serving engine of which only the comparator is taken, out of its wheel.
const SGLANG: &str = "sglang==0.5.23";
/// Written last: an environment that has it is whole.
const DONE: &str = "done";

/// Where the programs are.
pub(super) struct Environment {
    python: PathBuf,
    scripts: PathBuf,
    /// Folder of SGLang's comparator.
    comparator: PathBuf,
    threads: u16,
}

/// Sets it up where it isn't yet.
pub(super) fn prepare(folder: &Path, scripts: PathBuf, python: Option<&Path>, threads: u16) -> Result<Environment> {
    let venv = folder.join("venv");
    let python = match python {
        Some(given) => given.to_path_buf(),
        None => {
            let program = venv.join("bin/python");
            if !venv.join(DONE).exists() {
                println!("peers: setting up Python packages ({}); this takes minutes", PACKAGES.join(", "));
                run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
                run(Command::new(&program).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))?;
                std::fs::write(venv.join(DONE), PACKAGES.join("\n"))?;
            }
            program
        }
    };
    let environment = Environment { python, scripts, comparator: folder.join("sglang"), threads };
    if !environment.comparator.join(DONE).exists() {
        environment.comparator(&folder.join("wheels"))?;
    }
    Ok(environment)
}

impl Environment {
    fn comparator(&self, wheels: &Path) -> Result<()> {
        println!("peers: taking the comparator out of {SGLANG}");
        let options = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"];
        run(Command::new(&self.python).args(options).arg(wheels).arg(SGLANG))?;
        let named = |path: &PathBuf| path.extension().is_some_and(|e| e == "whl");
        let wheel = std::fs::read_dir(wheels)?.filter_map(|e| e.ok().map(|e| e.path())).find(named);
        let wheel = wheel.context("pip brought no wheel of SGLang")?;
        self.script("sglang_comparator.py", &[&wheel.display().to_string(), &self.comparator.display().to_string()])?;
        std::fs::write(self.comparator.join(DONE), SGLANG)?;
        std::fs::remove_dir_all(wheels)?;
        Ok(())
    }

    /// A script under this Python, with threads that wait without spinning: an idle peer must not take the other's turn.
    pub(super) fn command(&self, script: &str) -> Command {
        let mut command = Command::new(&self.python);
        let threads = self.threads.to_string();
        command.arg(self.scripts.join(script));
        for name in ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"] {
            command.env(name, &threads);
        }
        command.env("OMP_WAIT_POLICY", "passive").env("KMP_BLOCKTIME", "0").env("PYTHONDONTWRITEBYTECODE", "1");
        command
            .env("KARAT_PEERS_COMPARATOR", &self.comparator)
            .env("KARAT_PEERS_SGLANG", SGLANG.replace("sglang==", ""));
        command.env("PYTHONWARNINGS", "ignore");
        command
    }

    /// Runs a script to its end.
    pub(super) fn script(&self, script: &str, args: &[&str]) -> Result<()> {
        run(self.command(script).args(args))
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("failed to run {}", command.get_program().display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let last: Vec<&str> = said.lines().rev().take(8).collect();
        bail!("{:?} ended with {}:\n{}", command, output.status, last.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
    Ok(())
}
