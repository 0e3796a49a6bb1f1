//! Ranges and relations that every config must keep, so that no later code has to doubt a size.

use std::fmt;

use super::Config;
use crate::{Error, Result};

/// Largest compression ratio worth reading.
pub(super) const MAX_RATIO: usize = 1 << 16;

/// Largest number of routed expert matrices: far above any release, low enough that listing them costs little memory.
const MAX_EXPERTS_IN_ALL: usize = 1 << 17;

/// Layers and MTP blocks.
pub(super) const MAX_LAYERS: usize = 4096;

fn wrong(field: &str, what: &str, expected: impl fmt::Display, found: impl fmt::Display) -> Error {
    Error::input(what).at(field).expected(expected).found(found)
}

/// Checks a config that was read whole.
pub(super) fn check(c: &Config) -> Result<()> {
    sizes(c)?;
    numbers(c)?;
    relations(c)
}

fn sizes(c: &Config) -> Result<()> {
    let dim = 1 << 20;
    for (field, value, max) in [
        ("vocab_size", c.vocab_size, 1 << 24),
        ("hidden_size", c.hidden_size, dim),
        ("num_attention_heads", c.num_attention_heads, 1 << 14),
        ("head_dim", c.head_dim, 1 << 16),
        ("qk_rope_head_dim", c.qk_rope_head_dim, 1 << 16),
        ("q_lora_rank", c.q_lora_rank, dim),
        ("o_groups", c.o_groups, 1 << 14),
        ("o_lora_rank", c.o_lora_rank, dim),
        ("sliding_window", c.sliding_window, 1 << 24),
        ("n_routed_experts", c.n_routed_experts, 1 << 16),
        ("n_shared_experts", c.n_shared_experts, 64),
        ("num_experts_per_tok", c.num_experts_per_tok, 1 << 16),
        ("moe_intermediate_size", c.moe_intermediate_size, dim),
        ("hc_mult", c.hc_mult, 64),
        ("hc_sinkhorn_iters", c.hc_sinkhorn_iters, 1000),
        ("max_position_embeddings", c.max_position_embeddings, 1 << 31),
    ] {
        if !(1..=max).contains(&value) {
            return Err(wrong(field, "size out of range", format!("1 to {max}"), value));
        }
    }
    if c.layers.iter().any(|k| k.has_indexer()) {
        for (field, value, max) in [
            ("index_n_heads", c.index_n_heads, 1 << 14),
            ("index_head_dim", c.index_head_dim, 1 << 16),
            ("index_topk", c.index_topk, 1 << 24),
        ] {
            if !(1..=max).contains(&value) {
                return Err(wrong(field, "size out of range", format!("1 to {max}"), value));
            }
        }
    }
    let experts = (c.layers.len() + c.mtp.len()) * c.n_routed_experts;
    if experts > MAX_EXPERTS_IN_ALL {
        return Err(wrong(
            "n_routed_experts",
            "too many experts in all",
            format!("at most {MAX_EXPERTS_IN_ALL} over all layers"),
            experts,
        ));
    }
    if c.weight_block_size.iter().any(|b| *b == 0 || *b > dim) {
        let found = format!("{:?}", c.weight_block_size);
        return Err(wrong("quantization_config.weight_block_size", "size out of range", format!("1 to {dim}"), found));
    }
    Ok(())
}

fn numbers(c: &Config) -> Result<()> {
    let positive = [
        ("routed_scaling_factor", c.routed_scaling_factor),
        ("swiglu_limit", c.swiglu_limit),
        ("hc_eps", c.hc_eps),
        ("rms_norm_eps", c.rms_norm_eps),
        ("rope_scaling.factor", c.yarn.factor),
        ("rope_scaling.beta_fast", c.yarn.beta_fast),
        ("rope_scaling.beta_slow", c.yarn.beta_slow),
        ("rope_scaling.original_max_position_embeddings", c.yarn.original_max_position_embeddings),
    ];
    for (field, value) in positive {
        // f32 is what the forward pass computes in: outside its range the value would become 0 or infinity.
        if !(value >= f64::from(f32::MIN_POSITIVE) && value <= f64::from(f32::MAX)) {
            let hint =
                if field == "swiglu_limit" { "no limit is not an option: a limit of 0 is a known trap" } else { "" };
            let e = wrong(field, "number out of range", "a positive number that f32 can hold", value);
            return Err(if hint.is_empty() { e } else { e.hint(hint) });
        }
    }
    for (field, value) in [("rope_theta", c.rope_theta), ("compress_rope_theta", c.compress_rope_theta)] {
        if !(value > 1.0 && value <= f64::from(f32::MAX)) {
            return Err(wrong(field, "number out of range", "a base over 1", value));
        }
    }
    if c.yarn.factor < 1.0 {
        return Err(wrong("rope_scaling.factor", "number out of range", "at least 1", c.yarn.factor));
    }
    if c.yarn.beta_fast <= c.yarn.beta_slow {
        let expected = format!("more than beta_slow ({})", c.yarn.beta_slow);
        return Err(wrong("rope_scaling.beta_fast", "boundaries are the wrong way round", expected, c.yarn.beta_fast));
    }
    Ok(())
}

fn relations(c: &Config) -> Result<()> {
    let rope = c.qk_rope_head_dim;
    if !rope.is_multiple_of(2) {
        return Err(wrong("qk_rope_head_dim", "rotated dims come in pairs", "an even number", rope));
    }
    if rope > c.head_dim {
        return Err(wrong("qk_rope_head_dim", "more rotated dims than the head has", c.head_dim, rope));
    }
    if c.layers.iter().any(|k| k.has_indexer()) && rope > c.index_head_dim {
        let expected = format!("at most index_head_dim ({})", c.index_head_dim);
        return Err(wrong("qk_rope_head_dim", "more rotated dims than an indexer head has", expected, rope));
    }
    if !c.num_attention_heads.is_multiple_of(c.o_groups) {
        let expected = format!("a divisor of num_attention_heads ({})", c.num_attention_heads);
        return Err(wrong("o_groups", "heads don't divide into output groups", expected, c.o_groups));
    }
    if c.num_experts_per_tok > c.n_routed_experts {
        let expected = format!("at most n_routed_experts ({})", c.n_routed_experts);
        return Err(wrong(
            "num_experts_per_tok",
            "more experts a token than there are",
            expected,
            c.num_experts_per_tok,
        ));
    }
    for (field, id) in [("bos_token_id", c.bos_token_id), ("eos_token_id", c.eos_token_id)] {
        if id as usize >= c.vocab_size {
            return Err(wrong(field, "token outside the vocabulary", format!("under {}", c.vocab_size), id));
        }
    }
    Ok(())
}
