//! Broken config.json files, of the oracle's tiny checkpoint.

use serde_json::{Map, Value, json};

use super::edit::{Files, json_file};
use super::{Broken, Kind, Row};

const FILE: &str = "config.json";

fn set(files: &mut Files, edit: impl FnOnce(&mut Map<String, Value>)) {
    json_file(files, FILE, edit);
}

fn put(files: &mut Files, key: &str, value: Value) {
    set(files, |c| {
        c.insert(key.to_string(), value);
    });
}

pub(super) fn all() -> Vec<Broken> {
    let list: Vec<Row<'_>> = vec![
        ("no config", &[FILE], |f| {
            f.remove(FILE);
        }),
        ("empty config", &[FILE], |f| {
            f.insert(FILE.to_string(), Vec::new());
        }),
        ("config that ends in the middle", &[FILE], |f| f.get_mut(FILE).expect("config").truncate(200)),
        ("config that is a list", &[FILE, "object"], |f| {
            f.insert(FILE.to_string(), b"[]".to_vec());
        }),
        ("config that isn't UTF-8", &[FILE], |f| {
            f.insert(FILE.to_string(), b"{\"model_type\": \"\xff\xfe\"}".to_vec());
        }),
        ("config of 100,000 brackets", &[FILE], |f| {
            f.insert(FILE.to_string(), "[".repeat(100_000).into_bytes());
        }),
        ("field twice", &[FILE, "hidden_size"], |f| {
            let text = String::from_utf8(f[FILE].clone()).expect("UTF-8").replacen('{', "{\"hidden_size\": 64,", 1);
            f.insert(FILE.to_string(), text.into_bytes());
        }),
        ("another architecture", &[FILE, "model_type", "deepseek_v3"], |f| put(f, "model_type", json!("deepseek_v3"))),
        ("missing size", &[FILE, "hidden_size", "missing"], |f| {
            set(f, |c| {
                c.remove("hidden_size");
            });
        }),
        ("missing hash layers", &[FILE, "num_hash_layers"], |f| {
            set(f, |c| {
                c.remove("num_hash_layers");
            });
        }),
        ("no layer schedule", &[FILE, "compress_ratios"], |f| {
            set(f, |c| {
                c.remove("compress_ratios");
            });
        }),
        ("size as text", &[FILE, "hidden_size", "\"128\""], |f| put(f, "hidden_size", json!("128"))),
        ("size 0", &[FILE, "hidden_size", "found 0"], |f| put(f, "hidden_size", json!(0))),
        ("negative size", &[FILE, "num_attention_heads", "-4"], |f| put(f, "num_attention_heads", json!(-4))),
        ("size with a fraction", &[FILE, "head_dim", "96.5"], |f| put(f, "head_dim", json!(96.5))),
        ("10^18 layers", &[FILE, "num_hidden_layers"], |f| {
            put(f, "num_hidden_layers", json!(1_000_000_000_000_000_000u64));
        }),
        ("no layers", &[FILE, "num_hidden_layers"], |f| put(f, "num_hidden_layers", json!(0))),
        ("more experts a token than there are", &[FILE, "num_experts_per_tok", "9"], |f| {
            put(f, "num_experts_per_tok", json!(9));
        }),
        ("schedule shorter than the layers", &[FILE, "compress_ratios"], |f| put(f, "compress_ratios", json!([0, 4]))),
        ("ratio of no known type", &[FILE, "compress_ratios", "7"], |f| {
            put(f, "compress_ratios", json!([0, 4, 7, 4, 128, 0]));
        }),
        ("both spellings, contradicting", &[FILE, "layer_types"], |f| {
            let sliding = vec!["sliding_attention"; 5];
            put(f, "layer_types", json!(sliding));
        }),
        ("unknown field", &[FILE, "n_group_of_mine"], |f| put(f, "n_group_of_mine", json!(4))),
        ("group-limited routing", &[FILE, "n_group"], |f| put(f, "n_group", json!(8))),
        ("another score", &[FILE, "scoring_func", "sigmoid"], |f| put(f, "scoring_func", json!("sigmoid"))),
        ("infinite rope base", &[FILE], |f| {
            let text = String::from_utf8(f[FILE].clone()).expect("UTF-8");
            f.insert(FILE.to_string(), text.replace("\"rope_theta\": 10000", "\"rope_theta\": 1e999").into_bytes());
        }),
        ("limit 0", &[FILE, "swiglu_limit"], |f| put(f, "swiglu_limit", json!(0))),
        ("yarn boundaries swapped", &[FILE, "beta_fast"], |f| {
            set(f, |c| c["rope_scaling"]["beta_fast"] = json!(0.5));
        }),
        ("odd rope width", &[FILE, "qk_rope_head_dim", "31"], |f| put(f, "qk_rope_head_dim", json!(31))),
        ("more rope than head", &[FILE, "qk_rope_head_dim", "128"], |f| put(f, "qk_rope_head_dim", json!(128))),
        ("heads that don't divide", &[FILE, "o_groups", "3"], |f| put(f, "o_groups", json!(3))),
        ("end token outside the vocabulary", &[FILE, "eos_token_id", "512"], |f| put(f, "eos_token_id", json!(512))),
        ("another width than the weights", &["embed.weight", "256"], |f| put(f, "hidden_size", json!(256))),
        ("another vocabulary than the weights", &["embed.weight", "1024"], |f| put(f, "vocab_size", json!(1024))),
    ];
    list.into_iter().map(|(name, says, breaks)| Broken { name, kind: Kind::Checkpoint, says, breaks }).collect()
}
