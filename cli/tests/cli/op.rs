//! `karat op` as it is typed: kernels are files copied into place, and commands that go wrong.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize_to_file};
use serde_json::Value;

use crate::support::{karat, workplace};

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// f32 tensors of a file, and the constants in its metadata.
fn read(file: &Path) -> (Tensors, Value) {
    let bytes = std::fs::read(file).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let constants = metadata.metadata().as_ref().unwrap()["constants"].clone();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut out = Tensors::new();
    for (name, view) in file.tensors().into_iter().filter(|(_, view)| view.dtype() == Dtype::F32) {
        let values = view.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        out.insert(name, (view.shape().to_vec(), values));
    }
    (out, serde_json::from_str(&constants).unwrap())
}

fn write(file: &Path, name: &str, shape: &[usize], values: &[f32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let view = TensorView::new(Dtype::F32, shape.to_vec(), &bytes).unwrap();
    serialize_to_file([(name, view)], None, file).unwrap();
}

/// x / sqrt(mean(x²) + eps) · w by the spec's formula (2.4), in f64.
fn rms_norm(x: &[f32], w: &[f32], eps: f64) -> Vec<f32> {
    let mut out = Vec::new();
    for row in x.chunks_exact(w.len()) {
        let mean = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (mean + eps).sqrt();
        out.extend(row.iter().zip(w).map(|(v, w)| (f64::from(*v) * scale * f64::from(*w)) as f32));
    }
    out
}

/// A workplace with operands of attn.norm in `op.safetensors` and a right kernel's result in `good.safetensors`.
fn prepared() -> (tempfile::TempDir, Tensors) {
    let dir = workplace();
    let args = ["op", "attn.norm", "--model", "mini", "--rows", "20", "--save", "op.safetensors"];
    let ran = karat(dir.path(), &args).expect(0);
    assert!(ran.stdout.contains("nothing is judged"), "{}", ran.stdout);
    let (tensors, constants) = read(&dir.path().join("op.safetensors"));
    let ((shape, x), (_, w)) = (&tensors["operand.hc_attn.collapsed"], &tensors["weight.norm"]);
    let y = rms_norm(x, w, constants["rms_norm_eps"].as_f64().unwrap());
    write(&dir.path().join("good.safetensors"), "attn.in", shape, &y);
    (dir, tensors)
}

const BASE: [&str; 8] = ["op", "attn.norm", "--model", "mini", "--inputs", "op.safetensors", "--stock", "none"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&BASE[..], more].concat()
}

