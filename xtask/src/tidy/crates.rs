//! Rules on who may depend on whom.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::tree::{Package, Tree, When};

/// The only crates of ours that both paths may stand on. They hold facts and types, no arithmetic of the forward pass.
const COMMON: &[&str] = &["karat-model", "karat-seam"];

/// Crates whose job is matrix products. A product both paths share would be a common mode, so only the optimized path
/// may have one. (ndarray carries `matrixmultiply`; `reference-sums-itself` sees to it that reference doesn't call it.)
const GEMM: &[&str] =
    &["blas-src", "candle-core", "cblas", "cubecl", "faer", "gemm", "matrixmultiply", "nalgebra", "openblas-src"];

/// Third-party crates that each crate may use beyond its tests. A new one is a decision, written down here.
const ALLOWED: &[(&str, &[&str])] = &[
    ("audit", &["rayon", "serde", "serde_json", "sha2", "thiserror"]),
    ("bundle", &["csv", "serde", "serde_json", "sha2", "tempfile", "thiserror", "toml"]),
    ("cli", &["anyhow", "clap", "ctrlc", "indicatif", "rayon", "serde", "serde_json", "sha2", "tempfile"]),
    ("deployment", &["serde", "serde_json", "toml"]),
    ("diff", &["half", "libm", "rayon", "thiserror"]),
    ("endpoint", &["serde", "serde_json", "toml", "ureq"]),
    ("faults", &["serde_json"]),
    ("golden", &[]),
    ("golden-data", &["anyhow", "clap", "rayon", "serde_json", "tokenizers"]),
    ("kernels", &["cudarc", "half", "libloading", "serde", "serde_json", "sha2", "toml"]),
    (
        "model",
        &[
            "bytemuck",
            "half",
            "libc",
            "memmap2",
            "rand_pcg",
            "rayon",
            "safetensors",
            "serde",
            "serde_json",
            "sha2",
            "thiserror",
            "tokenizers",
        ],
    ),
    ("optimized", &["gemm", "half", "rayon", "serde", "sha2", "thiserror"]),
    ("reference", &["libm", "ndarray", "rayon", "sha2", "thiserror"]),
    ("reports", &["maud", "plotters"]),
    ("scenarios", &["flate2", "serde", "serde_json", "thiserror", "toml"]),
    ("seam", &["rayon", "thiserror"]),
    ("tests", &["flate2", "safetensors", "serde_json", "sha2"]),
    (
        "trace",
        &[
            "bytemuck",
            "flate2",
            "half",
            "libc",
            "memmap2",
            "rayon",
            "safetensors",
            "serde",
            "serde_json",
            "sha2",
            "thiserror",
            "toml",
        ],
    ),
    ("xtask", &["anyhow", "cargo_metadata", "clap", "serde", "serde_json", "sha2", "toml"]),
];

/// Third-party crates that any crate's tests and benches may use.
const ALLOWED_IN_TESTS: &[&str] = &[
    "criterion",
    "flate2",
    "float8",
    "half",
    "insta",
    "proptest",
    "proptest-state-machine",
    "rayon",
    "safetensors",
    "serde_json",
    "sha2",
    "tempfile",
];

/// Packages whose use in a build script means that a C compiler runs.
const C_BUILDERS: &[&str] = &["bindgen", "cc", "cmake", "pkg-config"];

fn ours(name: &str) -> bool {
    name.starts_with("karat-")
}

/// Our crates that `start` stands on: everything it declares (its tests included), then what those need to be built.
fn reach(tree: &Tree, start: &str, tests_too: bool) -> BTreeSet<String> {
    let by_name: BTreeMap<&str, &Package> = tree.packages.iter().map(|p| (p.name.as_str(), p)).collect();
    let mut seen = BTreeSet::new();
    let mut open = vec![(start.to_string(), tests_too)];
    while let Some((name, with_tests)) = open.pop() {
        for (dep, when) in by_name.get(name.as_str()).map_or(&[][..], |p| &p.deps) {
            if ours(dep) && (with_tests || *when == When::Always) && seen.insert(dep.clone()) {
                open.push((dep.clone(), false));
            }
        }
    }
    seen
}

/// `reference` and `optimized` never depend on each other, and all they have in common is facts and types.
pub(super) fn two_paths_apart(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (from, to) in [("karat-reference", "karat-optimized"), ("karat-optimized", "karat-reference")] {
        if reach(tree, from, true).contains(to) {
            out.push(Finding::new(
                from,
                format!("depends on {to}, perhaps through another crate: the two paths stay apart"),
            ));
        }
    }
    let optimized = reach(tree, "karat-optimized", false);
    for shared in reach(tree, "karat-reference", false).intersection(&optimized) {
        if !COMMON.contains(&shared.as_str()) {
            out.push(Finding::new(shared, "both paths stand on it: only model and seam may be common to them"));
        }
    }
    out
}

