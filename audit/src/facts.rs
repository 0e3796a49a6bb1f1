//! What the audit must know about the model beside what flows through the seam.

use karat_model::checkpoint::Dtype;
use karat_model::{Checkpoint, Error, Result};
use karat_seam::Op;

/// Facts by layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// One entry a layer; those of MTP blocks follow.
    pub layers: Vec<LayerFacts>,
    /// Constants of the config that a wrong factor may be, by name.
    pub constants: Vec<(String, f64)>,
    /// Tokens of the sliding window; 0 where it is not known.
    pub window: usize,
}

/// Facts about one layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LayerFacts {
    /// Tokens an entry stands for; `None` for a sliding layer.
    pub ratio: Option<u32>,
    /// True when entries are selected by score (CSA): a decision that noise may flip.
    pub selects_entries: bool,
    /// Number of routed experts.
    pub experts: usize,
    /// Experts a token.
    pub experts_per_token: usize,
    /// True when experts follow from the token id: no decision, and no noise may change it.
    pub hash_routing: bool,
    /// `[E]` selection bias; empty for hash routing.
    pub bias: Vec<f32>,
}

impl LayerFacts {
    /// True when such a layer has the op (a sliding layer has no compressor, an HCA layer no indexer).
    pub fn has_op(&self, op: Op) -> bool {
        match op {
            Op::CompressProject | Op::CompressPool | Op::Select => self.ratio.is_some(),
            Op::IndexProject | Op::IndexPool | Op::IndexQuery | Op::IndexWeights | Op::IndexScore => {
                self.selects_entries
            }
            _ => true,
        }
    }
}

impl Facts {
    /// Reads them from a checkpoint.
    pub fn of(checkpoint: &Checkpoint) -> Result<Self> {
        let config = checkpoint.config();
        let mut layers = Vec::new();
        let names = (0..config.layers.len()).map(|l| format!("layers.{l}"));
        let names = names.chain((0..config.mtp.len()).map(|i| format!("mtp.{i}")));
        for (l, (kind, name)) in config.layers.iter().chain(&config.mtp).zip(names).enumerate() {
            let hash = l < config.layers.len() && config.is_hash_layer(l);
            layers.push(LayerFacts {
                ratio: kind.ratio().map(|r| r as u32),
                selects_entries: kind.has_indexer(),
                experts: config.n_routed_experts,
                experts_per_token: config.num_experts_per_tok,
                hash_routing: hash,
                bias: if hash { Vec::new() } else { plain(checkpoint, &format!("{name}.ffn.gate.bias"))? },
            });
        }
        let constants = [
            ("routed_scaling_factor", config.routed_scaling_factor),
            ("head_dim^-0.5 (softmax scale)", (config.head_dim as f64).powf(-0.5)),
            ("index_head_dim^-0.5", (config.index_head_dim as f64).powf(-0.5)),
            ("index_n_heads^-0.5", (config.index_n_heads as f64).powf(-0.5)),
            ("hc_mult", config.hc_mult as f64),
            ("hc_sinkhorn_iters", config.hc_sinkhorn_iters as f64),
            ("num_experts_per_tok", config.num_experts_per_tok as f64),
            ("o_groups", config.o_groups as f64),
            ("2", 2.0),
            ("-1 (a sign)", -1.0),
        ];
        let constants = constants.map(|(name, value)| (name.to_string(), value)).into();
        Ok(Self { layers, constants, window: config.sliding_window })
    }

    pub(crate) fn layer(&self, l: u16) -> LayerFacts {
        self.layers.get(usize::from(l)).cloned().unwrap_or_default()
    }
}

/// Values of a plain F32 or BF16 tensor.
pub(crate) fn plain(checkpoint: &Checkpoint, name: &str) -> Result<Vec<f32>> {
    let raw = checkpoint.tensor(name)?;
    match raw.dtype {
        Dtype::F32 => Ok(raw.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()),
        Dtype::Bf16 => Ok(raw.bytes.chunks_exact(2).map(|b| f32::from_le_bytes([0, 0, b[0], b[1]])).collect()),
        other => {
            let error = Error::input("the selection bias has an element type that no router reads");
            Err(error.at(name).expected("F32 or BF16").found(format!("{other:?}")))
        }
    }
}
