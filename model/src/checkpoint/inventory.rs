//! The canonical inventory: every tensor that a config asks for, with its logical shape (spec section 4).

use crate::config::{Config, ExpertDtype, LayerKind};

/// What a tensor is, which decides how it may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A matrix `[rows, cols]` that a linear multiplies by (or the embedding table): plain, FP8 in blocks or packed FP4.
    /// The released storage is the second word.
    Linear(Storage),
    /// A norm's weight `[n]`, released as BF16.
    Norm,
    /// A parameter that the official code keeps in F32 (mHC, sinks, position biases, router bias).
    Parameter,
    /// Expert ids by token, integers.
    Ids,
}

/// How the released models store a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Storage {
    /// BF16 values.
    Bf16,
    /// E4M3 codes in blocks with E8M0 scales.
    Fp8,
    /// What `expert_dtype` says: packed FP4 with a scale per 32 columns, or FP8 in blocks.
    Expert,
}

/// One tensor that a config asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Canonical name; for [`Role::Linear`] and [`Role::Norm`] without `.weight`.
    pub name: String,
    /// Logical shape: packed codes count as elements.
    pub shape: Vec<usize>,
    /// What it is.
    pub role: Role,
}

impl Expected {
    /// Name of its values on disk in the released naming.
    pub fn disk_name(&self) -> String {
        match self.role {
            Role::Linear(_) | Role::Norm => format!("{}.weight", self.name),
            Role::Parameter | Role::Ids => self.name.clone(),
        }
    }

    /// Elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The tensors it consists of in the released format: name, safetensors dtype and stored shape.
    pub fn released(&self, config: &Config) -> Vec<(String, &'static str, Vec<usize>)> {
        let shape = self.shape.clone();
        let scale = format!("{}.scale", self.name);
        let fp8 = || {
            let [br, bc] = config.weight_block_size;
            let blocks = vec![self.shape[0].div_ceil(br), self.shape[1].div_ceil(bc)];
            vec![(self.disk_name(), "F8_E4M3", self.shape.clone()), (scale.clone(), "F8_E8M0", blocks)]
        };
        match self.role {
            Role::Linear(Storage::Fp8) => fp8(),
            Role::Linear(Storage::Expert) if config.expert_dtype == ExpertDtype::Fp8 => fp8(),
            Role::Linear(Storage::Expert) => vec![
                (self.disk_name(), "I8", vec![shape[0], shape[1] / 2]),
                (scale, "F8_E8M0", vec![shape[0], shape[1] / 32]),
            ],
            Role::Linear(Storage::Bf16) | Role::Norm => vec![(self.disk_name(), "BF16", shape)],
            Role::Parameter => vec![(self.disk_name(), "F32", shape)],
            Role::Ids => vec![(self.disk_name(), "I64", shape)],
        }
    }
}

/// Every tensor of a config, in canonical order: embedding, layers, MTP blocks, head.
pub fn expected_tensors(config: &Config) -> Vec<Expected> {
    let mut list = List { config, out: Vec::new() };
    let d = config.hidden_size;
    list.linear("embed", config.vocab_size, d, Storage::Bf16);
    for (l, kind) in config.layers.iter().enumerate() {
        list.block(&format!("layers.{l}"), *kind, config.is_hash_layer(l));
    }
    for (i, kind) in config.mtp.iter().enumerate() {
        let prefix = format!("mtp.{i}");
        list.block(&prefix, *kind, false);
        list.linear(&format!("{prefix}.e_proj"), d, d, Storage::Fp8);
        list.linear(&format!("{prefix}.h_proj"), d, d, Storage::Fp8);
        for norm in ["enorm", "hnorm", "norm"] {
            list.norm(&format!("{prefix}.{norm}"), d);
        }
        list.head_coefficients(&format!("{prefix}."));
    }
    list.head_coefficients("");
    list.norm("norm", d);
    list.linear("head", config.vocab_size, d, Storage::Bf16);
    list.out
}

struct List<'a> {
    config: &'a Config,
    out: Vec<Expected>,
}

