//! Names of both namings, against the table of spec section 4 written out by hand.

use crate::checkpoint::names::{Meaning, Part, meaning, to_transformers};

#[track_caller]
fn means(disk: &str, key: &str, part: Part) {
    match meaning(disk) {
        Meaning::Slot(slot) => assert_eq!((slot.key.as_str(), slot.part), (key, part), "{disk}"),
        other => panic!("{disk}: {other:?}"),
    }
}

/// Released name, transformers' name (after `model.`), as the renaming table of transformers 5.24 gives them.
const PAIRS: &[(&str, &str)] = &[
    ("embed.weight", "embed_tokens.weight"),
    ("head.weight", "lm_head.weight"),
    ("norm.weight", "norm.weight"),
    ("hc_head_fn", "hc_head.hc_fn"),
    ("hc_head_base", "hc_head.hc_base"),
    ("hc_head_scale", "hc_head.hc_scale"),
    ("layers.7.attn_norm.weight", "layers.7.input_layernorm.weight"),
    ("layers.7.ffn_norm.weight", "layers.7.post_attention_layernorm.weight"),
    ("layers.7.hc_attn_fn", "layers.7.attn_hc.fn"),
    ("layers.7.hc_attn_scale", "layers.7.attn_hc.scale"),
    ("layers.7.hc_ffn_base", "layers.7.ffn_hc.base"),
    ("layers.7.attn.attn_sink", "layers.7.self_attn.sinks"),
    ("layers.7.attn.wq_a.weight", "layers.7.self_attn.q_a_proj.weight"),
    ("layers.7.attn.wq_a.scale", "layers.7.self_attn.q_a_proj.weight_scale_inv"),
    ("layers.7.attn.q_norm.weight", "layers.7.self_attn.q_a_norm.weight"),
    ("layers.7.attn.wq_b.weight", "layers.7.self_attn.q_b_proj.weight"),
    ("layers.7.attn.wkv.weight", "layers.7.self_attn.kv_proj.weight"),
    ("layers.7.attn.kv_norm.weight", "layers.7.self_attn.kv_norm.weight"),
    ("layers.7.attn.wo_a.weight", "layers.7.self_attn.o_a_proj.weight"),
    ("layers.7.attn.wo_b.weight", "layers.7.self_attn.o_b_proj.weight"),
    ("layers.7.attn.compressor.ape", "layers.7.self_attn.compressor.position_bias"),
    ("layers.7.attn.compressor.wkv.weight", "layers.7.self_attn.compressor.kv_proj.weight"),
    ("layers.7.attn.compressor.wgate.weight", "layers.7.self_attn.compressor.gate_proj.weight"),
    ("layers.7.attn.compressor.norm.weight", "layers.7.self_attn.compressor.kv_norm.weight"),
    ("layers.7.attn.indexer.wq_b.weight", "layers.7.self_attn.compressor.indexer.q_b_proj.weight"),
    ("layers.7.attn.indexer.weights_proj.weight", "layers.7.self_attn.compressor.indexer.scorer.weights_proj.weight"),
    ("layers.7.attn.indexer.compressor.ape", "layers.7.self_attn.compressor.indexer.position_bias"),
    ("layers.7.attn.indexer.compressor.wkv.weight", "layers.7.self_attn.compressor.indexer.kv_proj.weight"),
    ("layers.7.attn.indexer.compressor.wgate.weight", "layers.7.self_attn.compressor.indexer.gate_proj.weight"),
    ("layers.7.attn.indexer.compressor.norm.weight", "layers.7.self_attn.compressor.indexer.kv_norm.weight"),
    ("layers.7.ffn.gate.weight", "layers.7.mlp.gate.weight"),
    ("layers.7.ffn.gate.bias", "layers.7.mlp.gate.e_score_correction_bias"),
    ("layers.7.ffn.gate.tid2eid", "layers.7.mlp.gate.tid2eid"),
    ("layers.7.ffn.shared_experts.w1.weight", "layers.7.mlp.shared_experts.gate_proj.weight"),
    ("layers.7.ffn.shared_experts.w2.weight", "layers.7.mlp.shared_experts.down_proj.weight"),
    ("layers.7.ffn.shared_experts.w3.scale", "layers.7.mlp.shared_experts.up_proj.weight_scale_inv"),
];

