//! Rules on Rust sources, told by tokens so that comments and strings don't count.

use super::Finding;
use super::lex::{Kind, Token, tokens};
use super::tree::{File, Tree};

/// Files that may hold `unsafe`. Their names say what for: vector loops, or a mapped file.
pub(super) const UNSAFE: &[&str] = &[
    "diff/examples/peer_diff/simd_probe.rs",
    "diff/src/moments/simd.rs",
    "diff/src/quad/simd.rs",
    "diff/src/quad/simd_512.rs",
    "diff/src/simd_call.rs",
    "diff/src/split/simd.rs",
    "kernels/src/cuda/ceiling.rs",
    "kernels/src/cuda/compare.rs",
    "kernels/src/cuda/compare/tests.rs",
    "kernels/src/cuda/compressor.rs",
    "kernels/src/cuda/device.rs",
    "kernels/src/cuda/device/tests.rs",
    "kernels/src/cuda/gemm.rs",
    "kernels/src/cuda/index.rs",
    "kernels/src/cuda/mhc.rs",
    "kernels/src/cuda/mla.rs",
    "kernels/src/cuda/mma_probe.rs",
    "kernels/src/cuda/moe.rs",
    "kernels/src/cuda/nccl.rs",
    "kernels/src/cuda/nvrtc.rs",
    "kernels/src/cuda/ways.rs",
    "kernels/src/cuda/ways/tests.rs",
    "kernels/src/golden/cuda.rs",
    "kernels/src/golden/experts.rs",
    "kernels/src/golden/ops.rs",
    "kernels/src/golden/run.rs",
    "kernels/src/golden/sketch.rs",
    "kernels/src/golden/split.rs",
    "kernels/src/golden/tests/host.rs",
    "kernels/src/golden/tests/split.rs",
    "kernels/src/golden/tests/stored.rs",
    "kernels/src/golden/weights.rs",
    "model/src/checkpoint/source/mmap.rs",
    "optimized/src/arith/simd_call.rs",
    "optimized/src/arith/simd_dot.rs",
    "optimized/src/arith/simd_panels.rs",
    "reference/src/linalg/simd.rs",
    "reference/src/linalg/simd_bits.rs",
    "reference/src/linalg/simd_chain.rs",
    "reference/src/linalg/simd_vector.rs",
    "trace/src/mmap.rs",
    "trace/src/sketch/simd_row.rs",
];

/// What `reference` may name of karat_model: facts and errors. Anything else could bring arithmetic along.
const FACTS: &[&str] = &["Checkpoint", "Config", "Error", "ErrorKind", "Result", "checkpoint", "config"];

/// What reference's tests may name besides: how to make a model to run.
const FACTS_IN_TESTS: &[&str] = &["Geometry", "new", "new_model", "prompt"];

/// Parts of model where float maths is at home: the formats, the maker of seeded weights, and the tools that judge a
/// checkpoint. `reference` can name none of them (see `reference_decodes_itself`). And one file of the config, which
/// turns partial_rotary_factor times head_dim into a whole number of dims: a fact, in the common-mode register.
const FLOAT_MATHS: &[&str] =
    &["model/src/config/rope/", "model/src/diff/", "model/src/formats/", "model/src/new/", "model/src/verify/"];

/// Float functions and conversions; integers don't have them.
const FLOAT_METHODS: &[&str] = &[
    "ceil", "cos", "exp", "exp2", "floor", "ln", "log10", "log2", "mul_add", "powf", "powi", "recip", "round", "sin",
    "sqrt", "tanh", "trunc",
];

fn rust<'a>(tree: &'a Tree, under: &'a str) -> impl Iterator<Item = &'a File> {
    tree.files.iter().filter(move |f| is_rust(&f.path) && f.path.starts_with(under))
}

fn is_rust(path: &str) -> bool {
    std::path::Path::new(path).extension().is_some_and(|e| e == "rs")
}

fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs") || path.split('/').any(|part| part == "tests" || part == "benches")
}

fn at(file: &File, token: &Token) -> String {
    format!("{}:{}", file.path, token.line)
}

/// `reference` has its own decoders: it never names karat_model's formats, nor any part of it beyond facts and errors.
pub(super) fn reference_decodes_itself(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for file in rust(tree, "reference/") {
        let all = tokens(&file.text);
        for (i, token) in all.iter().enumerate() {
            if token.is("formats") {
                out.push(Finding::new(at(file, token), "names `formats`: reference has its own decoders"));
            }
            if token.is("karat_model") {
                for name in names_taken(&all[i + 1..]) {
                    let fine = FACTS.contains(&name.as_str())
                        || (is_test(&file.path) && FACTS_IN_TESTS.contains(&name.as_str()))
                        || name == "formats";
                    if !fine {
                        let what =
                            format!("takes `{name}` of karat_model: reference may take only {}", FACTS.join(", "));
                        out.push(Finding::new(at(file, token), what));
                    }
                }
            }
        }
    }
    for file in rust(tree, "model/src/").filter(|f| !f.path.starts_with("model/src/formats/")) {
        let all = tokens(&file.text);
        for (i, token) in all.iter().enumerate().filter(|(_, t)| t.is("pub")) {
            let statement = all[i..].iter().take_while(|t| !t.punct(';') && !t.punct('{'));
            if all.get(i + 1).is_some_and(|t| t.is("use")) && statement.clone().any(|t| t.is("formats")) {
                out.push(Finding::new(at(file, token), "hands formats on under another name"));
            }
        }
    }
    out
}