impl List<'_> {
    fn add(&mut self, name: &str, shape: &[usize], role: Role) {
        self.out.push(Expected { name: name.to_string(), shape: shape.to_vec(), role });
    }

    fn linear(&mut self, name: &str, rows: usize, cols: usize, storage: Storage) {
        self.add(name, &[rows, cols], Role::Linear(storage));
    }

    fn norm(&mut self, name: &str, n: usize) {
        self.add(name, &[n], Role::Norm);
    }

    /// `hc_head_*` of the model or of an MTP block: fn `[hc, hc*D]`, base `[hc]`, scale `[1]`.
    fn head_coefficients(&mut self, prefix: &str) {
        let hc = self.config.hc_mult;
        self.add(&format!("{prefix}hc_head_fn"), &[hc, hc * self.config.hidden_size], Role::Parameter);
        self.add(&format!("{prefix}hc_head_base"), &[hc], Role::Parameter);
        self.add(&format!("{prefix}hc_head_scale"), &[1], Role::Parameter);
    }

    fn block(&mut self, prefix: &str, kind: LayerKind, hash: bool) {
        let (d, hc) = (self.config.hidden_size, self.config.hc_mult);
        // pre and post take hc coefficients each, comb hc*hc.
        let mixes = (2 + hc) * hc;
        for part in ["attn", "ffn"] {
            self.norm(&format!("{prefix}.{part}_norm"), d);
            self.add(&format!("{prefix}.hc_{part}_fn"), &[mixes, hc * d], Role::Parameter);
            self.add(&format!("{prefix}.hc_{part}_base"), &[mixes], Role::Parameter);
            self.add(&format!("{prefix}.hc_{part}_scale"), &[3], Role::Parameter);
        }
        self.attention(&format!("{prefix}.attn"), kind);
        self.experts(&format!("{prefix}.ffn"), hash);
    }

    fn attention(&mut self, prefix: &str, kind: LayerKind) {
        let c = self.config;
        let (d, h, hd, r) = (c.hidden_size, c.num_attention_heads, c.head_dim, c.q_lora_rank);
        let (g, o) = (c.o_groups, c.o_lora_rank);
        self.add(&format!("{prefix}.attn_sink"), &[h], Role::Parameter);
        self.linear(&format!("{prefix}.wq_a"), r, d, Storage::Fp8);
        self.norm(&format!("{prefix}.q_norm"), r);
        self.linear(&format!("{prefix}.wq_b"), h * hd, r, Storage::Fp8);
        self.linear(&format!("{prefix}.wkv"), hd, d, Storage::Fp8);
        self.norm(&format!("{prefix}.kv_norm"), hd);
        self.linear(&format!("{prefix}.wo_a"), g * o, h / g * hd, Storage::Fp8);
        self.linear(&format!("{prefix}.wo_b"), d, g * o, Storage::Fp8);
        let Some(ratio) = kind.ratio() else { return };
        self.compressor(&format!("{prefix}.compressor"), ratio, kind.series(), hd);
        if kind.has_indexer() {
            let (hi, di) = (c.index_n_heads, c.index_head_dim);
            self.linear(&format!("{prefix}.indexer.wq_b"), hi * di, r, Storage::Fp8);
            self.linear(&format!("{prefix}.indexer.weights_proj"), hi, d, Storage::Bf16);
            self.compressor(&format!("{prefix}.indexer.compressor"), ratio, kind.series(), di);
        }
    }

    fn compressor(&mut self, prefix: &str, ratio: usize, series: usize, dims: usize) {
        let d = self.config.hidden_size;
        self.add(&format!("{prefix}.ape"), &[ratio, series * dims], Role::Parameter);
        self.linear(&format!("{prefix}.wkv"), series * dims, d, Storage::Bf16);
        self.linear(&format!("{prefix}.wgate"), series * dims, d, Storage::Bf16);
        self.norm(&format!("{prefix}.norm"), dims);
    }

    fn experts(&mut self, prefix: &str, hash: bool) {
        let c = self.config;
        let (d, e, i) = (c.hidden_size, c.n_routed_experts, c.moe_intermediate_size);
        self.linear(&format!("{prefix}.gate"), e, d, Storage::Bf16);
        if hash {
            self.add(&format!("{prefix}.gate.tid2eid"), &[c.vocab_size, c.num_experts_per_tok], Role::Ids);
        } else {
            self.add(&format!("{prefix}.gate.bias"), &[e], Role::Parameter);
        }
        let expert = |list: &mut Self, prefix: &str, i: usize, storage: Storage| {
            list.linear(&format!("{prefix}.w1"), i, d, storage);
            list.linear(&format!("{prefix}.w2"), d, i, storage);
            list.linear(&format!("{prefix}.w3"), i, d, storage);
        };
        for n in 0..e {
            expert(self, &format!("{prefix}.experts.{n}"), i, Storage::Expert);
        }
        expert(self, &format!("{prefix}.shared_experts"), c.shared_intermediate_size(), Storage::Fp8);
    }
}
