//! What the rules look at: crates, their dependencies and the texts under version control.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// When a dependency is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// For the crate itself or its build script.
    Always,
    /// For its tests and benches.
    Tests,
}

/// A crate of this workspace.
#[derive(Debug, Clone, Default)]
pub(super) struct Package {
    /// Folder under the root; the package is named `karat-<folder>`.
    pub(super) folder: String,
    /// Package name.
    pub(super) name: String,
    /// Names of the packages that it declares, optional ones included.
    pub(super) deps: Vec<(String, When)>,
    /// Text of its Cargo.toml.
    pub(super) manifest: String,
}

/// A text file under version control (or new and not ignored).
#[derive(Debug, Clone)]
pub(super) struct File {
    /// Path from the root, with `/`.
    pub(super) path: String,
    /// Its text.
    pub(super) text: String,
}

/// Everything that a rule may ask.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    /// Crates of this workspace.
    pub(super) packages: Vec<Package>,
    /// Text files.
    pub(super) files: Vec<File>,
    /// Resolved graph of this platform: package to what its build needs (features as the workspace asks for them).
    pub(super) resolved: BTreeMap<String, Vec<String>>,
}

impl Tree {
    /// The text of a file, if the tree has it.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|f| f.path == path).map(|f| f.text.as_str())
    }

    /// Reads the workspace at `root`.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let host = host()?;
        let metadata = MetadataCommand::new()
            .current_dir(root)
            .other_options(["--locked".to_string(), "--filter-platform".to_string(), host])
            .exec()
            .context("cargo metadata failed")?;
        Ok(Self { packages: packages(&metadata)?, files: files(root)?, resolved: resolved(&metadata) })
    }
}

fn host() -> Result<String> {
    let said = Command::new("rustc").arg("-vV").output().context("failed to run rustc -vV")?;
    let text = String::from_utf8_lossy(&said.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_string())
}

fn packages(metadata: &Metadata) -> Result<Vec<Package>> {
    let mut out = Vec::new();
    for package in metadata.workspace_packages() {
        let folder = package.manifest_path.parent().and_then(|p| p.file_name()).unwrap_or_default().to_string();
        let manifest = std::fs::read_to_string(&package.manifest_path)
            .with_context(|| format!("failed to read {}", package.manifest_path))?;
        let when = |kind| if kind == DependencyKind::Development { When::Tests } else { When::Always };
        let deps = package.dependencies.iter().map(|d| (d.name.clone(), when(d.kind))).collect();
        out.push(Package { folder, name: package.name.to_string(), deps, manifest });
    }
    Ok(out)
}

fn resolved(metadata: &Metadata) -> BTreeMap<String, Vec<String>> {
    let name = |id| {
        let package = &metadata[id];
        // Two versions of one crate are two nodes; ours have one version and keep the bare name.
        if package.source.is_none() {
            package.name.to_string()
        } else {
            format!("{} {}", package.name, package.version)
        }
    };
    let mut out = BTreeMap::new();
    for node in metadata.resolve.iter().flat_map(|r| &r.nodes) {
        let needs = |d: &&cargo_metadata::NodeDep| d.dep_kinds.iter().any(|k| k.kind != DependencyKind::Development);
        out.insert(name(&node.id), node.deps.iter().filter(needs).map(|d| name(&d.pkg)).collect());
    }
    out
}

fn files(root: &Path) -> Result<Vec<File>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("failed to run git ls-files")?;
    if !listed.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr).trim());
    }
    let mut out = Vec::new();
    for path in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|p| !p.is_empty()) {
        // Deleted but still indexed, or not text: nothing to read.
        let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            out.push(File { path: path.to_string(), text });
        }
    }
    Ok(out)
}
