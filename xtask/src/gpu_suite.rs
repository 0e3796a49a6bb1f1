//! `cargo xtask gpu-suite`: one folder with everything that a machine with a GPU and Python needs to measure the kernels and to
//! compare golden on the GPU with golden on its CPU: no Rust, no compiler, no network there.

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

/// Runs a part; the evidence file lies in `$OUT`, or beside the script.
const SCRIPT: &str = "\
#!/usr/bin/env bash
# bash run.sh PART, PART one of kernels (default), bench, compare, golden, capture, split, probe, audit, layer, layer-golden, nccl: into PART.json (kernels: evidence.json) in $OUT, else beside this script. All run on the first GPU, nccl on all of the host.
cd \"$(dirname \"$0\")\" || exit 1
out=${OUT:-.}
if [ \"${1:-kernels}\" = golden ]; then
    ./gpu_suite --pack pack --golden model --karat ./karat --out \"$out/golden.json\" --date \"$(date -u +%F)\" 2>&1 | tee \"$out/golden.log\"
    exit \"${PIPESTATUS[0]}\"
fi
if [ \"${1:-kernels}\" = capture ]; then
    # Sketches and dumps of golden, on the mini golden model and on one layer of released shapes, into capture.json; nothing of them stays on the disk.
    shapes=$(mktemp -d)
    trap 'rm -rf \"$shapes\"' EXIT
    layer=
    timeout 60 ./real_shape \"$shapes/model\" flash:64 1 0 && layer=\"--layer $shapes/model\"
    echo \"a layer of released shapes was made after $SECONDS s\"
    ./gpu_suite --pack pack --capture model $layer --out \"$out/capture.json\" --date \"$(date -u +%F)\" 2>&1 | tee \"$out/capture.log\"
    exit \"${PIPESTATUS[0]}\"
fi
if [ \"${1:-kernels}\" = split ]; then
    # Golden's exact-split tier against f64 and beside the tier of bits, into split.json.
    ./gpu_suite --pack pack --split model --out \"$out/split.json\" --date \"$(date -u +%F)\" 2>&1 | tee \"$out/split.log\"
    exit \"${PIPESTATUS[0]}\"
fi
if [ \"${1:-kernels}\" = probe ]; then
    ./gpu_suite --pack pack --probe all --out \"$out/probe.json\" --date \"$(date -u +%F)\" 2>&1 | tee \"$out/probe.log\"
    exit \"${PIPESTATUS[0]}\"
fi
if [ \"${1:-kernels}\" = compare ]; then
    # Two tensors on the GPU compared there, into compare.json.
    ./gpu_suite --pack pack --compare yes --peers torch_peers.py --out \"$out/compare.json\" --date \"$(date -u +%F)\" 2>&1 | tee \"$out/compare.log\"
    exit \"${PIPESTATUS[0]}\"
fi
if [ \"${1:-kernels}\" = bench ]; then
    # The command as people run it, on the rows of one kernel; then what it kept is read again.
    timeout ${LIMIT:-300} ./karat bench --pack pack --peers torch_peers.py --filter mla --out \"$out/bench.json\" 2>&1 | tee \"$out/bench.log\"
    done=${PIPESTATUS[0]}
    echo \"karat bench ended with $done after $SECONDS s\" | tee -a \"$out/bench.log\"
    [ \"$done\" = 0 ] || exit \"$done\"
    ./karat bench --evidence \"$out/bench.json\" --filter mla > \"$out/bench-again.txt\" 2>&1
    done=$?
    echo \"karat bench --evidence ended with $done\" | tee -a \"$out/bench.log\"
    exit \"$done\"
fi
if [ \"${1:-kernels}\" = audit ] || [ \"${1:-kernels}\" = layer ] || [ \"${1:-kernels}\" = layer-golden ]; then
    python3 -u audit_suite.py \"$1\" \"$out/$1.json\" 2>&1 | tee \"$out/$1.log\"
    exit \"${PIPESTATUS[0]}\"
fi
if [ \"${1:-kernels}\" = nccl ]; then
    # NCCL comes with torch where the system has none; sums in the switch are not what is looked at, and not everywhere allowed.
    lib=$(python3 -c 'import torch; print([l.split()[-1] for l in open(\"/proc/self/maps\") if \"libnccl\" in l][0])' 2> /dev/null)
    export LD_LIBRARY_PATH=${lib:+$(dirname \"$lib\"):}$LD_LIBRARY_PATH NCCL_NVLS_ENABLE=0
    ./gpu_suite --pack pack --nccl model --karat ./karat --out \"$out/nccl.json\" --date \"$(date -u +%F)\" 2>&1 | tee \"$out/nccl.log\"
    exit \"${PIPESTATUS[0]}\"
fi
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
    let packages = ["--package", "karat-kernels", "--bin", "gpu_suite", "--package", "karat-cli", "--bin", "karat"];
    let features = ["--features", "karat-kernels/cuda,karat-cli/cuda", "--locked", "--profile", &args.profile];
    let example = ["--package", "karat-reference", "--example", "real_shape", "--locked", "--profile", &args.profile];
    for what in [&[&packages[..], &features].concat(), &example[..]] {
        let status = Command::new(&cargo).current_dir(root).arg("build").args(what).status();
        if !status.context("cargo cannot be run")?.success() {
            bail!("the suite's programs do not build");
        }
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
    for (program, from) in [("gpu_suite", "gpu_suite"), ("karat", "karat"), ("real_shape", "examples/real_shape")] {
        copy(root.join("target").join(folder).join(from), program)?;
        // A smaller file travels faster; without binutils it travels as it is.
        let _ = Command::new("strip").arg(out.join(program)).status();
    }
    std::fs::create_dir_all(out.join("model"))?;
    for file in ["config.json", "encoding.json", "model.safetensors", "tokenizer.json"] {
        copy(root.join("golden").join(file), &format!("model/{file}"))?;
    }
    for script in ["torch_peers.py", "audit_suite.py"] {
        copy(root.join("kernels/peers").join(script), script)?;
    }
    let facts = serde_json::json!({"images": karat_kernels::audits::images()?, "profile": args.profile});
    std::fs::write(out.join("suite.json"), serde_json::to_string_pretty(&facts)? + "\n")?;
    for name in pack.manifest.items.iter().map(karat_kernels::pack::Item::file).chain(["manifest.json".to_string()]) {
        copy(root.join(&args.pack).join(&name), &format!("pack/{name}"))?;
    }
    std::fs::write(out.join("run.sh"), SCRIPT)?;
    println!(
        "gpu-suite: {}: on the machine with the GPU run `bash run.sh PART`, PART one of kernels, bench, compare, golden, capture, split, probe, audit, layer, layer-golden, or with several GPUs nccl",
        out.display()
    );
    Ok(())
}
