//! config.json into [`Config`]: every field of spec section 1, both spellings, nothing silent.

use serde_json::{Value, json};

use super::fields::{Fields, agree};
use super::{Config, ExpertDtype, check, keys, quant, rope, schedule};
use crate::{Error, Result, json};

/// A config with what the file leaves open.
pub(crate) struct Reading {
    /// The config; `expert_dtype` is FP4 where the file doesn't say.
    pub(crate) config: Config,
    /// False when the file doesn't say how experts are stored (the initial release): the tensors decide then.
    pub(crate) says_expert_dtype: bool,
}

/// Largest config.json worth reading: the real ones have 2 kB.
const LIMIT: usize = 4 << 20;

/// Reads config.json; `name` names it in messages.
pub(crate) fn read(name: &str, bytes: &[u8]) -> Result<Reading> {
    let map = json::object(name, bytes, LIMIT)?;
    fields(&Fields::new("", &map)).map_err(|e| e.at(name))
}

fn fields(f: &Fields<'_>) -> Result<Reading> {
    architecture(f)?;
    let n_layers = f.need_usize("num_hidden_layers")?;
    let n_mtp = f.usize("num_nextn_predict_layers")?.unwrap_or(0);
    for (field, n, min) in [("num_hidden_layers", n_layers, 1), ("num_nextn_predict_layers", n_mtp, 0)] {
        if !(min..=check::MAX_LAYERS).contains(&n) {
            return Err(Error::input("size out of range")
                .at(field)
                .expected(format!("{min} to {}", check::MAX_LAYERS))
                .found(n));
        }
    }
    let (layers, mtp) = schedule::layers(f, n_layers, n_mtp)?;
    let head_dim = f.need_usize("head_dim")?;
    let rope = rope::read(f, head_dim)?;
    let quant = quant::read(f)?;
    let indexer = layers.iter().any(|k| k.has_indexer());
    // Only a model with an indexer has to say how large it is.
    let index = |key: &str| if indexer { f.need_usize(key) } else { Ok(f.usize(key)?.unwrap_or(0)) };
    let config = Config {
        vocab_size: f.need_usize("vocab_size")?,
        hidden_size: f.need_usize("hidden_size")?,
        mtp,
        num_attention_heads: f.need_usize("num_attention_heads")?,
        head_dim,
        qk_rope_head_dim: rope.head_dim,
        q_lora_rank: f.need_usize("q_lora_rank")?,
        o_groups: f.need_usize("o_groups")?,
        o_lora_rank: f.need_usize("o_lora_rank")?,
        sliding_window: f.need_usize("sliding_window")?,
        index_n_heads: index("index_n_heads")?,
        index_head_dim: index("index_head_dim")?,
        index_topk: index("index_topk")?,
        n_routed_experts: alias(f, "n_routed_experts", "num_local_experts")?,
        n_shared_experts: f.need_usize("n_shared_experts")?,
        num_experts_per_tok: f.need_usize("num_experts_per_tok")?,
        moe_intermediate_size: alias(f, "moe_intermediate_size", "intermediate_size")?,
        num_hash_layers: schedule::hash_layers(f, n_layers)?,
        layers,
        routed_scaling_factor: f.need_f64("routed_scaling_factor")?,
        swiglu_limit: f.need_f64("swiglu_limit")?,
        hc_mult: f.need_usize("hc_mult")?,
        hc_sinkhorn_iters: f.need_usize("hc_sinkhorn_iters")?,
        hc_eps: f.need_f64("hc_eps")?,
        rms_norm_eps: f.need_f64("rms_norm_eps")?,
        rope_theta: rope.theta,
        compress_rope_theta: rope.compress_theta,
        yarn: rope.yarn,
        max_position_embeddings: f.need_usize("max_position_embeddings")?,
        bos_token_id: token(f, "bos_token_id")?,
        eos_token_id: token(f, "eos_token_id")?,
        expert_dtype: quant.expert_dtype.unwrap_or(ExpertDtype::Fp4),
        weight_block_size: quant.weight_block_size,
    };
    fixed(f)?;
    if let Some(key) = f.unread().into_iter().find(|k| !keys::harmless(k)) {
        return Err(Error::input("unknown field").at(key).hint(keys::advice(key)));
    }
    check::check(&config)?;
    Ok(Reading { config, says_expert_dtype: quant.expert_dtype.is_some() })
}

/// `model_type` and `architectures` must name this architecture; V4.1 is another one.
fn architecture(f: &Fields<'_>) -> Result<()> {
    let hint = "karat knows DeepSeek-V4 only (Flash, Pro and models of the same shape)";
    match f.text("model_type")? {
        None => return Err(f.missing("model_type").expected("deepseek_v4").hint(hint)),
        Some("deepseek_v4") => {}
        Some(other) => {
            return Err(Error::input("another architecture")
                .at("model_type")
                .expected("deepseek_v4")
                .found(other)
                .hint(hint));
        }
    }
    for name in f.texts("architectures")?.unwrap_or_default() {
        if !matches!(name, "DeepseekV4ForCausalLM" | "DeepseekV4Model") {
            return Err(Error::input("another architecture")
                .at("architectures")
                .expected("DeepseekV4ForCausalLM")
                .found(name)
                .hint(hint));
        }
    }
    Ok(())
}

/// Fields of which the architecture knows one value.
fn fixed(f: &Fields<'_>) -> Result<()> {
    for key in ["scoring_func", "norm_topk_prob"] {
        if !f.has(key) {
            return Err(f.missing(key).hint("sqrtsoftplus and true in the released models"));
        }
    }
    let rules: [(&str, Value, &str); 12] = [
        ("scoring_func", json!("sqrtsoftplus"), "another score picks other experts (spec 2.11)"),
        ("topk_method", json!("noaux_tc"), "experts are picked by score plus bias, over all of them"),
        ("norm_topk_prob", json!(true), "weights are normalised over the picked experts"),
        ("hidden_act", json!("silu"), "experts are SwiGLU"),
        ("num_key_value_heads", json!(1), "one key-value head serves all query heads"),
        ("attention_bias", json!(false), "no projection of attention has a bias"),
        ("mlp_bias", json!(false), "no projection of an expert has a bias"),
        ("tie_word_embeddings", json!(false), "embedding and head are two tensors"),
        ("n_group", json!(1), "there is no group-limited routing in this architecture"),
        ("topk_group", json!(1), "there is no group-limited routing in this architecture"),
        ("first_k_dense_replace", json!(0), "every layer has experts"),
        ("moe_layer_freq", json!(1), "every layer has experts"),
    ];
    for (key, allowed, why) in rules {
        f.only(key, &allowed, why)?;
    }
    Ok(())
}

/// A size under its own name and transformers' generic one.
fn alias(f: &Fields<'_>, key: &str, other: &str) -> Result<usize> {
    agree((key, f.usize(key)?), (other, f.usize(other)?))?.ok_or_else(|| f.missing(key))
}

/// A token id: one number, or a list of one.
fn token(f: &Fields<'_>, key: &str) -> Result<u32> {
    let value = f.get(key).ok_or_else(|| f.missing(key))?;
    let one = match value {
        Value::Array(list) if list.len() == 1 => &list[0],
        other => other,
    };
    one.as_u64().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| f.wrong(key, "one token id", value))
}
