//! Every rule finds what breaks it, and leaves alone what only looks like it.

use super::RULES;
use super::tree::{File, Package, Tree, When};

const MANIFEST: &str = "[lints]\nworkspace = true\n";

fn package(folder: &str, deps: &[&str]) -> Package {
    // A dependency written `?name` is one of the tests only.
    let dep = |d: &&str| match d.strip_prefix('?') {
        Some(name) => (name.to_string(), When::Tests),
        None => ((*d).to_string(), When::Always),
    };
    Package {
        folder: folder.to_string(),
        name: format!("karat-{folder}"),
        deps: deps.iter().map(dep).collect(),
        manifest: MANIFEST.to_string(),
    }
}

fn crates(list: &[(&str, &[&str])]) -> Tree {
    Tree { packages: list.iter().map(|(folder, deps)| package(folder, deps)).collect(), ..Tree::default() }
}

fn files(list: &[(&str, &str)]) -> Tree {
    let file = |(path, text): &(&str, &str)| File { path: (*path).to_string(), text: (*text).to_string() };
    Tree { files: list.iter().map(file).collect(), ..Tree::default() }
}

fn file(path: &str, text: &str) -> Tree {
    files(&[(path, text)])
}

fn manifest(text: &str) -> Tree {
    let mut tree = crates(&[("model", &[])]);
    tree.packages[0].manifest = text.to_string();
    tree
}

fn resolved(list: &[(&str, &[&str])]) -> Tree {
    let edge = |(from, to): &(&str, &[&str])| ((*from).to_string(), to.iter().map(|t| (*t).to_string()).collect());
    Tree { resolved: list.iter().map(edge).collect(), ..Tree::default() }
}

fn mapped(text: &str) -> Tree {
    let mut tree = crates(&[("model", &[]), ("seam", &[])]);
    tree.files = file("ARCHITECTURE.md", text).files;
    tree
}

/// A line with a path of somebody's machine.
fn machine(folder: &str) -> String {
    format!("let p = \"/{folder}/x\";\n")
}

