//! The CUDA sources, part of this program, and the digest that says which ones something was built or measured with.

use std::collections::BTreeMap;

use karat_model::{Error, Result};
use sha2::{Digest, Sha256};

use crate::list::Image;

const SOURCES: &[(&str, &str)] = &[
    ("diff/compare.cu", include_str!("../cuda/diff/compare.cu")),
    ("diff/naive.cu", include_str!("../cuda/diff/naive.cu")),
    ("optimized/block_scaled_fp4.cu", include_str!("../cuda/optimized/block_scaled_fp4.cu")),
    ("optimized/ceiling.cu", include_str!("../cuda/optimized/ceiling.cu")),
    ("optimized/compressor.cu", include_str!("../cuda/optimized/compressor.cu")),
    ("optimized/grouped_fp4.cu", include_str!("../cuda/optimized/grouped_fp4.cu")),
    ("optimized/index.cu", include_str!("../cuda/optimized/index.cu")),
    ("optimized/mhc.cu", include_str!("../cuda/optimized/mhc.cu")),
    ("optimized/mma_probe.cu", include_str!("../cuda/optimized/mma_probe.cu")),
    ("optimized/ptx.cuh", include_str!("../cuda/optimized/ptx.cuh")),
    ("optimized/select.cu", include_str!("../cuda/optimized/select.cu")),
    ("optimized/sparse_mla.cu", include_str!("../cuda/optimized/sparse_mla.cu")),
    ("optimized/split_gemm.cu", include_str!("../cuda/optimized/split_gemm.cu")),
    ("reference/compressor.cu", include_str!("../cuda/reference/compressor.cu")),
    ("reference/golden.cuh", include_str!("../cuda/reference/golden.cuh")),
    ("reference/golden_attend.cu", include_str!("../cuda/reference/golden_attend.cu")),
    ("reference/golden_decode.cu", include_str!("../cuda/reference/golden_decode.cu")),
    ("reference/golden_experts.cu", include_str!("../cuda/reference/golden_experts.cu")),
    ("reference/golden_linear.cu", include_str!("../cuda/reference/golden_linear.cu")),
    ("reference/golden_linear_tiled.cu", include_str!("../cuda/reference/golden_linear_tiled.cu")),
    ("reference/golden_rows.cu", include_str!("../cuda/reference/golden_rows.cu")),
    ("reference/golden_routed.cu", include_str!("../cuda/reference/golden_routed.cu")),
    ("reference/golden_sketch.cu", include_str!("../cuda/reference/golden_sketch.cu")),
    ("reference/golden_split.cu", include_str!("../cuda/reference/golden_split.cu")),
    ("reference/grouped_fp4.cu", include_str!("../cuda/reference/grouped_fp4.cu")),
    ("reference/index.cu", include_str!("../cuda/reference/index.cu")),
    ("reference/mhc.cu", include_str!("../cuda/reference/mhc.cu")),
    ("reference/sparse_mla.cu", include_str!("../cuda/reference/sparse_mla.cu")),
    ("reference/split_gemm.cu", include_str!("../cuda/reference/split_gemm.cu")),
];

/// Paths under `cuda/` and their texts.
pub fn sources() -> impl Iterator<Item = (&'static str, &'static str)> {
    SOURCES.iter().copied()
}

/// A source as the compiler gets it: own headers, which lie in the same folder, are put in their places, so that no include
/// path matters.
///
/// # Errors
/// A file that this program doesn't hold, or an include that leaves its folder.
pub(crate) fn expanded(path: &str) -> Result<String> {
    let text = SOURCES.iter().find(|(name, _)| *name == path).map(|(_, text)| *text);
    let text = text.ok_or_else(|| Error::input("is no CUDA source of this program").at(path))?;
    let folder = path.split_once('/').map_or("", |(folder, _)| folder);
    let mut out = String::new();
    for line in text.lines() {
        match line.trim().strip_prefix("#include") {
            Some(rest) => {
                let name = rest.trim().trim_matches('"');
                if name.contains(['/', '<']) {
                    return Err(Error::input(format!("includes {name}, from outside its folder")).at(path));
                }
                out.push_str(&expanded(&format!("{folder}/{name}"))?);
            }
            None if line.trim() == "#pragma once" => {}
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    Ok(out)
}

/// Sha256 of all that decides an image's bytes but the chip: source with headers, options, compiler version.
///
/// # Errors
/// As for the source.
pub fn digest(image: &Image, compiler: &str) -> Result<String> {
    let mut hash = Sha256::new();
    for part in [expanded(&image.source)?, image.options().join("\n"), compiler.to_string()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    Ok(hex(&hash.finalize()))
}

/// Images that a run `had` and that are others `now`, and those that are `needed` and that it had not, in words. Golden's bits are
/// what the suite's part `golden` shows for every image of golden: a run of another part holds while what it had is as it was,
/// whatever came to golden since.
pub(crate) fn changed(
    had: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
    needed: impl Fn(&str) -> bool,
) -> Vec<String> {
    let other = had.iter().filter(|(name, digest)| now.get(*name) != Some(*digest)).map(|(name, _)| name);
    let missing = now.keys().filter(|name| !had.contains_key(*name) && (had.is_empty() || needed(name)));
    let said = |name: &String| format!("{name}: its source, options or compiler changed since the run");
    other.chain(missing).map(said).collect()
}

/// Key of an image for one chip.
pub(crate) fn key(image: &Image, arch: &str, compiler: &str) -> Result<String> {
    Ok(sha256(format!("{}\n{arch}", digest(image, compiler)?).as_bytes()))
}

/// Sha256 of bytes, in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|d| char::from(b"0123456789abcdef"[usize::from(d)])).collect()
}

#[cfg(test)]
mod tests;
