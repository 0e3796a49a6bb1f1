//! Against the figures of the design, worked out by hand from the released config.

use super::*;

fn flash() -> Config {
    let ratios: Vec<u32> = (0..44)
        .map(|l: u32| {
            if !(2..43).contains(&l) {
                0
            } else if l.is_multiple_of(2) {
                4
            } else {
                128
            }
        })
        .collect();
    let mut config: Value = serde_json::from_str(FLASH).unwrap();
    config["compress_ratios"] = json!(ratios);
    Config::from_json(config.to_string().as_bytes()).unwrap()
}

/// The released config but for its schedule.
const FLASH: &str = r#"{
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "torch_dtype": "bfloat16",
    "vocab_size": 129280, "hidden_size": 4096, "num_hidden_layers": 43, "num_attention_heads": 64,
    "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1024, "o_groups": 8,
    "o_lora_rank": 1024, "sliding_window": 128, "index_n_heads": 64,
    "index_head_dim": 128, "index_topk": 512, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 6, "moe_intermediate_size": 2048, "num_hash_layers": 3, "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
    "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-6, "rope_theta": 10000,
    "compress_rope_theta": 160000, "rope_scaling": {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
    "original_max_position_embeddings": 65536}, "max_position_embeddings": 1048576, "num_nextn_predict_layers": 1,
    "hidden_act": "silu", "attention_bias": false, "attention_dropout": 0.0, "tie_word_embeddings": false,
    "initializer_range": 0.02, "use_cache": true, "bos_token_id": 0, "eos_token_id": 1, "expert_dtype": "fp4",
    "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
    "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}
}"#;

fn of(tokens: usize) -> PlanOf {
    PlanOf { conversations: 24, tokens, patches: 8 }
}

#[test]
fn shapes_give_the_bytes_and_the_arithmetic_of_the_model() {
    let config = flash();
    // 256 experts of 3 x 4096 x 2048 values, 17 bytes for 32 of them.
    let work = Work::of(&config, 8192);
    assert_eq!(work.experts, 256.0 * 3.0 * 4096.0 * 2048.0 * 17.0 / 32.0);
    assert!((work.checkpoint / 156e9 - 1.0).abs() < 0.02, "{}", work.checkpoint);
    // By hand for the whole model, GFLOP a token at these lengths.
    for (tokens, gflop) in [(512, 27.5), (2048, 28.1), (8192, 29.1), (32_768, 30.4)] {
        let found = Work::of(&config, tokens).flop / 1e9;
        assert!((found / gflop - 1.0).abs() < 0.04, "{tokens}: {found}, by hand {gflop}");
    }
}

#[test]
fn a_plan_keeps_to_the_memory_and_names_what_does_not_fit() {
    let work = Work::of(&flash(), 16_384);
    for machine in &MACHINES {
        match plan(&work, &of(16_384), machine) {
            Ok(p) => {
                assert!(p.memory <= machine.memory && p.sets >= 2, "{}", machine.name);
                // All eight patches are audited, in as many runs as it takes.
                let patches = if p.sets > 2 { p.sets - 2 } else { 1 };
                assert!(patches * p.runs >= 8 && patches * (p.runs - 1) < 8, "{}: {} {}", machine.name, p.sets, p.runs);
                assert!(p.seconds.iter().all(|s| *s > 0.0));
            }
            Err(tokens) => {
                // So many fit.
                assert!(tokens < 16_384.0, "{}", machine.name);
                assert!(plan(&work, &of(tokens as usize), machine).is_ok(), "{}", machine.name);
            }
        }
    }
    // Twice the conversations, twice the arithmetic.
    let twice = PlanOf { conversations: 48, ..of(2048) };
    let (one, two) =
        (plan(&work, &of(2048), &MACHINES[0]).ok().unwrap(), plan(&work, &twice, &MACHINES[0]).ok().unwrap());
    assert_eq!(two.seconds[0], 2.0 * one.seconds[0]);
}

/// docs/plan.md shows what the command prints.
#[test]
fn the_page_shows_what_is_printed() {
    let page = include_str!("../../../../docs/plan.md");
    let work = Work::of(&flash(), 16_384);
    let of = of(16_384);
    let plans: Vec<Fit<'_>> = MACHINES.iter().map(|m| plan(&work, &of, m)).collect();
    let printed = text(&work, &of, &plans);
    assert!(page.contains(&format!("```text\n{printed}\n```")), "docs/plan.md should show:\n{printed}");
}