#[test]
fn both_namings_mean_the_same() {
    for &(released, other) in PAIRS {
        let want = meaning(released);
        assert!(matches!(want, Meaning::Slot(_)), "{released}");
        for prefix in ["", "model."] {
            assert_eq!(meaning(&format!("{prefix}{other}")), want, "{other}");
            assert_eq!(meaning(&format!("{prefix}{released}")), want, "{released}");
        }
        assert_eq!(to_transformers(released).as_deref(), Some(other));
    }
}

#[test]
fn experts_are_single_or_fused() {
    means("layers.3.ffn.experts.17.w1.weight", "layers.3.ffn.experts.17.w1", Part::Value);
    means("layers.3.ffn.experts.17.w2.scale", "layers.3.ffn.experts.17.w2", Part::Scale);
    means("model.layers.3.mlp.experts.17.up_proj.weight", "layers.3.ffn.experts.17.w3", Part::Value);
    means("layers.3.ffn.experts.17.w3.weight_scale", "layers.3.ffn.experts.17.w3", Part::Scale);
    means("layers.3.ffn.experts.17.w3.weight_scale_2", "layers.3.ffn.experts.17.w3", Part::Global);
    means("layers.3.ffn.experts.17.w3.input_scale", "layers.3.ffn.experts.17.w3", Part::Input);
    means("model.layers.3.mlp.experts.gate_up_proj", "layers.3.ffn.experts.gate_up_proj", Part::Value);
    means("model.layers.3.mlp.experts.gate_up_proj_scale_inv", "layers.3.ffn.experts.gate_up_proj", Part::Scale);
    means("model.layers.3.mlp.experts.down_proj", "layers.3.ffn.experts.down_proj", Part::Value);
    let fused = "layers.3.mlp.experts.gate_up_proj";
    assert_eq!(to_transformers("layers.3.ffn.experts.17.w1.weight").as_deref(), Some(fused));
    assert_eq!(to_transformers("layers.3.ffn.experts.17.w3.weight").as_deref(), Some(fused));
    let down = "layers.3.mlp.experts.down_proj_scale_inv";
    assert_eq!(to_transformers("layers.3.ffn.experts.17.w2.scale").as_deref(), Some(down));
    assert_eq!(to_transformers("mtp.0.e_proj.weight"), None);
}

#[test]
fn mtp_blocks_and_what_is_skipped() {
    means("mtp.0.e_proj.weight", "mtp.0.e_proj", Part::Value);
    means("mtp.0.norm.weight", "mtp.0.norm", Part::Value);
    means("mtp.0.hc_head_fn", "mtp.0.hc_head_fn", Part::Value);
    means("mtp.0.attn.wkv.scale", "mtp.0.attn.wkv", Part::Scale);
    for name in [
        "mtp.0.emb.tok_emb.weight",
        "mtp.0.head.weight",
        "dspark.layers.0.attn.wq_a.weight",
        "model.rotary_emb.inv_freq",
    ] {
        assert!(matches!(meaning(name), Meaning::Skip(_)), "{name}");
    }
}

#[test]
fn other_names_are_unknown() {
    for name in [
        "",
        "weight",
        "model.",
        "layers",
        "layers.0",
        "layers.0.",
        "layers.00.attn_norm.weight",
        "layers.-1.attn_norm.weight",
        "layers.99999999999999999999.attn_norm.weight",
        "layers.0.attn.wq_a",
        "layers.0.attn.wq_a.bias",
        "layers.0.attn.wqkv_a.weight",
        "layers.0.ffn.experts.0.w4.weight",
        "layers.0.ffn.experts.0.w1.weight_packed",
        "layers.0.ffn.experts.01.w1.weight",
        "layers.0.ffn.experts.gate_up_proj_blocks",
        "layers.0.e_proj.weight",
        "norm.scale",
    ] {
        assert_eq!(meaning(name), Meaning::Unknown, "{name}");
    }
}

proptest::proptest! {
    #[test]
    fn any_name_has_a_meaning(name in "[a-z0-9_.]{0,40}") {
        let _ = meaning(&name);
        let _ = to_transformers(&name);
    }

    #[test]
    fn names_near_the_right_ones_have_a_meaning(i in 0usize..36, cut in 0usize..60, tail in "[a-z0-9_.]{0,6}") {
        let name: String = PAIRS[i % PAIRS.len()].1.chars().take(cut).collect::<String>() + &tail;
        let _ = meaning(&name);
    }
}
