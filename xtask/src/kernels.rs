//! `cargo xtask kernels build|check`: compiles every image of `kernels/kernels.toml` for every chip, without a GPU, and holds it
//! to its budget. The compiler comes from the Python package index through pip, once; nothing of it is kept in the project.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use karat_kernels::check::{breaches, opcodes};
use karat_kernels::cuda::nvrtc::Nvrtc;
use karat_kernels::list::List;
use karat_kernels::pack::{Item, Pack};

/// Options of `cargo xtask kernels`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Kind,
}

#[derive(clap::Subcommand)]
enum Kind {
    /// Compiles everything into a pack.
    Build {
        /// Folder of the pack.
        #[arg(long, default_value = "target/kernels/pack")]
        out: PathBuf,
        /// Only images whose names begin with this word.
        #[arg(long, default_value = "")]
        images: String,
    },
    /// Compiles everything and checks registers, spills, shared memory and instructions. Says so and passes where there is no
    /// compiler and none can be fetched.
    Check,
}

/// The disassembler's package; the compiler's version is the list's.
const DISASSEMBLER: &str = "nvidia-cuda-nvdisasm==13.2.51";

/// Runs it.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let mut list = List::read()?;
    if let Kind::Build { images, .. } = &args.command {
        list.images.retain(|image| image.name.starts_with(images.as_str()));
    }
    let tools = match tools(root, &list) {
        Ok(tools) => tools,
        Err(error) if matches!(args.command, Kind::Check) => {
            println!("kernels check: SKIPPED, nothing was compiled or checked: {error:#}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let (made, broken) = compile(&list, &tools)?;
    if let Kind::Build { out, .. } = &args.command {
        let out = root.join(out);
        let pack = Pack::write(&out, &list.compiler, made)?;
        println!("kernels: {} images in {}", pack.manifest.items.len(), out.display());
    }
    if !broken.is_empty() {
        bail!("kernels over budget:\n  {}", broken.join("\n  "));
    }
    println!("kernels: all within budget");
    Ok(())
}

/// Compiler and disassembler.
struct Tools {
    nvrtc: Nvrtc,
    nvdisasm: Option<PathBuf>,
}

/// The tools under KARAT_CUDA_ROOT if it is set, else those fetched under `target/fetch`.
fn tools(root: &Path, list: &List) -> Result<Tools> {
    let folder = match std::env::var_os("KARAT_CUDA_ROOT") {
        Some(folder) => PathBuf::from(folder),
        None => fetched(root, list)?,
    };
    let nvrtc = Nvrtc::find(Some(&folder))?;
    if !list.compiler.starts_with(&format!("{}.", nvrtc.version)) {
        bail!("NVRTC is {}, packs are built with {}", nvrtc.version, list.compiler);
    }
    let nvdisasm =
        ["nvidia/cu13/bin/nvdisasm", "bin/nvdisasm"].map(|p| folder.join(p)).into_iter().find(|p| p.exists());
    Ok(Tools { nvrtc, nvdisasm })
}

/// Unpacks the two wheels, unless they are there.
fn fetched(root: &Path, list: &List) -> Result<PathBuf> {
    let folder = root.join("target/fetch").join(format!("cuda-{}", list.compiler));
    if folder.exists() {
        return Ok(folder);
    }
    let part = folder.with_extension("part");
    if part.exists() {
        std::fs::remove_dir_all(&part)?;
    }
    let options =
        ["-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--only-binary", ":all:", "--target"];
    let compiler = format!("nvidia-cuda-nvrtc=={}", list.compiler);
    let output = Command::new("timeout")
        .args(["60", "python3"])
        .args(options)
        .arg(&part)
        .args([compiler.as_str(), DISASSEMBLER])
        .output()
        .context("python3 cannot be run")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("pip could not bring {compiler}: {}", said.trim().lines().last().unwrap_or_default());
    }
    std::fs::rename(&part, &folder)?;
    Ok(folder)
}

/// Every image for every chip, and what breaks a budget.
fn compile(list: &List, tools: &Tools) -> Result<(Vec<(Item, Vec<u8>)>, Vec<String>)> {
    if tools.nvdisasm.is_none() {
        println!("kernels: no nvdisasm: instructions are not checked");
    }
    let (mut made, mut broken) = (Vec::new(), Vec::new());
    for image in &list.images {
        for arch in image.arches() {
            let compiled = tools.nvrtc.compile(image, arch)?;
            let mut item = Item::new(image, arch, &list.compiler, &compiled.cubin, compiled.resources)?;
            if let Some(nvdisasm) = &tools.nvdisasm {
                item.opcodes = opcodes(&disassembled(nvdisasm, &compiled.cubin)?);
            }
            let codes = tools.nvdisasm.as_ref().map(|_| &item.opcodes);
            broken.extend(breaches(image, arch, &item.resources, codes));
            for (used, entry) in item.resources.iter().filter_map(|r| Some((r, image.entry(&r.entry).ok()?))) {
                let mma: u32 = item
                    .opcodes
                    .get(&used.entry)
                    .map_or(0, |codes| codes.iter().filter(|(code, _)| code.starts_with("HMMA")).map(|(_, n)| n).sum());
                println!(
                    "{:<18} {:<8} {:<12} {:>3} registers, {:>6} bytes shared, {} spilled, {mma} HMMA",
                    image.name,
                    arch,
                    used.entry,
                    used.registers,
                    used.shared + entry.shared,
                    used.spill_stores + used.spill_loads
                );
            }
            made.push((item, compiled.cubin));
        }
    }
    Ok((made, broken))
}

fn disassembled(nvdisasm: &Path, cubin: &[u8]) -> Result<String> {
    let file = std::env::temp_dir().join(format!("karat-{}.cubin", std::process::id()));
    std::fs::write(&file, cubin)?;
    let output = Command::new(nvdisasm).arg(&file).output().context("nvdisasm cannot be run");
    std::fs::remove_file(&file)?;
    let output = output?;
    if !output.status.success() {
        bail!("nvdisasm ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
