//! Expected values are those of spec section 1, written out by hand.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Flash as released.
fn flash() -> Value {
    let ratios: Vec<u32> = (0..44)
        .map(|l| {
            if !(2..43).contains(&l) {
                0
            } else if l % 2 == 0 {
                4
            } else {
                128
            }
        })
        .collect();
    let mut v: Value = serde_json::from_str(FLASH).unwrap();
    v["compress_ratios"] = json!(ratios);
    v
}

/// Its fields but for the schedule.
const FLASH: &str = r#"{
        "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "torch_dtype": "bfloat16",
        "vocab_size": 129280, "hidden_size": 4096, "num_hidden_layers": 43, "num_attention_heads": 64,
        "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1024, "o_groups": 8,
        "o_lora_rank": 1024, "sliding_window": 128, "index_n_heads": 64,
        "index_head_dim": 128, "index_topk": 512, "n_routed_experts": 256, "n_shared_experts": 1,
        "num_experts_per_tok": 6, "moe_intermediate_size": 2048, "num_hash_layers": 3, "scoring_func": "sqrtsoftplus",
        "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
        "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-6, "rope_theta": 10000,
        "compress_rope_theta": 160000,
        "rope_scaling": {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
            "original_max_position_embeddings": 65536},
        "max_position_embeddings": 1048576, "num_nextn_predict_layers": 1, "hidden_act": "silu",
        "attention_bias": false, "attention_dropout": 0.0, "tie_word_embeddings": false, "initializer_range": 0.02,
        "use_cache": true, "bos_token_id": 0, "eos_token_id": 1, "expert_dtype": "fp4",
        "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
            "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}
}"#;

