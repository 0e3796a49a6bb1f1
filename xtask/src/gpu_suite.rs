//! `cargo xtask gpu-suite`: one folder with everything that a machine with a GPU and Python needs to measure the kernels: no
//! Rust, no compiler, no network there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use karat_kernels::pack::Pack;

/// Options of `cargo xtask gpu-suite`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder to make.
    #[arg(long, default_value = "target/gpu-suite")]
    out: PathBuf,
    /// The pack of `cargo xtask kernels build`.
    #[arg(long, default_value = "target/kernels/pack")]
    pack: PathBuf,
    /// Cargo profile of the program.
    #[arg(long, default_value = "release")]
    profile: String,
}

/// Runs everything; the evidence file lies in `$OUT`, or beside the script.
const SCRIPT: &str = "\
#!/usr/bin/env bash
# Runs the kernels of this folder on the first GPU and writes evidence.json into $OUT (else beside this script).
cd \"$(dirname \"$0\")\" || exit 1
out=${OUT:-.}
./gpu_suite --pack pack --out \"$out/evidence.json\" --date \"$(date -u +%F)\" --peers torch_peers.py 2>&1 | tee \"$out/gpu-suite.log\"
done=${PIPESTATUS[0]}
# The same kernels on fewer seeds under the memory checker, where the machine has one.
if command -v compute-sanitizer > /dev/null; then
    timeout 150 compute-sanitizer --error-exitcode 9 ./gpu_suite --pack pack --out \"$out/sanitizer.json\" \\
        --date \"$(date -u +%F)\" --seeds 2 --parts correctness > \"$out/sanitizer.log\" 2>&1
    echo \"compute-sanitizer ended with $?\" | tee -a \"$out/sanitizer.log\"
    tail -n 3 \"$out/sanitizer.log\"
fi
exit \"$done\"
";

/// Makes the folder.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let pack = Pack::open(&root.join(&args.pack))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let what =
        ["build", "--package", "karat-kernels", "--features", "cuda", "--bin", "gpu_suite", "--locked", "--profile"];
    let status = Command::new(cargo).current_dir(root).args(what).arg(&args.profile).status();
    if !status.context("cargo cannot be run")?.success() {
        bail!("the suite's program does not build");
    }
    let out = root.join(&args.out);
    if out.exists() {
        std::fs::remove_dir_all(&out)?;
    }
    std::fs::create_dir_all(out.join("pack"))?;
    let copy = |from: PathBuf, to: &str| {
        std::fs::copy(&from, out.join(to)).with_context(|| format!("failed to copy {}", from.display()))
    };
    let folder = if args.profile == "dev" { "debug" } else { args.profile.as_str() };
    copy(root.join("target").join(folder).join("gpu_suite"), "gpu_suite")?;
    // A smaller file travels faster; without binutils it travels as it is.
    let _ = Command::new("strip").arg(out.join("gpu_suite")).status();
    copy(root.join("kernels/peers/torch_peers.py"), "torch_peers.py")?;
    for name in pack.manifest.items.iter().map(karat_kernels::pack::Item::file).chain(["manifest.json".to_string()]) {
        copy(root.join(&args.pack).join(&name), &format!("pack/{name}"))?;
    }
    std::fs::write(out.join("run.sh"), SCRIPT)?;
    println!(
        "gpu-suite: {}: on the machine with the GPU run `bash run.sh`, and bring evidence.json back",
        out.display()
    );
    Ok(())
}
