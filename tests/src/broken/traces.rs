//! Broken traces: a small `karat-trace/1` written by hand here, not by the crate that reads it.

use serde_json::{Map, Value, json};

use super::edit::{Files, Stored, header, join, json_file, pack, tensors};
use super::{Broken, Kind, Row};

const MANIFEST: &str = "manifest.json";
const FILE: &str = "taps.safetensors";

fn f32s(name: &str, shape: &[u64], value: f32) -> Stored {
    let n = shape.iter().product::<u64>() as usize;
    (name.to_string(), "F32".to_string(), shape.to_vec(), value.to_le_bytes().repeat(n))
}

fn i64s(name: &str, values: &[i64]) -> Stored {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    (name.to_string(), "I64".to_string(), vec![values.len() as u64], bytes)
}

/// A whole trace: three tokens, one tap of one layer and the logits of the oracle's tiny model's sizes.
pub(super) fn whole() -> Files {
    let manifest = json!({
        "format": "karat-trace/1",
        "producer": "by hand 1",
        "model": {"config_sha256": "0".repeat(64), "weights_sha256": "0".repeat(64)},
        "mode": "eager",
        "sequences": [{"id": "a", "input_ids": [1, 2, 3]}],
        "history": [{"sequence": "a", "steps": [{"kind": "prefill", "start": 0, "end": 3}]}],
        "files": [FILE],
    });
    let taps = vec![f32s("a/layers.0.attn.in", &[3, 128], 0.5), f32s("a/logits", &[3, 512], 0.25)];
    Files::from([(MANIFEST.to_string(), manifest.to_string().into_bytes()), (FILE.to_string(), pack(taps))])
}

fn manifest(files: &mut Files, edit: impl FnOnce(&mut Map<String, Value>)) {
    json_file(files, MANIFEST, edit);
}

fn put(files: &mut Files, key: &str, value: Value) {
    manifest(files, |m| {
        m.insert(key.to_string(), value);
    });
}

/// Renames the first tap.
fn rename(files: &mut Files, to: &str) {
    let mut all = tensors(&files[FILE]);
    all[0].0 = to.to_string();
    files.insert(FILE.to_string(), pack(all));
}

fn add(files: &mut Files, tensor: Stored) {
    let mut all = tensors(&files[FILE]);
    all.push(tensor);
    files.insert(FILE.to_string(), pack(all));
}

