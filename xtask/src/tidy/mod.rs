//! The workspace's own rules. Each rule is one function from the tree to what breaks it, so that tests can seed faults.

mod crates;
mod docs;
mod lex;
mod sources;
#[cfg(test)]
mod tests;
mod text;
mod tree;

use std::path::Path;

use anyhow::{Result, bail};

use tree::Tree;

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    /// Crate, or file and line.
    place: String,
    /// What is wrong there, and what to do.
    what: String,
}

impl Finding {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }
}

type Rule = fn(&Tree) -> Vec<Finding>;

/// Every rule with its name.
const RULES: &[(&str, Rule)] = &[
    ("two-paths-apart", crates::two_paths_apart),
    ("paths-know-no-judge", crates::paths_know_no_judge),
    ("reports-read-bundles", crates::reports_read_bundles),
    ("cudarc-in-kernels", crates::cudarc_in_kernels),
    ("gemm-in-optimized", crates::gemm_in_optimized),
    ("no-faults-shipped", crates::no_faults_shipped),
    ("allowed-dependencies", crates::allowed_dependencies),
    ("no-c-compiler", crates::no_c_compiler),
    ("manifests", crates::manifests),
    ("reference-decodes-itself", sources::reference_decodes_itself),
    ("reference-sums-itself", sources::reference_sums_itself),
    ("model-without-float-maths", sources::model_without_float_maths),
    ("unsafe-in-listed-files", sources::unsafe_in_listed_files),
    ("no-print", sources::no_print),
    ("ignored-with-reason", sources::ignored_with_reason),
    ("expect-with-reason", sources::expect_with_reason),
    ("nothing-left-open", sources::nothing_left_open),
    ("file-length", text::file_length),
    ("no-machine-paths", text::no_machine_paths),
    ("no-registry-hosts", text::no_registry_hosts),
    ("white-space", text::white_space),
    ("code-map", docs::code_map),
    ("architecture-length", docs::architecture_length),
];

/// Runs every rule over the workspace and prints what is broken.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    let mut broken = 0;
    for (name, rule) in RULES {
        for finding in rule(&tree) {
            eprintln!("tidy: {name}: {}: {}", finding.place, finding.what);
            broken += 1;
        }
    }
    if broken > 0 {
        bail!("tidy: {broken} finding{} in {} files", if broken == 1 { "" } else { "s" }, tree.files.len());
    }
    println!("tidy: {} rules hold over {} crates and {} files", RULES.len(), tree.packages.len(), tree.files.len());
    Ok(())
}