/// Flash as transformers saves it.
fn flash_in_transformers_words() -> Value {
    let mut v = flash();
    let types: Vec<&str> = (0..43)
        .map(|l| match l {
            0 | 1 => "sliding_attention",
            l if l % 2 == 0 => "compressed_sparse_attention",
            _ => "heavily_compressed_attention",
        })
        .collect();
    let mlp: Vec<&str> = (0..43).map(|l| if l < 3 { "hash_moe" } else { "moe" }).collect();
    for key in ["compress_ratios", "num_hash_layers", "qk_rope_head_dim", "rope_scaling", "topk_method", "expert_dtype"]
    {
        v.as_object_mut().unwrap().remove(key);
    }
    v["layer_types"] = json!(types);
    v["mlp_layer_types"] = json!(mlp);
    v["compress_rates"] = json!({"compressed_sparse_attention": 4, "heavily_compressed_attention": 128});
    v["partial_rotary_factor"] = json!(0.125);
    v["rope_parameters"] = json!({
        "main": {"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.125},
        "compress": {"type": "yarn", "rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
            "original_max_position_embeddings": 65536, "rope_theta": 160000, "partial_rotary_factor": 0.125,
            "attention_factor": 1.0}
    });
    v["quantization_config"]["expert_dtype"] = json!("fp4");
    v["pad_token_id"] = Value::Null;
    v["transformers_version"] = json!("5.24.0");
    v["dtype"] = json!("bfloat16");
    v["output_router_logits"] = json!(false);
    v
}

fn read_value(v: &Value) -> crate::Result<Config> {
    Config::from_json(v.to_string().as_bytes())
}

fn refused(v: &Value) -> String {
    read_value(v).expect_err("must be refused").to_string()
}

/// Flash with one field set (or removed by null), and the words the refusal must hold.
#[track_caller]
fn refuses(key: &str, value: Value, words: &[&str]) {
    let mut v = flash();
    if value.is_null() {
        v.as_object_mut().unwrap().remove(key);
    } else {
        v[key] = value;
    }
    let message = refused(&v);
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}

#[test]
fn flash_has_every_field() {
    let c = read_value(&flash()).unwrap();
    let (csa, hca) = (LayerKind::Csa { ratio: 4 }, LayerKind::Hca { ratio: 128 });
    let mut layers = vec![LayerKind::Sliding; 2];
    for _ in 0..20 {
        layers.extend([csa, hca]);
    }
    layers.push(csa);
    let want = Config {
        vocab_size: 129280,
        hidden_size: 4096,
        layers,
        mtp: vec![LayerKind::Sliding],
        num_attention_heads: 64,
        head_dim: 512,
        qk_rope_head_dim: 64,
        q_lora_rank: 1024,
        o_groups: 8,
        o_lora_rank: 1024,
        sliding_window: 128,
        index_n_heads: 64,
        index_head_dim: 128,
        index_topk: 512,
        n_routed_experts: 256,
        n_shared_experts: 1,
        num_experts_per_tok: 6,
        moe_intermediate_size: 2048,
        num_hash_layers: 3,
        routed_scaling_factor: 1.5,
        swiglu_limit: 10.0,
        hc_mult: 4,
        hc_sinkhorn_iters: 20,
        hc_eps: 1e-6,
        rms_norm_eps: 1e-6,
        rope_theta: 10000.0,
        compress_rope_theta: 160000.0,
        yarn: Yarn { factor: 16.0, beta_fast: 32.0, beta_slow: 1.0, original_max_position_embeddings: 65536.0 },
        max_position_embeddings: 1048576,
        bos_token_id: 0,
        eos_token_id: 1,
        expert_dtype: ExpertDtype::Fp4,
        weight_block_size: [128, 128],
    };
    assert_eq!(c, want);
    assert_eq!((c.num_hidden_layers(), c.nope_head_dim()), (43, 448));
}

#[test]
fn both_spellings_give_one_config() {
    let want = read_value(&flash()).unwrap();
    assert_eq!(read_value(&flash_in_transformers_words()).unwrap(), want);
    // Flat rope_parameters, whose theta may be that of either base.
    for theta in [json!(10000), json!(160000.0), Value::Null] {
        let mut v = flash_in_transformers_words();
        v["rope_parameters"] = json!({"rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
            "original_max_position_embeddings": 65536, "rope_theta": theta});
        assert_eq!(read_value(&v).unwrap(), want);
    }
    // Both at once, agreeing.
    let mut v = flash_in_transformers_words();
    for key in ["compress_ratios", "num_hash_layers", "qk_rope_head_dim", "rope_scaling", "expert_dtype"] {
        v[key] = flash()[key].clone();
    }
    assert_eq!(read_value(&v).unwrap(), want);
}

#[test]
fn pro_is_read() {
    let mut v = flash();
    let ratios: Vec<u32> = (0..62)
        .map(|l| {
            if l < 2 {
                128
            } else if l == 61 {
                0
            } else if l % 2 == 0 {
                4
            } else {
                128
            }
        })
        .collect();
    for (key, value) in [
        ("hidden_size", json!(7168)),
        ("num_hidden_layers", json!(61)),
        ("num_attention_heads", json!(128)),
        ("q_lora_rank", json!(1536)),
        ("o_groups", json!(16)),
        ("compress_ratios", json!(ratios)),
        ("index_topk", json!(1024)),
        ("n_routed_experts", json!(384)),
        ("moe_intermediate_size", json!(3072)),
        ("routed_scaling_factor", json!(2.5)),
    ] {
        v[key] = value;
    }
    let c = read_value(&v).unwrap();
    assert_eq!(c.layers.len(), 61);
    assert_eq!(c.layers.iter().filter(|k| k.has_indexer()).count(), 30);
    assert_eq!(
        c.layers[..3],
        [LayerKind::Hca { ratio: 128 }, LayerKind::Hca { ratio: 128 }, LayerKind::Csa { ratio: 4 }]
    );
    assert_eq!(c.mtp, [LayerKind::Sliding]);
}

#[test]
fn flash_0731_with_46_entries_and_draft_fields_is_flash() {
    let mut v = flash();
    let mut ratios = v["compress_ratios"].as_array().unwrap().clone();
    ratios.extend([json!(0), json!(0)]);
    v["compress_ratios"] = Value::Array(ratios);
    v["dspark_block_size"] = json!(5);
    v["dspark_target_layer_ids"] = json!([40, 41, 42]);
    assert_eq!(read_value(&v).unwrap(), read_value(&flash()).unwrap());
}

#[test]
fn the_initial_release_does_not_say_how_experts_are_stored() {
    let mut v = flash();
    v.as_object_mut().unwrap().remove("expert_dtype");
    let r = read::read("config.json", v.to_string().as_bytes()).unwrap();
    assert!(!r.says_expert_dtype);
    assert_eq!(r.config.expert_dtype, ExpertDtype::Fp4);
    v["expert_dtype"] = json!("fp8");
    assert_eq!(read_value(&v).unwrap().expert_dtype, ExpertDtype::Fp8);
}

#[test]
fn compress_rates_give_the_ratio_of_the_types_that_compress_ratios_name() {
    let mut v = flash();
    v["compress_rates"] = json!({"compressed_sparse_attention": 4, "heavily_compressed_attention": 16});
    let c = read_value(&v).unwrap();
    assert_eq!(c.layers[2..4], [LayerKind::Csa { ratio: 4 }, LayerKind::Hca { ratio: 16 }]);
    v["compress_rate_hca"] = json!(16);
    assert_eq!(read_value(&v).unwrap(), c);
    v["compress_rate_hca"] = json!(128);
    assert!(refused(&v).contains("compress_rate_hca"));
    let mut v = flash_in_transformers_words();
    v["compress_rates"] = json!({"compressed_sparse_attention": 4, "heavily_compressed_attention": 16});
    assert_eq!(read_value(&v).unwrap(), c);
}

#[test]
fn a_missing_fact_never_gets_a_default() {
    refuses("num_hash_layers", Value::Null, &["num_hash_layers", "missing", "mlp_layer_types"]);
    refuses("compress_ratios", Value::Null, &["compress_ratios", "missing", "layer_types"]);
    refuses("compress_rope_theta", Value::Null, &["compress_rope_theta", "missing", "160000"]);
    refuses("rope_scaling", Value::Null, &["rope_scaling", "missing"]);
    refuses("qk_rope_head_dim", Value::Null, &["qk_rope_head_dim", "partial_rotary_factor"]);
    refuses("model_type", Value::Null, &["model_type", "deepseek_v4"]);
    for key in [
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "head_dim",
        "q_lora_rank",
        "o_groups",
        "o_lora_rank",
        "sliding_window",
        "index_n_heads",
        "index_head_dim",
        "index_topk",
        "n_routed_experts",
        "n_shared_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "scoring_func",
        "norm_topk_prob",
        "routed_scaling_factor",
        "swiglu_limit",
        "hc_mult",
        "hc_sinkhorn_iters",
        "hc_eps",
        "rms_norm_eps",
        "rope_theta",
        "max_position_embeddings",
        "bos_token_id",
        "eos_token_id",
    ] {
        refuses(key, Value::Null, &[key, "missing"]);
    }
    let mut v = flash_in_transformers_words();
    v.as_object_mut().unwrap().remove("compress_rates");
    assert!(refused(&v).contains("compress_rates.compressed_sparse_attention"));
    for key in ["factor", "beta_fast", "beta_slow", "original_max_position_embeddings"] {
        let mut v = flash();
        v["rope_scaling"].as_object_mut().unwrap().remove(key);
        assert!(refused(&v).contains(key));
    }
}

#[test]
fn values_of_other_architectures_are_refused_by_name() {
    refuses("model_type", json!("deepseek_v41"), &["model_type", "deepseek_v41", "V4"]);
    refuses("architectures", json!(["DeepseekV3ForCausalLM"]), &["architectures", "V3"]);
    refuses("scoring_func", json!("sigmoid"), &["scoring_func", "sqrtsoftplus", "sigmoid"]);
    refuses("topk_method", json!("greedy"), &["topk_method", "noaux_tc"]);
    refuses("norm_topk_prob", json!(false), &["norm_topk_prob"]);
    refuses("hidden_act", json!("gelu"), &["hidden_act", "silu"]);
    refuses("attention_bias", json!(true), &["attention_bias"]);
    refuses("tie_word_embeddings", json!(true), &["tie_word_embeddings"]);
    refuses("num_key_value_heads", json!(8), &["num_key_value_heads"]);
    refuses("n_group", json!(8), &["n_group", "group-limited"]);
    refuses("first_k_dense_replace", json!(1), &["first_k_dense_replace"]);
    refuses("expert_dtype", json!("int4"), &["expert_dtype", "int4"]);
    refuses("rope_scaling", json!({"type": "linear", "factor": 16}), &["rope_scaling", "yarn", "linear"]);
    refuses("compress_ratios", json!(vec![8; 44]), &["compress_ratios[0]", "8"]);
    for (key, value) in [("mscale", json!(1.0)), ("attention_factor", json!(1.277)), ("truncate", json!(false))] {
        let mut v = flash();
        v["rope_scaling"][key] = value;
        assert!(refused(&v).contains(key));
    }
    for (key, value) in [
        ("quant_method", json!("gptq")),
        ("fmt", json!("e5m2")),
        ("weight_block_size", json!([128])),
        ("bits", json!(4)),
    ] {
        let mut v = flash();
        v["quantization_config"][key] = value;
        assert!(refused(&v).contains(key));
    }
}

#[test]
fn unknown_fields_are_refused_with_advice() {
    refuses("index_kv_heads", json!(1), &["unknown field", "index_kv_heads", "remove it"]);
    refuses("window_size", json!(128), &["window_size", "sliding_window"]);
    refuses("rope_scaling", json!({"type": "yarn", "facto": 16}), &["rope_scaling.facto"]);
}

#[test]
fn contradictions_are_refused_by_name() {
    refuses("num_hidden_layers", json!(45), &["compress_ratios", "46 entries", "44 entries"]);
    refuses("num_hidden_layers", json!(42), &["compress_ratios[42]", "num_hidden_layers is 42"]);
    refuses("mlp_layer_types", json!(vec!["moe"; 43]), &["mlp_layer_types", "num_hash_layers"]);
    refuses("partial_rotary_factor", json!(0.25), &["partial_rotary_factor", "64", "128"]);
    refuses("rope_parameters", json!({"rope_type": "yarn", "rope_theta": 5}), &["rope_parameters.rope_theta"]);
    refuses("rope_parameters", json!({"rope_type": "yarn", "factor": 8}), &["factor", "16", "8"]);
    refuses("rope_parameters", json!({"main": {}}), &["both main and compress"]);
    refuses("num_local_experts", json!(8), &["num_local_experts", "n_routed_experts"]);
    refuses("layer_types", json!(vec!["sliding_attention"; 43]), &["layer_types[2]", "CSA ratio 4"]);
    refuses("layer_types", json!(["sliding_attention"]), &["layer_types", "43 entries", "1 entries"]);
    let mut v = flash();
    v["quantization_config"]["expert_dtype"] = json!("fp8");
    assert!(refused(&v).contains("quantization_config.expert_dtype"));
    let mut v = flash_in_transformers_words();
    v["mlp_layer_types"][1] = json!("moe");
    assert!(refused(&v).contains("mlp_layer_types[2]"));
    let mut v = flash_in_transformers_words();
    v["rope_parameters"]["compress"]["rope_theta"] = json!(40000);
    assert!(refused(&v).contains("rope_parameters.compress.rope_theta"));
}

#[test]
fn sizes_and_relations_are_checked() {
    refuses("o_groups", json!(7), &["o_groups", "divisor", "64"]);
    refuses("qk_rope_head_dim", json!(63), &["qk_rope_head_dim", "even"]);
    refuses("qk_rope_head_dim", json!(1024), &["qk_rope_head_dim", "512"]);
    refuses("qk_rope_head_dim", json!(256), &["qk_rope_head_dim", "index_head_dim (128)"]);
    refuses("num_experts_per_tok", json!(257), &["num_experts_per_tok", "256"]);
    refuses("num_hash_layers", json!(44), &["num_hash_layers", "43"]);
    refuses("vocab_size", json!(1), &["eos_token_id"]);
    refuses("vocab_size", json!("many"), &["vocab_size", "whole number"]);
    refuses("vocab_size", json!(-5), &["vocab_size"]);
    refuses("hidden_size", json!(4096.5), &["hidden_size"]);
    refuses("hidden_size", json!(0), &["hidden_size"]);
    refuses("hidden_size", json!(u64::MAX), &["hidden_size"]);
    refuses("n_routed_experts", json!(65536), &["n_routed_experts", "too many"]);
    refuses("num_hidden_layers", json!(1_000_000_000), &["num_hidden_layers"]);
    refuses("swiglu_limit", json!(0.0), &["swiglu_limit", "positive"]);
    refuses("rms_norm_eps", json!(-1e-6), &["rms_norm_eps"]);
    refuses("hc_eps", json!(1e-60), &["hc_eps", "f32"]);
    refuses("rope_theta", json!(1.0), &["rope_theta"]);
    refuses("eos_token_id", json!([1, 2]), &["eos_token_id", "one token id"]);
    refuses("compress_ratios", json!("4"), &["compress_ratios", "a list"]);
    let mut v = flash();
    v["rope_scaling"]["beta_fast"] = json!(1);
    assert!(refused(&v).contains("beta_fast"));
    v["rope_scaling"] = json!([]);
    assert!(refused(&v).contains("an object"));
}

#[test]
fn json_is_read_strictly() {
    let text = flash().to_string();
    let twice = text.replacen('{', "{\"vocab_size\": 5, ", 1);
    let message = Config::from_json(twice.as_bytes()).unwrap_err().to_string();
    assert!(message.contains("`vocab_size` twice"), "{message}");
    let message = Config::from_json(&text.as_bytes()[..text.len() / 2]).unwrap_err().to_string();
    assert!(message.contains("truncated"), "{message}");
    assert!(Config::from_json(b"[]").unwrap_err().to_string().contains("not a JSON object"));
    assert!(Config::from_json(b"\xEF\xBB\xBF{}").unwrap_err().to_string().contains("byte order mark"));
    assert!(Config::from_json(&b"[".repeat(100_000)).is_err());
}

proptest! {
    #[test]
    fn any_bytes_give_an_error_or_a_config(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Config::from_json(&bytes);
    }

    #[test]
    fn a_flipped_byte_gives_an_error_or_a_config_in_range(at in 0usize..2000, byte: u8) {
        let mut text = flash().to_string().into_bytes();
        let at = at % text.len();
        text[at] = byte;
        if let Ok(c) = Config::from_json(&text) {
            prop_assert!(c.num_attention_heads.is_multiple_of(c.o_groups));
            prop_assert!(c.qk_rope_head_dim <= c.head_dim);
            prop_assert_eq!(c.layers.len(), 43);
        }
    }

    #[test]
    fn any_value_in_any_field_gives_an_error_or_a_config(field in 0usize..64, kind in 0usize..8, n: i64) {
        let mut v = flash();
        let keys: Vec<String> = v.as_object().unwrap().keys().cloned().collect();
        let value = match kind {
            0 => json!(n),
            1 => json!(n as f64 * 1e290),
            2 => json!(n.to_string()),
            3 => json!([n]),
            4 => json!({"a": n}),
            5 => json!(n % 300),
            6 => json!(null),
            _ => json!(n % 2 == 0),
        };
        v[&keys[field % keys.len()]] = value;
        let _ = read_value(&v);
    }
}
