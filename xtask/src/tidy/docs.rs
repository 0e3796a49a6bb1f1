//! Rules that keep ARCHITECTURE.md true and short.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::Tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Most lines ARCHITECTURE.md may have: it is read whole or not at all.
const MAX_LINES: usize = 200;

/// The code map names every crate's folder, and no other. Its entries start a line with `**name/**` in backquotes.
pub(super) fn code_map(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(ARCHITECTURE) else { return vec![Finding::new(ARCHITECTURE, "is missing")] };
    let entry = |line: &str| line.strip_prefix("**`")?.split_once("/`**").map(|(folder, _)| folder.to_string());
    let mapped: BTreeSet<String> = text.lines().filter_map(entry).collect();
    let folders: BTreeSet<String> = tree.packages.iter().map(|p| p.folder.clone()).collect();
    let missing = folders.difference(&mapped).map(|f| Finding::new(ARCHITECTURE, format!("the code map lacks {f}/")));
    let stale = mapped
        .difference(&folders)
        .map(|f| Finding::new(ARCHITECTURE, format!("the code map names {f}/, which is no crate")));
    missing.chain(stale).collect()
}

/// ARCHITECTURE.md stays short.
pub(super) fn architecture_length(tree: &Tree) -> Vec<Finding> {
    let count = tree.text(ARCHITECTURE).map_or(0, |text| text.lines().count());
    if count < MAX_LINES {
        Vec::new()
    } else {
        vec![Finding::new(ARCHITECTURE, format!("has {count} lines: under {MAX_LINES}"))]
    }
}