/// Neither path, nor what both stand on, knows who measures and judges it.
pub(super) fn paths_know_no_judge(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for path in ["karat-reference", "karat-optimized", "karat-model", "karat-seam", "karat-trace"] {
        let seen = reach(tree, path, true);
        for judge in ["karat-diff", "karat-audit", "karat-bundle"] {
            if seen.contains(judge) {
                out.push(Finding::new(path, format!("depends on {judge}, which judges it")));
            }
        }
    }
    out
}

/// `reports` reads bundles and nothing else of ours.
pub(super) fn reports_read_bundles(tree: &Tree) -> Vec<Finding> {
    let others = reach(tree, "karat-reports", false).into_iter().filter(|name| name != "karat-bundle");
    others.map(|name| Finding::new("karat-reports", format!("depends on {name}: it reads bundles only"))).collect()
}

/// Nothing but `kernels` sees cudarc.
pub(super) fn cudarc_in_kernels(tree: &Tree) -> Vec<Finding> {
    only_in(tree, |dep| dep == "cudarc", "kernels")
}

/// A GEMM crate may serve `optimized` only.
pub(super) fn gemm_in_optimized(tree: &Tree) -> Vec<Finding> {
    only_in(tree, |dep| GEMM.contains(&dep), "optimized")
}

fn only_in(tree: &Tree, watched: impl Fn(&str) -> bool, folder: &str) -> Vec<Finding> {
    let mut out = Vec::new();
    for package in tree.packages.iter().filter(|p| p.folder != folder) {
        for (dep, _) in package.deps.iter().filter(|(dep, _)| watched(dep)) {
            out.push(Finding::new(&package.name, format!("depends on {dep}: only {folder} may")));
        }
    }
    out
}

/// The shipped binary holds no seeded faults; only tests and automation depend on them.
pub(super) fn no_faults_shipped(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for package in &tree.packages {
        let serves_tests = package.folder == "tests" || package.folder == "xtask";
        if !serves_tests && reach(tree, &package.name, false).contains("karat-faults") {
            out.push(Finding::new(&package.name, "depends on karat-faults outside its tests"));
        }
    }
    out
}

/// Every third-party dependency is one that somebody decided on.
pub(super) fn allowed_dependencies(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for package in &tree.packages {
        let Some((_, allowed)) = ALLOWED.iter().find(|(folder, _)| *folder == package.folder) else {
            out.push(Finding::new(&package.name, "has no row in ALLOWED (xtask/src/tidy/crates.rs)"));
            continue;
        };
        for (dep, when) in package.deps.iter().filter(|(dep, _)| !ours(dep)) {
            let fine =
                allowed.contains(&dep.as_str()) || (*when == When::Tests && ALLOWED_IN_TESTS.contains(&dep.as_str()));
            if !fine {
                out.push(Finding::new(&package.name, format!("depends on {dep}, which its allow-list doesn't name")));
            }
        }
    }
    out
}

/// No C source is compiled for the shipped binary. `cargo xtask ci` also builds it without a C compiler.
pub(super) fn no_c_compiler(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut seen = BTreeSet::new();
    let mut open = vec!["karat-cli"];
    while let Some(name) = open.pop() {
        for dep in tree.resolved.get(name).into_iter().flatten() {
            let bare = dep.split(' ').next().unwrap_or(dep);
            if C_BUILDERS.contains(&bare) {
                out.push(Finding::new(name, format!("builds with {bare}: the default features compile no C")));
            } else if seen.insert(dep) {
                open.push(dep);
            }
        }
    }
    out
}

/// Every manifest takes the workspace's lints and versions, and is named after its folder.
pub(super) fn manifests(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for package in &tree.packages {
        let mut wrong = |what: String| out.push(Finding::new(format!("{}/Cargo.toml", package.folder), what));
        if package.name != format!("karat-{}", package.folder) {
            wrong(format!("package {} should be karat-{}", package.name, package.folder));
        }
        let table: toml::Table = match package.manifest.parse() {
            Ok(table) => table,
            Err(e) => {
                wrong(format!("is no TOML: {e}"));
                continue;
            }
        };
        let from_workspace = |v: &toml::Value| v.get("workspace").and_then(toml::Value::as_bool) == Some(true);
        if !table.get("lints").is_some_and(from_workspace) {
            wrong("lacks `[lints] workspace = true`".to_string());
        }
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (dep, value) in table.get(section).and_then(toml::Value::as_table).into_iter().flatten() {
                if !from_workspace(value) {
                    wrong(format!("{section}.{dep} has a version of its own: versions live in the root Cargo.toml"));
                }
            }
        }
    }
    out
}
