//! Broken weight files, of the oracle's tiny checkpoint.

use serde_json::json;

use super::edit::{Files, header, join, pack, remove, tensors, text, values};
use super::{Broken, Kind, Row};

const FILE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Splits the weights over two shards with an index; `edit` then breaks the index.
fn shard(files: &mut Files, edit: impl FnOnce(&mut serde_json::Value)) {
    let all = tensors(&files.remove(FILE).expect("weights"));
    let half = all.len() / 2;
    let mut map = serde_json::Map::new();
    for (i, tensor) in all.iter().enumerate() {
        let shard = if i < half { "model-00001-of-00002.safetensors" } else { "model-00002-of-00002.safetensors" };
        map.insert(tensor.0.clone(), json!(shard));
    }
    let mut index = json!({"metadata": {}, "weight_map": map});
    edit(&mut index);
    files.insert(INDEX.to_string(), index.to_string().into_bytes());
    files.insert("model-00001-of-00002.safetensors".to_string(), pack(all[..half].to_vec()));
    files.insert("model-00002-of-00002.safetensors".to_string(), pack(all[half..].to_vec()));
}

/// Adds a vector of eight zeros.
fn add(files: &mut Files, name: &str, dtype: &str, width: usize) {
    let mut all = tensors(&files[FILE]);
    all.push((name.to_string(), dtype.to_string(), vec![8], vec![0; 8 * width]));
    files.insert(FILE.to_string(), pack(all));
}