/// Rule, a tree that breaks it once, and words of the finding.
fn broken() -> Vec<(&'static str, Tree, &'static str)> {
    let long = "//\n".repeat(601);
    let reference = "reference/src/ops/norm.rs";
    vec![
        ("two-paths-apart", crates(&[("reference", &["karat-optimized"]), ("optimized", &[])]), "karat-reference"),
        ("two-paths-apart", crates(&[("optimized", &["?karat-reference"]), ("reference", &[])]), "karat-optimized"),
        (
            "two-paths-apart",
            crates(&[("reference", &["karat-a"]), ("a", &["karat-optimized"]), ("optimized", &[])]),
            "another",
        ),
        (
            "two-paths-apart",
            crates(&[("reference", &["karat-sums"]), ("optimized", &["karat-sums"]), ("sums", &[])]),
            "karat-sums",
        ),
        ("paths-know-no-judge", crates(&[("reference", &["?karat-diff"]), ("diff", &[])]), "karat-diff"),
        (
            "paths-know-no-judge",
            crates(&[("seam", &["karat-x"]), ("x", &["karat-bundle"]), ("bundle", &[])]),
            "karat-bundle",
        ),
        ("reports-read-bundles", crates(&[("reports", &["karat-bundle", "karat-model"])]), "karat-model"),
        ("cudarc-in-kernels", crates(&[("kernels", &["cudarc"]), ("optimized", &["cudarc"])]), "karat-optimized"),
        ("gemm-in-optimized", crates(&[("optimized", &["gemm"]), ("reference", &["gemm"])]), "karat-reference"),
        ("gemm-in-optimized", crates(&[("diff", &["?matrixmultiply"])]), "matrixmultiply"),
        (
            "no-faults-shipped",
            crates(&[("cli", &["karat-faults"]), ("faults", &[]), ("tests", &["karat-faults"])]),
            "karat-cli",
        ),
        ("allowed-dependencies", crates(&[("seam", &["serde"])]), "serde"),
        ("allowed-dependencies", crates(&[("seam", &["?reqwest"])]), "reqwest"),
        ("allowed-dependencies", crates(&[("unheard-of", &[])]), "no row"),
        ("no-c-compiler", resolved(&[("karat-cli", &["a 1.0.0"]), ("a 1.0.0", &["cc 1.2.0"])]), "a 1.0.0"),
        ("manifests", manifest(""), "lints"),
        ("manifests", manifest("[lints]\nworkspace = false\n"), "lints"),
        ("manifests", manifest("[lints]\nworkspace = true\n[dev-dependencies]\nserde = \"1\"\n"), "serde"),
        ("manifests", manifest("lints"), "TOML"),
        ("reference-decodes-itself", file(reference, "use karat_model::{Config, formats::e4m3};"), "decoders"),
        ("reference-decodes-itself", file(reference, "use karat_model as m;"), "takes `as`"),
        ("reference-decodes-itself", file(reference, "use karat_model::*;"), "takes `*`"),
        ("reference-decodes-itself", file(reference, "use karat_model::{Config, verify::{a, b}};"), "takes `verify`"),
        ("reference-decodes-itself", file(reference, "let x = karat_model::new_model(g, 1);"), "takes `new_model`"),
        ("reference-decodes-itself", file("reference/src/ops/tests.rs", "use karat_model::formats;"), "decoders"),
        ("reference-decodes-itself", file("model/src/lib.rs", "pub use crate::formats::e4m3 as x;"), "another name"),
        ("reference-sums-itself", file(reference, "use ndarray::Array2; fn f() { a.dot(&b) }"), ":1"),
        ("model-without-float-maths", file("model/src/config/yarn.rs", "let x = y * 0.5;"), "computes"),
        ("model-without-float-maths", file("model/src/config/yarn.rs", "let x = 1f32 / y;"), "computes"),
        ("model-without-float-maths", file("model/src/names.rs", "fn f(x: u8) -> f32 { x as f32 }"), "casts"),
        ("model-without-float-maths", file("model/src/checkpoint/mod.rs", "let y = x.exp();"), "function"),
        ("model-without-float-maths", file("model/src/checkpoint/mod.rs", "use half::bf16 as b;"), "float crate"),
        ("unsafe-in-listed-files", file("diff/src/lib.rs", "\n\nunsafe { f() }"), "diff/src/lib.rs:3"),
        ("no-print", file("audit/src/lib.rs", "println!(\"x\");"), "audit/src/lib.rs:1"),
        ("no-print", file("diff/src/a.rs", "dbg!(x);"), "prints"),
        ("ignored-with-reason", file("tests/it/a.rs", "#[test]\n#[ignore]\nfn f() {}"), ":2"),
        ("ignored-with-reason", file("tests/it/a.rs", "#[ignore = \" \"]\nfn f() {}"), "reason"),
        ("ignored-with-reason", file("tests/it/a.rs", "#[cfg_attr(not(unix), ignore)]\nfn f() {}"), "reason"),
        ("expect-with-reason", file("a/src/lib.rs", "#[allow(dead_code)]\nfn f() {}"), "allow"),
        ("expect-with-reason", file("a/src/lib.rs", "#![expect(dead_code)]\n"), "without a reason"),
        ("nothing-left-open", file("a/src/lib.rs", "fn f() { todo!() }"), "open"),
        ("file-length", file("a/src/lib.rs", &long), "601"),
        ("no-machine-paths", file("a.md", &machine(&("ho".to_string() + "me"))), "a folder"),
        ("no-machine-paths", file(".ci/run", &format!("cd /{}/x\n", "wo".to_string() + "rk")), "a folder"),
        ("no-registry-hosts", file("docs/a.md", &format!("see https://{}/x\n", ["pypi", "org"].join("."))), "pypi"),
        ("white-space", file("a.md", "two blanks  \n"), "a.md:1"),
        ("white-space", file("a.rs", "fn f() {\n\tx\n}\n"), "tab"),
        ("white-space", file("a.md", "x\r\n"), "carriage"),
        ("white-space", file("a.md", "x"), "line end"),
        ("white-space", file("a.md", "x\n\n"), "line end"),
        ("code-map", mapped("**`model/`** facts\n"), "lacks seam/"),
        ("code-map", mapped("**`model/`** facts\n**`seam/`** types\n**`gone/`** x\n"), "gone/"),
        ("code-map", crates(&[]), "missing"),
        ("architecture-length", file("ARCHITECTURE.md", &"x\n".repeat(200)), "200"),
    ]
}

