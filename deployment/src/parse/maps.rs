//! `/proc/PID/maps`: the libraries that a running process has loaded. Python sources are read, not mapped.

use karat_model::Result;

use crate::evidence::{Evidence, Kind};
use crate::facts::Facts;

/// Parts of the names of kernel libraries that are worth naming.
const LIBRARIES: &[&str] = &["sgl_kernel", "deep_gemm", "flashinfer", "flash_mla", "flashmla", "sparse_mla"];

#[expect(clippy::unnecessary_wraps, reason = "the signature of every reader")]
pub(super) fn read(label: &str, text: &str, facts: &mut Facts) -> Result<()> {
    let mut seen: Vec<&str> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let Some(at) = line.find('/') else { continue };
        let path = &line[at..];
        let is_library = path.contains(".so") && LIBRARIES.iter().any(|l| path.contains(l));
        if is_library && !seen.contains(&path) {
            seen.push(path);
            let gone = if path.ends_with(" (deleted)") { ", which has been replaced on disk since" } else { "" };
            let text = format!("a kernel library that the process has loaded{gone}");
            facts.note(&text, Some(Evidence::new(Kind::Maps, label, i + 1, path)));
        }
    }
    Ok(())
}
