//! Which model shapes a set of rules can run (spec section 4, "Shape rules").

use karat_model::config::LayerKind;
use karat_model::{Config, Error, Result};

use super::numerics::{ACT_BLOCK, IndexFormat, KvFormat, Numerics, Product};
use super::stock::Stock;

/// Refuses shapes that the blocks of `rules` don't divide. The message names the first linear or tensor that fails.
pub(super) fn check(stock: Stock, rules: &Numerics, config: &Config) -> Result<()> {
    let divides = |name: String, channels: usize, block: usize, what: &str| {
        if channels.is_multiple_of(block) {
            return Ok(());
        }
        Err(Error::usage(format!("stock profile `{stock}` cannot run this model: {what}"))
            .at(name)
            .expected(format!("a multiple of {block}"))
            .found(channels)
            .hint("golden and `--stock none` run any shape"))
    };
    let blocks = config.layers.iter().enumerate().map(|(l, kind)| (format!("layers.{l}"), *kind));
    for (layer, kind) in blocks {
        let linear = |name: &str, product: Product, cols: usize| match product {
            Product::Coded(c) => {
                let what = "input features of a quantised linear";
                divides(format!("{layer}.{name}"), cols, c.act.block(cols).max(ACT_BLOCK.min(cols)), what)
            }
            Product::F32 | Product::Tf32 | Product::Bf16 | Product::Terms(_) => Ok(()),
        };
        let (d, r) = (config.hidden_size, config.q_lora_rank);
        linear("attn.wq_a", rules.dense, d)?;
        linear("attn.wq_b", rules.dense, r)?;
        linear("attn.wkv", rules.dense, d)?;
        linear("attn.wo_b", rules.dense, config.o_groups * config.o_lora_rank)?;
        linear("ffn.experts.0.w1", rules.experts, d)?;
        linear("ffn.experts.0.w2", rules.experts, config.moe_intermediate_size)?;
        linear("ffn.shared_experts.w1", rules.dense, d)?;
        linear("ffn.shared_experts.w2", rules.dense, config.shared_intermediate_size())?;
        if let KvFormat::Q8 { block, .. } = rules.kv {
            divides(format!("{layer}.attn.kv"), config.nope_head_dim(), block, "unrotated dims of a KV row")?;
        }
        if matches!(kind, LayerKind::Csa { .. }) {
            let di = config.index_head_dim;
            if let IndexFormat::Q4 { block } = rules.index.format {
                divides(format!("{layer}.attn.indexer"), di, block, "dims of an index head")?;
            }
            if let IndexFormat::Fp8 { block, .. } = rules.index.format
                && di > block
            {
                let what = "dims of an index head with one FP8 scale";
                return Err(Error::usage(format!("stock profile `{stock}` cannot run this model: {what}"))
                    .at(format!("{layer}.attn.indexer"))
                    .expected(format!("at most {block}"))
                    .found(di));
            }
            if rules.index.hadamard && !di.is_power_of_two() {
                return Err(Error::usage(format!(
                    "stock profile `{stock}` cannot run this model: dims of an index head"
                ))
                .at(format!("{layer}.attn.indexer"))
                .expected("a power of two, for the Hadamard rotation")
                .found(di));
            }
        }
    }
    Ok(())
}
