//! `cargo xtask cpu-suite`: one folder with what measures golden's own goals (capture, dumps, depth, real shapes) on a machine with
//! many cores and Python, without Rust or a compiler there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Options of `cargo xtask cpu-suite`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder to make.
    #[arg(long, default_value = "target/cpu-suite")]
    out: PathBuf,
}

/// Makes the folder.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let programs = ["captured", "capture_speed", "real_shape"];
    let mut build = Command::new(cargo);
    build.current_dir(root).args(["build", "--release", "--locked", "-p", "karat-reference", "-p", "karat-trace"]);
    programs.iter().for_each(|program| {
        build.args(["--example", program]);
    });
    if !build.status().context("cargo cannot be run")?.success() {
        bail!("the suite's programs do not build");
    }
    let out = root.join(&args.out);
    if out.exists() {
        std::fs::remove_dir_all(&out)?;
    }
    std::fs::create_dir_all(out.join("model"))?;
    let copy = |from: PathBuf, to: String| {
        std::fs::copy(&from, out.join(to)).with_context(|| format!("failed to copy {}", from.display()))
    };
    for program in programs {
        copy(root.join("target/release/examples").join(program), program.into())?;
        // A smaller file travels faster; without binutils it travels as it is.
        let _ = Command::new("strip").arg(out.join(program)).status();
    }
    for file in ["config.json", "encoding.json", "model.safetensors", "tokenizer.json"] {
        copy(root.join("golden").join(file), format!("model/{file}"))?;
    }
    for script in ["cpu_suite.py", "torch_save.py"] {
        copy(root.join("xtask/peers").join(script), script.into())?;
    }
    println!(
        "cpu-suite: {}: on the machine run `python3 cpu_suite.py PART OUT`, PART one of capture, dumps, depth, shape",
        out.display()
    );
    Ok(())
}
