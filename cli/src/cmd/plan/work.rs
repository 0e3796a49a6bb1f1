//! What a model and an audit of it take, worked out from the config's shapes alone.

use karat_model::Config;
use karat_model::config::{ExpertDtype, LayerKind};

/// Bytes and arithmetic of a model, for conversations of so many tokens.
pub(super) struct Work {
    /// Bytes of the whole checkpoint.
    pub(super) checkpoint: f64,
    /// Bytes of its largest layer.
    pub(super) layer: f64,
    /// Of those the routed experts.
    pub(super) experts: f64,
    /// FLOP of a row in one forward pass, the mean over a conversation.
    pub(super) flop: f64,
    /// Bytes of a row in all taps of the widest layer, f32.
    pub(super) taps: f64,
    /// The same, all layers together.
    pub(super) taps_of_all: f64,
}

impl Work {
    pub(super) fn of(config: &Config, tokens: usize) -> Self {
        let layers: Vec<Layer> = config.layers.iter().map(|kind| Layer { config, kind: *kind, tokens }).collect();
        let bytes = |l: &Layer<'_>| l.experts() + l.rest();
        let (v, d) = (config.vocab_size as f64, config.hidden_size as f64);
        let logits = 4.0 * v;
        Self {
            // Embedding and head are bf16. Draft blocks are not audited.
            checkpoint: layers.iter().map(bytes).sum::<f64>() + 2.0 * 2.0 * v * d,
            layer: largest(layers.iter().map(bytes)),
            experts: largest(layers.iter().map(Layer::experts)),
            flop: layers.iter().map(Layer::flop).sum::<f64>() + 2.0 * v * d,
            taps: largest(layers.iter().map(Layer::taps)).max(logits),
            taps_of_all: layers.iter().map(Layer::taps).sum::<f64>() + logits,
        }
    }
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// One layer: everything is counted for one row, at the middle of a conversation.
struct Layer<'a> {
    config: &'a Config,
    kind: LayerKind,
    tokens: usize,
}

impl Layer<'_> {
    /// Entries that lie before the middle row.
    fn entries(&self) -> f64 {
        self.kind.ratio().map_or(0.0, |ratio| self.tokens as f64 / 2.0 / ratio as f64)
    }

    /// Values of weights that are stored in 8 bits, in 16 and in 32, without routed experts.
    fn weights(&self) -> (f64, f64, f64) {
        let c = self.config;
        let d = c.hidden_size;
        let heads = c.num_attention_heads * c.head_dim;
        let mut eight = c.q_lora_rank * d + heads * c.q_lora_rank + c.head_dim * d;
        eight += c.o_lora_rank * heads + d * c.o_groups * c.o_lora_rank + 3 * d * c.shared_intermediate_size();
        let mut sixteen = c.n_routed_experts * d + 2 * self.kind.series() * c.head_dim * d;
        if self.kind.has_indexer() {
            eight += c.index_n_heads * c.index_head_dim * c.q_lora_rank;
            sixteen += c.index_n_heads * d + 2 * 2 * c.index_head_dim * d;
        }
        let mixes = c.hc_mult * (2 + c.hc_mult);
        (eight as f64, sixteen as f64, (2 * mixes * c.hc_mult * d) as f64)
    }

    fn rest(&self) -> f64 {
        let (eight, sixteen, f32s) = self.weights();
        eight + 2.0 * sixteen + 4.0 * f32s
    }

    fn experts(&self) -> f64 {
        let c = self.config;
        let values = (3 * c.n_routed_experts * c.hidden_size * c.moe_intermediate_size) as f64;
        values
            * match c.expert_dtype {
                // Half a byte, and one byte of scale for 32 values.
                ExpertDtype::Fp4 => 0.5 + 1.0 / 32.0,
                ExpertDtype::Fp8 => 1.0,
            }
    }

    fn flop(&self) -> f64 {
        let c = self.config;
        let (eight, sixteen, f32s) = self.weights();
        let experts = (3 * c.num_experts_per_tok * c.hidden_size * c.moe_intermediate_size) as f64;
        // A query sees its window and the entries that were selected, or all of them; each is in two products.
        let seen = match self.kind {
            LayerKind::Sliding => 0.0,
            LayerKind::Csa { .. } => self.entries().min(c.index_topk as f64),
            LayerKind::Hca { .. } => self.entries(),
        } + (c.sliding_window.min(self.tokens)) as f64;
        let attention = 2.0 * seen * (c.num_attention_heads * c.head_dim) as f64;
        let scored = if self.kind.has_indexer() { self.entries() } else { 0.0 };
        let index = scored * (c.index_n_heads * c.index_head_dim) as f64;
        2.0 * (eight + sixteen + f32s + experts + attention + index)
    }

    /// Bytes of a row in the taps that `karat_seam` names, as f32.
    fn taps(&self) -> f64 {
        let c = self.config;
        let (d, hc) = (c.hidden_size, c.hc_mult);
        let heads = c.num_attention_heads * c.head_dim;
        let series = self.kind.series();
        // Streams twice; collapsed, normed and out of both branches, routed and shared; q and o; mixes.
        let mut values = 2 * hc * d + 8 * d + 2 * heads + 2 * (2 * hc + hc * hc) + c.q_lora_rank + c.head_dim;
        values += c.o_groups * c.o_lora_rank + c.num_attention_heads + 2 * series * c.head_dim;
        values += c.n_routed_experts + c.num_experts_per_tok * (3 + c.moe_intermediate_size);
        let mut ragged = 0.0;
        if self.kind.has_indexer() {
            values += c.index_n_heads * (c.index_head_dim + 1) + 4 * c.index_head_dim;
            // Scores of all entries, and which are attended.
            ragged = 2.0 * 2.0 * self.entries();
        }
        4.0 * (values as f64 + ragged)
    }
}