#[test]
fn a_kernel_that_is_right_passes_and_one_that_is_not_fails() {
    let (dir, tensors) = prepared();
    let at = |name: &str| dir.path().join(name);
    for kernel in ["cp good.safetensors {out} # {in}", "test -s {in} && cp good.safetensors {out}"] {
        let ran = karat(dir.path(), &with(&["--exec", kernel, "--json"])).expect(0).json();
        assert_eq!((ran["verdict"].as_str(), ran["results"][0]["against"].as_str()), (Some("pass"), Some("golden")));
        assert!(ran["results"][0]["rel_l2"].as_f64().unwrap() < 2e-7, "f64 by hand against golden: {ran}");
    }
    karat(dir.path(), &with(&["--candidate", "good.safetensors"])).expect(0);
    // Twice what it should be: an error of one, in every row.
    let (shape, y) = &read_plain(&at("good.safetensors"))["attn.in"];
    let twice: Vec<f32> = y.iter().map(|v| 2.0 * v).collect();
    write(&at("twice.safetensors"), "attn.in", shape, &twice);
    let ran = karat(dir.path(), &with(&["--candidate", "twice.safetensors", "--json"])).expect(1).json();
    assert!((ran["results"][0]["rel_l2"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{ran}");
    // The norm's weight forgotten, under a profile that rounds to bf16.
    let w = &tensors["weight.norm"].1;
    let bare: Vec<f32> = y.iter().enumerate().map(|(i, v)| v / w[i % w.len()]).collect();
    write(&at("bare.safetensors"), "candidate.attn.in", shape, &bare);
    let official = ["op", "attn.norm", "--model", "mini", "--inputs", "op.safetensors", "--candidate"];
    karat(dir.path(), &[&official[..], &["bare.safetensors"]].concat()).expect(1);
    karat(dir.path(), &[&official[..], &["good.safetensors"]].concat()).expect(0);
    // One bad value in one row is named.
    let mut nan = y.clone();
    nan[3 * shape[1] + 5] = f32::NAN;
    write(&at("nan.safetensors"), "attn.in", shape, &nan);
    let ran = karat(dir.path(), &with(&["--candidate", "nan.safetensors", "--json"])).expect(1).json();
    assert_eq!((ran["results"][0]["nonfinite"].as_u64(), ran["results"][0]["worst"].as_u64()), (Some(1), Some(3)));
}

fn read_plain(file: &Path) -> Tensors {
    let bytes = std::fs::read(file).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let one = |(name, view): (String, TensorView<'_>)| {
        let values = view.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        (name, (view.shape().to_vec(), values))
    };
    file.tensors().into_iter().map(one).collect()
}

#[test]
fn a_command_that_gives_no_result_is_infra_with_one_message() {
    let (dir, _) = prepared();
    write(&dir.path().join("shape.safetensors"), "attn.in", &[2, 2], &[0.0; 4]);
    write(&dir.path().join("name.safetensors"), "attn.out", &[2, 2], &[0.0; 4]);
    let width = read(&dir.path().join("op.safetensors")).0["weight.norm"].0[0];
    let bytes = vec![0u8; 20 * width * 8];
    let view = TensorView::new(Dtype::I64, vec![20, width], &bytes).unwrap();
    serialize_to_file([("attn.in", view)], None, &dir.path().join("dtype.safetensors")).unwrap();
    for (kernel, words) in [
        ("true", "no such file"),
        ("echo what it was; exit 3 # {in} {out}", "exit code 3; it said: what it was"),
        ("no-such-program-at-all", "did not find it"),
        ("echo garbage > {out} # {in}", "safetensors"),
        (": > {out} # {in}", "too short"),
        ("mkdir {out} # {in}", "is no file"),
        ("cp shape.safetensors {out} # {in}", "wrong shape: expected [20"),
        ("cp name.safetensors {out} # {in}", "a result is missing"),
        ("cp dtype.safetensors {out} # {in}", "wrong element type"),
        ("cp {in} {out}", "a result is missing"),
        ("kill -SEGV $$ # {in} {out}", "ended by a signal"),
        ("truncate -s 20G {out} # {in}", "header"),
    ] {
        let ran = karat(dir.path(), &with(&["--exec", kernel, "--quiet"])).expect(75);
        assert!(ran.error().contains(words), "{kernel}: {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{kernel}: {}", ran.stdout);
    }
    let start = std::time::Instant::now();
    let ran = karat(dir.path(), &with(&["--exec", "sleep 60 & sleep 60 # {in} {out}", "--timeout", "1", "--quiet"]))
        .expect(75);
    assert!(ran.error().contains("longer than 1 s") && start.elapsed().as_secs() < 30, "{}", ran.stderr);
}

#[test]
fn what_contradicts_itself_is_usage_and_what_a_file_lacks_is_input() {
    let (dir, _) = prepared();
    let at = |name: &str| dir.path().join(name);
    write(&at("shape.safetensors"), "hc_attn.collapsed", &[2, 2], &[0.5; 4]);
    write(&at("nan.safetensors"), "hc_attn.collapsed", &[1, 2], &[f32::NAN; 2]);
    karat(dir.path(), &["model", "new", "--geometry", "mini", "--seed", "6", "--out", "other"]).expect(0);
    for (args, exit, words) in [
        (&["op", "attend"][..], 2, "unknown op: expected hc_attn.pre"),
        (&["op", "head.logits"], 2, "unknown op"),
        (&["op", "attn.norm", "--exec", " "], 2, "the command is empty"),
        (&["op", "attn.norm", "--exec", "cat {in}"], 2, "name both"),
        (&["op", "attn.norm", "--phase", "both"], 2, "--phase: expected"),
        (&["op", "attn.norm", "--patches", "bf16-mhc"], 2, "no patch of bf16-mhc changes attn.norm"),
        (&["op", "attn.norm", "--patches", "what"], 2, "what"),
        (&["op", "attn.norm", "--stock", "what"], 2, "unknown stock profile"),
        (&["op", "attn.index_score", "--model", "mini", "--layer", "0"], 2, "layer 0 has no op attn.index_score"),
        (&["op", "attn.norm", "--model", "mini", "--layer", "900"], 2, "no such layer"),
        (&["op", "attn.norm", "--model", "mini", "--inputs", "op.safetensors", "--layer", "1"], 2, "of layer 0"),
        (&["op", "attn.norm", "--inputs", "nowhere"], 3, "nowhere"),
        (&["op", "attn.norm", "--model", "mini", "--inputs", "good.safetensors"], 3, "no operand tells the rows"),
        (&["op", "attn.norm", "--model", "mini", "--inputs", "shape.safetensors"], 3, "hc_attn.collapsed"),
        (&["op", "attn.norm", "--model", "mini", "--inputs", "nan.safetensors"], 3, "holds what is no number"),
        (&["op", "attn.norm", "--model", "other", "--inputs", "op.safetensors"], 3, "is not the weight of layer 0"),
        (&["op", "attn.norm", "--model", "mini", "--candidate", "nowhere"], 3, "no such file"),
    ] {
        let ran = karat(dir.path(), &[args, &["--quiet"]].concat()).expect(exit);
        assert!(ran.error().contains(words), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn every_op_has_a_contract_on_its_own_operands_and_a_repro_folder_can_be_given() {
    let dir = workplace();
    let list = karat(dir.path(), &["op", "--list", "--json"]).expect(0).json();
    let ops: Vec<&str> = list["ops"].as_array().unwrap().iter().map(|op| op["op"].as_str().unwrap()).collect();
    assert_eq!(ops.len(), 24, "{ops:?}");
    for name in &ops {
        let args = ["op", name, "--model", "mini", "--json", "--rows", "40", "--save", "own.safetensors"];
        let made = karat(dir.path(), &args).expect(0).json();
        assert!(made["verdict"].is_null() && !made["results"].as_array().unwrap().is_empty(), "{made}");
        let args = ["op", name, "--model", "mini", "--json", "--inputs", "own.safetensors"];
        let again = karat(dir.path(), &args).expect(0).json();
        assert_eq!(again["results"], made["results"], "{name}: what was saved is what was run");
    }
    let shown = karat(dir.path(), &["op", "attn.attend", "--list"]).expect(0).stdout;
    assert!(shown.contains("in  attn.q ") && shown.contains("out attn.lse") && shown.contains("[S,H,hd]"), "{shown}");
    // Rows that an audit left behind: the trace's own results are in the file, and are what failed there.
    let base = ["trace", "--model", "mini", "--tokens", "ids.json", "--quiet", "--path", "stock", "--out", "t"];
    karat(dir.path(), &base).expect(0);
    let args = ["audit", "--model", "mini", "--candidate", "t", "--claims", "f32", "--quiet", "--repro", "repro"];
    karat(dir.path(), &args).expect(1);
    let file = "repro/op.safetensors";
    let args = ["op", "hc_attn.pre", "--model", "mini", "--inputs", file, "--candidate", file, "--json"];
    let found = karat(dir.path(), &[&args[..], &["--stock", "none"]].concat()).expect(1).json();
    let failed = |row: &Value| row["result"] == "hc_attn.collapsed" && row["verdict"] == "fail";
    assert!(found["results"].as_array().unwrap().iter().any(failed), "{found}");
    // Under what it is, the stock path is its own contract, bit by bit.
    let found = karat(dir.path(), &args).expect(0).json();
    let contract = |row: &&Value| row["against"] == "contract";
    assert!(found["results"].as_array().unwrap().iter().filter(contract).all(|row| row["rel_l2"] == 0.0), "{found}");
}