fn f32s(bytes: &mut [u8], value: f32) {
    bytes[..4].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn all() -> Vec<Broken> {
    let opens: Vec<Row<'_>> = vec![
        ("no weights at all", &["no weights"], |f| {
            f.remove(FILE);
        }),
        ("empty weight file", &[FILE, "0 bytes"], |f| {
            f.insert(FILE.to_string(), Vec::new());
        }),
        ("weight file ends inside its header", &[FILE, "header", "truncated"], |f| {
            f.get_mut(FILE).expect("weights").truncate(1000);
        }),
        ("weight file ends inside its data", &[FILE, "beyond the file", "truncated"], |f| {
            let half = f[FILE].len() / 2;
            f.get_mut(FILE).expect("weights").truncate(half);
        }),
        ("weight file is a folder", &[FILE], |f| {
            f.remove(FILE);
            f.insert(format!("{FILE}/"), Vec::new());
        }),
        ("header length of 2^63", &[FILE, "header"], |f| {
            f.get_mut(FILE).expect("weights")[..8].copy_from_slice(&(1u64 << 63).to_le_bytes());
        }),
        ("header is no JSON", &[FILE, "JSON"], |f| text(f, FILE, |t| t.replacen(':', ";", 1))),
        ("header is a list", &[FILE, "JSON"], |f| {
            f.insert(FILE.to_string(), join("[1,2]", &[]));
        }),
        ("header of 100,000 brackets", &[FILE, "JSON"], |f| {
            f.insert(FILE.to_string(), join(&"[".repeat(100_000), &[]));
        }),
        ("bytes appended", &[FILE, "left over"], |f| f.get_mut(FILE).expect("weights").extend([0; 16])),
        ("one name twice", &[FILE, "norm.weight", "twice"], |f| {
            text(f, FILE, |t| {
                let copy = r#"{"norm.weight":{"dtype":"BF16","shape":[0],"data_offsets":[0,0]},"#;
                t.replacen('{', copy, 1)
            });
        }),
        ("expert id out of range", &["layers.0.ffn.gate.tid2eid", "8"], |f| {
            values(f, FILE, "layers.0.ffn.gate.tid2eid", |b| b[..8].copy_from_slice(&8i64.to_le_bytes()));
        }),
        ("negative expert id", &["layers.1.ffn.gate.tid2eid", "-1"], |f| {
            values(f, FILE, "layers.1.ffn.gate.tid2eid", |b| b[..8].copy_from_slice(&(-1i64).to_le_bytes()));
        }),
        ("overlapping offsets", &[FILE, "overlap"], |f| {
            header(f, FILE, |h| {
                // Two bytes into the tensor before it; every size still fits.
                let offsets = &mut h["norm.weight"]["data_offsets"];
                let at = |i: usize| offsets[i].as_u64().expect("an offset") - 2;
                *offsets = json!([at(0), at(1)]);
            });
        }),
        ("offsets the wrong way round", &[FILE, "norm.weight", "end before they start"], |f| {
            header(f, FILE, |h| h["norm.weight"]["data_offsets"] = json!([256, 0]));
        }),
        ("offsets near 2^64", &[FILE, "norm.weight", "beyond the file"], |f| {
            header(f, FILE, |h| h["norm.weight"]["data_offsets"] = json!([u64::MAX - 256, u64::MAX]));
        }),
        ("shape that overflows", &[FILE, "norm.weight", "overflows"], |f| {
            header(f, FILE, |h| h["norm.weight"]["shape"] = json!([1u64 << 62, 1u64 << 62]));
        }),
        ("negative size", &[FILE, "JSON", "-128"], |f| {
            header(f, FILE, |h| h["norm.weight"]["shape"] = json!([-128]));
        }),
        ("shape and bytes don't fit", &[FILE, "norm.weight", "256 bytes"], |f| {
            header(f, FILE, |h| h["norm.weight"]["shape"] = json!([129]));
        }),
        ("dtype that doesn't exist", &[FILE, "norm.weight", "Q9_K"], |f| {
            header(f, FILE, |h| h["norm.weight"]["dtype"] = json!("Q9_K"));
        }),
        ("dtype that a norm can't have", &["norm.weight", "BF16", "I16"], |f| {
            header(f, FILE, |h| h["norm.weight"]["dtype"] = json!("I16"));
        }),
        ("linear in E5M2", &["layers.0.attn.wq_a.weight", "F8_E5M2"], |f| {
            header(f, FILE, |h| h["layers.0.attn.wq_a.weight"]["dtype"] = json!("F8_E5M2"));
        }),
        ("scale in I8", &["layers.0.attn.wq_a.scale", "I8"], |f| {
            header(f, FILE, |h| h["layers.0.attn.wq_a.scale"]["dtype"] = json!("I8"));
        }),
        ("matrix with transposed shape", &["layers.0.attn.wq_b", "transposed"], |f| {
            header(f, FILE, |h| {
                for name in ["layers.0.attn.wq_b.weight", "layers.0.attn.wq_b.scale"] {
                    h[name]["shape"].as_array_mut().expect("a shape").reverse();
                }
            });
        }),
        ("experts of half the width", &["layers.2.ffn.experts.3.w1"], |f| {
            header(f, FILE, |h| h["layers.2.ffn.experts.3.w1.weight"]["shape"] = json!([64, 128]));
        }),
        ("missing norm", &["layers.1.attn_norm", "missing"], |f| remove(f, FILE, "layers.1.attn_norm.weight")),
        ("missing scale", &["layers.1.attn.wkv", "scale"], |f| remove(f, FILE, "layers.1.attn.wkv.scale")),
        ("unknown tensor", &[FILE, "layers.0.attn.bogus.weight", "not used"], |f| {
            add(f, "layers.0.attn.bogus.weight", "BF16", 2);
        }),
        ("tensor of a layer that the config doesn't have", &[FILE, "layers.9.attn_norm.weight", "not used"], |f| {
            add(f, "layers.9.attn_norm.weight", "BF16", 2);
        }),
        ("bias in a hash layer", &[FILE, "layers.1.ffn.gate.bias", "num_hash_layers"], |f| {
            add(f, "layers.1.ffn.gate.bias", "F32", 4);
        }),
        ("index that is no JSON", &[INDEX], |f| {
            shard(f, |_| ());
            f.insert(INDEX.to_string(), b"{\"weight_map\":".to_vec());
        }),
        ("index without a map", &[INDEX, "weight_map"], |f| {
            shard(f, |index| *index = json!({"metadata": {"total_size": 1}}));
        }),
        ("shard that isn't there", &["model-00002-of-00002.safetensors", "missing"], |f| {
            shard(f, |_| ());
            f.remove("model-00002-of-00002.safetensors");
        }),
        ("shard of the number that isn't there", &["model-00002-of-00002.safetensors", "missing"], |f| {
            shard(f, |_| ());
            f.remove("model-00002-of-00002.safetensors");
            f.remove(INDEX);
        }),
        ("index that leaves the folder", &[INDEX, "norm.weight"], |f| {
            shard(f, |index| index["weight_map"]["norm.weight"] = json!("../elsewhere.safetensors"));
        }),
        ("index that names the wrong shard", &["norm.weight", "another shard"], |f| {
            shard(f, |index| {
                let now = index["weight_map"]["norm.weight"].as_str().expect("a name").to_string();
                let other = if now.contains("00001-of") {
                    now.replace("00001-of", "00002-of")
                } else {
                    now.replace("00002-of", "00001-of")
                };
                index["weight_map"]["norm.weight"] = json!(other);
            });
        }),
        ("index with a tensor that no shard has", &[INDEX, "layers.7.attn_norm.weight", "no shard"], |f| {
            shard(f, |index| {
                index["weight_map"]["layers.7.attn_norm.weight"] = json!("model-00001-of-00002.safetensors");
            });
        }),
        ("one tensor in two shards", &["norm.weight", "two tensors for one place"], |f| {
            shard(f, |_| ());
            let shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
            let both: Vec<_> = shards.iter().flat_map(|shard| tensors(&f[*shard])).collect();
            let copy = both.iter().find(|t| t.0 == "norm.weight").expect("the tensor");
            for shard in shards {
                let mut all: Vec<_> = tensors(&f[shard]).into_iter().filter(|t| t.0 != copy.0).collect();
                all.push(copy.clone());
                f.insert(shard.to_string(), pack(all));
            }
        }),
    ];
    let values: Vec<Row<'_>> = vec![
        ("NaN scale", &["layers.0.attn.wq_a", "NaN"], |f| {
            values(f, FILE, "layers.0.attn.wq_a.scale", |b| b[0] = 255);
        }),
        ("NaN scale of an expert", &["layers.2.ffn.experts.3.w1", "NaN"], |f| {
            values(f, FILE, "layers.2.ffn.experts.3.w1.scale", |b| b[5] = 255);
        }),
        ("NaN code", &["layers.0.attn.wq_a", "NaN"], |f| {
            values(f, FILE, "layers.0.attn.wq_a.weight", |b| b[7] = 0x7f);
        }),
        ("infinity in a norm", &["norm.weight"], |f| {
            values(f, FILE, "norm.weight", |b| b[..2].copy_from_slice(&0x7f80u16.to_le_bytes()));
        }),
        ("NaN sink", &["layers.3.attn.attn_sink"], |f| {
            values(f, FILE, "layers.3.attn.attn_sink", |b| f32s(b, f32::NAN));
        }),
    ];
    let broken = |kind| move |(name, says, breaks): (_, _, _)| Broken { name, kind, says, breaks };
    opens.into_iter().map(broken(Kind::Checkpoint)).chain(values.into_iter().map(broken(Kind::Values))).collect()
}