/// First path segments taken of a crate, given the tokens after its name: `::a::b`, `::{a, b::c}`, `::*`, `as x`.
fn names_taken(after: &[Token]) -> Vec<String> {
    if after.first().is_some_and(|t| t.is("as")) {
        return vec!["as".to_string()];
    }
    if !(after.len() > 2 && after[0].punct(':') && after[1].punct(':')) {
        return Vec::new();
    }
    let one = |t: &Token| match &t.kind {
        Kind::Ident(name) => name.clone(),
        Kind::Punct(c) => c.to_string(),
        _ => "?".to_string(),
    };
    if !after[2].punct('{') {
        return vec![one(&after[2])];
    }
    let mut out = Vec::new();
    let mut depth = 1;
    let mut first = true;
    for token in &after[3..] {
        match token.kind {
            Kind::Punct('{') => depth += 1,
            Kind::Punct('}') => depth -= 1,
            Kind::Punct(',') if depth == 1 => first = true,
            _ if first && depth == 1 => {
                out.push(one(token));
                first = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    out
}

/// `reference` writes its sums and products itself: none through ndarray, whose products are a GEMM crate's.
pub(super) fn reference_sums_itself(tree: &Tree) -> Vec<Finding> {
    const SUMS: &[&str] = &["dot", "general_mat_mul", "general_mat_vec_mul", "kron", "mean_axis", "sum_axis"];
    let mut out = Vec::new();
    for file in rust(tree, "reference/") {
        let all = tokens(&file.text);
        if !all.iter().any(|t| t.is("ndarray")) {
            continue;
        }
        for token in all.iter().filter(|t| t.ident().is_some_and(|name| SUMS.contains(&name))) {
            out.push(Finding::new(at(file, token), "sums through ndarray: golden arithmetic has its own order"));
        }
    }
    out
}

/// What `reference` can reach in `model` holds no float maths, so the two paths share none.
pub(super) fn model_without_float_maths(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for file in rust(tree, "model/src/") {
        let at_home =
            |part: &str| file.path.starts_with(part) || file.path.strip_suffix(".rs") == part.strip_suffix('/');
        if is_test(&file.path) || FLOAT_MATHS.iter().any(|part| at_home(part)) {
            continue;
        }
        let all = tokens(&file.text);
        for (i, token) in all.iter().enumerate() {
            let before = i.checked_sub(1).map(|j| &all[j]);
            let after = all.get(i + 1);
            let what = match &token.kind {
                Kind::Ident(name) if matches!(name.as_str(), "half" | "bf16" | "f16" | "libm") => "names a float crate",
                Kind::Ident(name) if matches!(name.as_str(), "f32" | "f64") && before.is_some_and(|t| t.is("as")) => {
                    "casts to a float"
                }
                Kind::Ident(name)
                    if FLOAT_METHODS.contains(&name.as_str())
                        && before.is_some_and(|t| t.punct('.') || t.punct(':'))
                        && after.is_some_and(|t| t.punct('(')) =>
                {
                    "calls a float function"
                }
                Kind::Number(n)
                    if is_float(n) && (operator(before, all.get(i.wrapping_sub(2))) || operator(after, None)) =>
                {
                    "computes with floats"
                }
                _ => continue,
            };
            out.push(Finding::new(at(file, token), format!("{what}: float maths lives in model/src/formats/ only")));
        }
    }
    out
}

fn is_float(number: &str) -> bool {
    let radix = number.starts_with("0x") || number.starts_with("0b") || number.starts_with("0o");
    !radix && (number.contains(['.', 'e', 'E']) || number.ends_with("f32") || number.ends_with("f64"))
}

/// True for an arithmetic operator; a minus counts only when something to subtract from stands before it.
fn operator(token: Option<&Token>, before: Option<&Token>) -> bool {
    let Some(token) = token else { return false };
    let value = |t: &Token| matches!(t.kind, Kind::Ident(_) | Kind::Number(_)) || t.punct(')') || t.punct(']');
    match token.kind {
        Kind::Punct('+' | '*' | '/' | '%') => true,
        Kind::Punct('-') => before.is_none_or(value),
        _ => false,
    }
}

/// `unsafe` stands only in files that are listed, and every listed file needs it.
pub(super) fn unsafe_in_listed_files(tree: &Tree) -> Vec<Finding> {
    unsafe_outside(tree, UNSAFE)
}

pub(super) fn unsafe_outside(tree: &Tree, listed: &[&str]) -> Vec<Finding> {
    let mut out = Vec::new();
    for path in listed {
        let name = path.rsplit('/').next().unwrap_or(path);
        let named = (name.starts_with("simd") && is_rust(name)) || name == "mmap.rs" || path.starts_with("kernels/");
        if !named {
            out.push(Finding::new(*path, "is listed for unsafe but named neither simd*.rs nor mmap.rs"));
        }
        if !tree.text(path).is_some_and(|text| tokens(text).iter().any(|t| t.is("unsafe"))) {
            out.push(Finding::new(*path, "is listed for unsafe but has none"));
        }
    }
    for file in rust(tree, "").filter(|f| !listed.contains(&f.path.as_str())) {
        for token in tokens(&file.text).iter().filter(|t| t.is("unsafe")) {
            out.push(Finding::new(at(file, token), "unsafe outside the files listed in xtask/src/tidy/sources.rs"));
        }
    }
    out
}

/// Only binaries print: the program, the automation, the maker of training data, examples; and tests, which report what they
/// measured.
pub(super) fn no_print(tree: &Tree) -> Vec<Finding> {
    const PRINTS: &[&str] = &["dbg", "eprint", "eprintln", "print", "println"];
    const BINARIES: &[&str] = &[
        "cli/",
        "diff/src/bin/",
        "golden-data/src/main.rs",
        "kernels/src/bin/",
        "reference/src/bin/",
        "trace/src/bin/",
        "xtask/",
    ];
    let mut out = Vec::new();
    let is_binary = |path: &str| BINARIES.iter().any(|binary| path.starts_with(binary)) || path.contains("/examples/");
    let may_print = |path: &str| is_test(path) || is_binary(path);
    for file in rust(tree, "").filter(|f| !may_print(&f.path)) {
        for pair in tokens(&file.text).windows(2) {
            if pair[1].punct('!') && pair[0].ident().is_some_and(|name| PRINTS.contains(&name)) {
                out.push(Finding::new(at(file, &pair[0]), "prints: only binaries and tests do"));
            }
        }
    }
    out
}

/// Every ignored test says why.
pub(super) fn ignored_with_reason(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for file in rust(tree, "") {
        let all = tokens(&file.text);
        for (i, token) in all.iter().enumerate().filter(|(_, t)| t.is("ignore")) {
            // `#[ignore]`, or inside `#[cfg_attr(.., ignore)]`; anything else of that name is no attribute.
            let attribute = i > 0 && (all[i - 1].punct('[') || all[i - 1].punct(',')) && in_attribute(&all[..i]);
            let reason = all.get(i + 1).is_some_and(|t| t.punct('='))
                && matches!(all.get(i + 2).map(|t| &t.kind), Some(Kind::Text(why)) if !why.trim().is_empty());
            if attribute && !reason {
                out.push(Finding::new(at(file, token), "an ignored test without a reason"));
            }
        }
    }
    out
}

/// True when the tokens end inside an open `#[` .
fn in_attribute(before: &[Token]) -> bool {
    let mut depth = 0;
    for (i, token) in before.iter().enumerate().rev() {
        match token.kind {
            Kind::Punct(']') => depth += 1,
            Kind::Punct('[') if depth > 0 => depth -= 1,
            Kind::Punct('[') => return i > 0 && (before[i - 1].punct('#') || before[i - 1].punct('!')),
            Kind::Punct(';' | '{' | '}') => return false,
            _ => {}
        }
    }
    false
}

/// A lint is silenced by `expect` with a reason, so that the silence ends when its cause does.
pub(super) fn expect_with_reason(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for file in rust(tree, "") {
        let all = tokens(&file.text);
        for (i, token) in all.iter().enumerate() {
            let opens = all.get(i + 1).is_some_and(|t| t.punct('(')) && in_attribute(&all[..i]);
            if token.is("allow") && opens {
                out.push(Finding::new(at(file, token), "silences a lint with allow: use expect with a reason"));
            }
            let to_end = all[i..].iter().take_while(|t| !t.punct(']'));
            if token.is("expect") && opens && !to_end.clone().any(|t| t.is("reason")) {
                out.push(Finding::new(at(file, token), "expects a lint without a reason"));
            }
        }
    }
    out
}

/// No code says that it is unfinished.
pub(super) fn nothing_left_open(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for file in rust(tree, "") {
        for pair in tokens(&file.text).windows(2) {
            if pair[1].punct('!') && pair[0].ident().is_some_and(|name| matches!(name, "todo" | "unimplemented")) {
                out.push(Finding::new(at(file, &pair[0]), "is left open"));
            }
        }
    }
    out
}