pub(super) fn all() -> Vec<Broken> {
    let list: Vec<Row<'_>> = vec![
        ("no manifest", &[MANIFEST], |f| {
            f.remove(MANIFEST);
        }),
        ("manifest that ends in the middle", &[MANIFEST], |f| f.get_mut(MANIFEST).expect("manifest").truncate(60)),
        ("manifest of another format", &[MANIFEST, "karat-trace/1", "karat-trace/9"], |f| {
            put(f, "format", json!("karat-trace/9"));
        }),
        ("manifest without a format", &[MANIFEST, "format"], |f| {
            manifest(f, |m| {
                m.remove("format");
            });
        }),
        ("unknown mode", &[MANIFEST, "mode"], |f| put(f, "mode", json!("turbo"))),
        ("no sequence", &[MANIFEST, "sequence"], |f| put(f, "sequences", json!([]))),
        ("empty sequence", &[MANIFEST, "a"], |f| put(f, "sequences", json!([{"id": "a", "input_ids": []}]))),
        ("two sequences of one name", &[MANIFEST, "a"], |f| {
            put(f, "sequences", json!([{"id": "a", "input_ids": [1]}, {"id": "a", "input_ids": [2]}]));
        }),
        ("negative id", &[MANIFEST, "-1"], |f| put(f, "sequences", json!([{"id": "a", "input_ids": [1, 2, -1]}]))),
        ("history of an unknown sequence", &[MANIFEST, "b"], |f| {
            put(f, "history", json!([{"sequence": "b", "steps": []}]));
        }),
        ("history beyond the sequence", &[MANIFEST, "a"], |f| {
            put(f, "history", json!([{"sequence": "a", "steps": [{"kind": "prefill", "start": 0, "end": 9}]}]));
        }),
        ("history step the wrong way round", &[MANIFEST, "a"], |f| {
            put(f, "history", json!([{"sequence": "a", "steps": [{"kind": "prefill", "start": 3, "end": 0}]}]));
        }),
        ("step of an unknown kind", &[MANIFEST, "teleport"], |f| {
            put(f, "history", json!([{"sequence": "a", "steps": [{"kind": "teleport", "start": 0, "end": 3}]}]));
        }),
        ("hash of the wrong length", &[MANIFEST, "sha256"], |f| {
            put(f, "model", json!({"config_sha256": "abc", "weights_sha256": "0".repeat(64)}));
        }),
        ("no files", &[MANIFEST, "files"], |f| put(f, "files", json!([]))),
        ("file that isn't there", &["more.safetensors"], |f| {
            put(f, "files", json!([FILE, "more.safetensors"]));
        }),
        ("file outside the folder", &[MANIFEST, "../taps.safetensors"], |f| {
            put(f, "files", json!(["../taps.safetensors"]));
        }),
        ("file named twice", &[FILE], |f| put(f, "files", json!([FILE, FILE]))),
        ("tap file that ends inside its data", &[FILE], |f| {
            f.get_mut(FILE).expect("taps").truncate(1000);
        }),
        ("tap file with overlapping offsets", &[FILE, "overlap"], |f| {
            add(f, f32s("a/layers.1.attn.in", &[3, 128], 0.5));
            header(f, FILE, |h| {
                let first = h["a/layers.0.attn.in"]["data_offsets"].clone();
                h["a/layers.1.attn.in"]["data_offsets"] = first;
            });
        }),
        ("tap file that is a list", &[FILE], |f| {
            f.insert(FILE.to_string(), join("[]", &[]));
        }),
        ("key without a sequence", &[FILE, "layers.0.attn.in"], |f| rename(f, "layers.0.attn.in")),
        ("key of an unknown sequence", &[FILE, "z/layers.0.attn.in"], |f| rename(f, "z/layers.0.attn.in")),
        ("key of an unknown tap", &[FILE, "a/layers.0.attn.vibes"], |f| rename(f, "a/layers.0.attn.vibes")),
        ("key of a layer that isn't a number", &[FILE, "a/layers.x.attn.in"], |f| rename(f, "a/layers.x.attn.in")),
        ("key of a pass that isn't a number", &[FILE, "a/layers.0.attn.in@two"], |f| {
            rename(f, "a/layers.0.attn.in@two");
        }),
        ("fewer rows than tokens", &[FILE, "a/layers.0.attn.in"], |f| {
            let mut all = tensors(&f[FILE]);
            all[0] = f32s("a/layers.0.attn.in", &[2, 128], 0.5);
            f.insert(FILE.to_string(), pack(all));
        }),
        ("tap without axes", &[FILE, "a/layers.0.attn.in"], |f| {
            let mut all = tensors(&f[FILE]);
            all[0] = f32s("a/layers.0.attn.in", &[], 0.5);
            f.insert(FILE.to_string(), pack(all));
        }),
        ("dtype that no tap may have", &[FILE, "a/layers.0.attn.in", "U64"], |f| {
            let mut all = tensors(&f[FILE]);
            let bytes = vec![0; 3 * 128 * 8];
            all[0] = ("a/layers.0.attn.in".to_string(), "U64".to_string(), vec![3, 128], bytes);
            f.insert(FILE.to_string(), pack(all));
        }),
        ("rows beyond the sequence", &[FILE, "a/rows"], |f| add(f, i64s("a/rows", &[0, 1, 3]))),
        ("rows out of order", &[FILE, "a/rows"], |f| add(f, i64s("a/rows", &[0, 2, 1]))),
        ("row -1", &[FILE, "a/rows", "-1"], |f| add(f, i64s("a/rows", &[-1, 0, 1]))),
        ("rows as floats", &[FILE, "a/rows"], |f| add(f, f32s("a/rows", &[3], 1.0))),
    ];
    list.into_iter().map(|(name, says, breaks)| Broken { name, kind: Kind::Trace, says, breaks }).collect()
}
