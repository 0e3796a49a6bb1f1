//! Rules on every text under version control.

use super::Finding;
use super::tree::{File, Tree};

/// Longest source file.
const MAX_LINES: usize = 600;

/// Texts that aren't ours to format: written by cargo, or recorded from elsewhere.
fn foreign(file: &File) -> bool {
    // The trained model's files are data, byte for byte what its hashes say.
    let trained =
        file.path.starts_with("golden/") && std::path::Path::new(&file.path).extension().is_some_and(|e| e == "json");
    trained
        || file.path == "Cargo.lock"
        || file.path.starts_with("tests/fixtures/")
        || file.path.contains("/snapshots/")
}

fn source(path: &str) -> bool {
    let end = std::path::Path::new(path).extension().and_then(|e| e.to_str());
    matches!(end, Some("cu" | "cuh" | "py" | "rs" | "sh"))
}

fn lines(file: &File) -> impl Iterator<Item = (String, &str)> {
    file.text.split('\n').enumerate().map(|(i, line)| (format!("{}:{}", file.path, i + 1), line))
}

/// No source file is too long to read in one sitting.
pub(super) fn file_length(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for file in &tree.files {
        let count = file.text.lines().count();
        if source(&file.path) && count > MAX_LINES {
            out.push(Finding::new(&file.path, format!("has {count} lines: at most {MAX_LINES}")));
        }
    }
    out
}

/// No absolute path of somebody's machine.
pub(super) fn no_machine_paths(tree: &Tree) -> Vec<Finding> {
    // In pieces, so that this file doesn't break its own rule.
    let folders = ["wo-rk", "ro-ot", "ho-me", "fa-rm", "tm-p", "Us-ers"].map(|f| format!("/{}/", f.replace('-', "")));
    let home = &folders[2];
    let mut out = Vec::new();
    for file in tree.files.iter().filter(|f| !foreign(f)) {
        // Users and tools of a scenario talk about files; those of a home folder are anybody's.
        let in_a_conversation = file.path.starts_with("scenarios/library/");
        for (place, line) in lines(file) {
            for folder in folders.iter().filter(|f| !(in_a_conversation && *f == home)) {
                if line.match_indices(folder).any(|(i, _)| starts_a_path(line, i)) {
                    out.push(Finding::new(place.clone(), format!("names a folder under {folder}")));
                }
            }
        }
    }
    out
}

/// True unless the slash at `i` continues a relative path, as in `docs/home/`.
fn starts_a_path(line: &str, i: usize) -> bool {
    !line[..i].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | ')'))
}

/// No package registry is named by host: its client knows where it is.
pub(super) fn no_registry_hosts(tree: &Tree) -> Vec<Finding> {
    let hosts =
        ["crates-io", "pypi-org", "pythonhosted-org", "npmjs-com", "npmjs-org", "deb-debian-org", "proxy-golang-org"]
            .map(|host| host.replace('-', "."));
    let mut out = Vec::new();
    for file in tree.files.iter().filter(|f| f.path != "Cargo.lock") {
        for (place, line) in lines(file) {
            for host in hosts.iter().filter(|host| line.contains(host.as_str())) {
                out.push(Finding::new(place.clone(), format!("names the registry host {host}")));
            }
        }
    }
    out
}

/// No blanks at a line's end, no tabs in sources, no carriage returns, one line end at the end.
pub(super) fn white_space(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for file in tree.files.iter().filter(|f| !foreign(f)) {
        for (place, line) in lines(file) {
            if line.contains('\r') {
                out.push(Finding::new(place, "has a carriage return"));
            } else if line.ends_with([' ', '\t']) {
                out.push(Finding::new(place, "ends in white space"));
            } else if line.contains('\t') && source(&file.path) {
                out.push(Finding::new(place, "has a tab"));
            }
        }
        if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
            out.push(Finding::new(&file.path, "should end in one line end"));
        }
    }
    out
}