/// Rule, and a tree that it must leave alone.
fn whole() -> Vec<(&'static str, Tree)> {
    let mut listed = files(&super::sources::UNSAFE.iter().map(|path| (*path, "unsafe {}")).collect::<Vec<_>>());
    let decoys = "// unsafe\nlet s = \"unsafe\"; #![deny(unsafe_op_in_unsafe_fn)]";
    listed.files.extend(file("diff/src/lib.rs", decoys).files);
    let both: &[&str] = &["karat-model", "karat-seam", "?karat-trace"];
    let trace: &[&str] = &["karat-model", "karat-seam"];
    let paths = || crates(&[("reference", both), ("optimized", both), ("trace", trace), ("model", &[]), ("seam", &[])]);
    vec![
        ("two-paths-apart", paths()),
        ("paths-know-no-judge", paths()),
        ("reports-read-bundles", crates(&[("reports", &["karat-bundle", "maud"])])),
        ("cudarc-in-kernels", crates(&[("kernels", &["cudarc"])])),
        ("gemm-in-optimized", crates(&[("reference", &["ndarray"]), ("optimized", &["gemm"])])),
        ("no-faults-shipped", crates(&[("xtask", &["karat-faults"]), ("audit", &["?karat-faults"]), ("faults", &[])])),
        ("allowed-dependencies", crates(&[("seam", &["thiserror", "?proptest", "karat-model"])])),
        ("no-c-compiler", resolved(&[("karat-cli", &["a 1.0.0"]), ("ring 0.17.0", &["cc 1.2.0"])])),
        ("manifests", manifest("[lints]\nworkspace = true\n[dependencies]\nserde.workspace = true\n")),
        (
            "reference-decodes-itself",
            file("reference/src/a.rs", "// formats\nuse karat_model::{Checkpoint, checkpoint::{Dtype, Weight}};"),
        ),
        ("reference-decodes-itself", file("reference/src/a/tests.rs", "use karat_model::{Geometry, new_model};")),
        ("reference-decodes-itself", file("model/src/verify/mod.rs", "use crate::formats; pub struct A { b: u8 }")),
        ("reference-sums-itself", file("reference/src/linalg/dot.rs", "fn dot() {} // ndarray")),
        (
            "model-without-float-maths",
            file("model/src/config/read.rs", "if x < 0.0 || x == -1.0 { return Err(e(1.0)) } let y = 2 * n;"),
        ),
        ("model-without-float-maths", file("model/src/formats/e4m3.rs", "let y = x * 0.5;")),
        ("model-without-float-maths", file("model/src/formats.rs", "let y = x * 0.5;")),
        ("model-without-float-maths", file("model/src/config/tests.rs", "let y = x * 0.5;")),
        ("unsafe-in-listed-files", listed),
        (
            "no-print",
            files(&[
                ("cli/src/main.rs", "println!(\"x\");"),
                ("tests/it/a.rs", "println!(\"x\");"),
                ("a/src/lib.rs", "writeln!(f, \"println!\")"),
            ]),
        ),
        (
            "ignored-with-reason",
            file("tests/it/a.rs", "#[ignore = \"slow\"]\nfn f(ignore: bool) { g(a, ignore); h([a, ignore]) }"),
        ),
        (
            "expect-with-reason",
            file("a/src/lib.rs", "#[expect(dead_code, reason = \"x\")]\nfn f() { x.expect(\"y\"); allow(z) }"),
        ),
        ("nothing-left-open", file("a/src/lib.rs", "// todo!()\nfn todo() {}")),
        ("file-length", file("Cargo.lock", &"x\n".repeat(5000))),
        ("no-machine-paths", file("scenarios/library/a.toml", &machine(&("ho".to_string() + "me")))),
        ("no-machine-paths", file("a.md", "docs/home/x and $OUT/tmp/x and work/\n")),
        ("no-registry-hosts", file("a.md", "crates.\nio\n")),
        ("white-space", files(&[("a.md", "x\n\ny\n"), ("tests/fixtures/a.json", "x \r\n")])),
        ("code-map", mapped("# x\n**`model/`** facts\n**`seam/`** types\n")),
        ("architecture-length", file("ARCHITECTURE.md", &"x\n".repeat(199))),
    ]
}

fn run(name: &str, tree: &Tree) -> Vec<super::Finding> {
    let (_, rule) = RULES.iter().find(|(rule, _)| *rule == name).unwrap_or_else(|| panic!("no rule is named {name}"));
    rule(tree)
}

#[test]
fn every_rule_finds_what_breaks_it() {
    for (i, (name, tree, words)) in broken().into_iter().enumerate() {
        let found = run(name, &tree);
        assert!(!found.is_empty(), "seed {i} of {name} ({words}) went unseen");
        let told = found.iter().any(|f| f.place.contains(words) || f.what.contains(words));
        assert!(told, "seed {i} of {name}: {words:?} isn't in {found:?}");
    }
}

#[test]
fn no_rule_cries_wolf() {
    for (name, tree) in whole() {
        assert_eq!(run(name, &tree), [], "{name}");
    }
}

#[test]
fn every_rule_has_a_seed_and_a_whole_tree() {
    let (broken, whole) = (broken(), whole());
    for (name, _) in RULES {
        assert!(broken.iter().any(|(seeded, _, _)| seeded == name), "no seeded fault for {name}");
        assert!(whole.iter().any(|(seeded, _)| seeded == name), "no whole tree for {name}");
    }
}

#[test]
fn a_listed_file_must_be_named_for_it_and_need_it() {
    let tree = files(&[("a/src/simd.rs", "unsafe {}"), ("a/src/mmap.rs", "// unsafe"), ("a/src/b.rs", "unsafe {}")]);
    let found = |listed: &[&str]| super::sources::unsafe_outside(&tree, listed).len();
    assert_eq!(found(&["a/src/simd.rs", "a/src/b.rs"]), 1, "b.rs has the wrong name");
    assert_eq!(found(&["a/src/simd.rs", "a/src/mmap.rs"]), 2, "mmap.rs needs none, b.rs isn't listed");
}
