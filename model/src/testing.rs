//! Small checkpoints built by hand for this crate's tests: seeded bytes in the released format, then edited.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::checkpoint::{Role, expected_tensors};
use crate::{Checkpoint, Config, Result};

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// A checkpoint to be written.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) config: Value,
    pub(crate) tensors: Vec<Tensor>,
}

/// Three layers (one of each kind, the first with hash routing) and an MTP block; blocks of 16x32 so that several
/// scales and partial edges occur (head_dim 40: 80 rows and 40 rows don't divide into 16 and 32).
pub(crate) fn config() -> Value {
    let mut v: Value = serde_json::from_str(
        r#"{"model_type": "deepseek_v4", "vocab_size": 24, "hidden_size": 64, "num_hidden_layers": 3,
        "num_attention_heads": 2, "head_dim": 40, "qk_rope_head_dim": 8, "q_lora_rank": 48, "o_groups": 2,
        "o_lora_rank": 16, "sliding_window": 8, "compress_ratios": [0, 4, 128, 0], "index_n_heads": 2,
        "index_head_dim": 16, "index_topk": 4, "n_routed_experts": 3, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "num_hash_layers": 1, "scoring_func": "sqrtsoftplus", "norm_topk_prob": true,
        "routed_scaling_factor": 1.5, "swiglu_limit": 2.0, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6,
        "rms_norm_eps": 1e-6, "rope_theta": 10000, "compress_rope_theta": 160000, "max_position_embeddings": 4096}"#,
    )
    .unwrap();
    v["num_nextn_predict_layers"] = json!(1);
    v["bos_token_id"] = json!(0);
    v["eos_token_id"] = json!(1);
    v["expert_dtype"] = json!("fp4");
    v["rope_scaling"] = json!({"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
        "original_max_position_embeddings": 65536});
    v["quantization_config"] = json!({"quant_method": "fp8", "weight_block_size": [16, 32]});
    v
}

/// A plain generator: the bytes only have to differ from each other.
struct Bytes(u64);

impl Bytes {
    fn next(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 56) as u8
    }
}

impl Model {
    /// The model of [`config`] in the released format, with finite values everywhere.
    pub(crate) fn new() -> Self {
        Self::of(config())
    }

    /// Another config's model.
    pub(crate) fn of(config: Value) -> Self {
        let parsed = Config::from_json(config.to_string().as_bytes()).unwrap();
        let mut random = Bytes(7);
        let mut tensors = Vec::new();
        for e in expected_tensors(&parsed) {
            for (name, dtype, shape) in e.released(&parsed) {
                let n: usize = shape.iter().product();
                let bytes = match (dtype, e.role) {
                    // No NaN code.
                    ("F8_E4M3", _) => {
                        (0..n).map(|_| Some(random.next()).filter(|b| b & 0x7F != 0x7F).unwrap_or(0x30)).collect()
                    }
                    ("F8_E8M0", _) => (0..n).map(|_| 118 + random.next() % 4).collect(),
                    ("I8", _) => (0..n).map(|_| random.next()).collect(),
                    // Exponents near 1, so that all are finite and normal.
                    ("BF16", _) => (0..n).flat_map(|_| [random.next(), 0x3E | random.next() & 0x81]).collect(),
                    ("F32", _) => (0..n)
                        .flat_map(|_| [random.next(), random.next(), random.next(), 0x3E | random.next() & 0x80])
                        .collect(),
                    ("I64", Role::Ids) => (0..n as i64).flat_map(|i| (i % 3).to_le_bytes()).collect(),
                    other => panic!("{other:?}"),
                };
                tensors.push(Tensor { name, dtype: dtype.to_string(), shape, bytes });
            }
        }
        Self { config, tensors }
    }

    /// A tensor by its name on disk.
    pub(crate) fn get(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|t| t.name == name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// Takes a tensor out.
    pub(crate) fn take(&mut self, name: &str) -> Tensor {
        let i = self.tensors.iter().position(|t| t.name == name).unwrap_or_else(|| panic!("no tensor {name}"));
        self.tensors.remove(i)
    }

    /// Puts a tensor in.
    pub(crate) fn put(&mut self, name: &str, dtype: &str, shape: &[usize], bytes: Vec<u8>) {
        self.tensors.push(Tensor { name: name.to_string(), dtype: dtype.to_string(), shape: shape.to_vec(), bytes });
    }

    /// config.json and one shard.
    pub(crate) fn files(&self) -> BTreeMap<String, Arc<[u8]>> {
        let tensors: Vec<&Tensor> = self.tensors.iter().collect();
        [
            ("config.json".to_string(), self.config.to_string().into_bytes().into()),
            ("model.safetensors".to_string(), safetensors(&tensors).into()),
        ]
        .into()
    }

    /// config.json, two shards (every other tensor) and their index.
    pub(crate) fn sharded(&self) -> BTreeMap<String, Arc<[u8]>> {
        let mut files = self.files();
        files.remove("model.safetensors");
        let mut map = serde_json::Map::new();
        for shard in 0..2 {
            let name = format!("model-{:05}-of-00002.safetensors", shard + 1);
            let mine: Vec<&Tensor> = self.tensors.iter().skip(shard).step_by(2).collect();
            for t in &mine {
                map.insert(t.name.clone(), json!(name));
            }
            files.insert(name, safetensors(&mine).into());
        }
        let total: usize = self.tensors.iter().map(|t| t.bytes.len()).sum();
        let index = json!({"metadata": {"total_size": total}, "weight_map": map});
        files.insert("model.safetensors.index.json".to_string(), index.to_string().into_bytes().into());
        files
    }

    /// Opens it from memory.
    pub(crate) fn open(&self) -> Result<Checkpoint> {
        Checkpoint::from_memory("made", self.files())
    }

    /// The message with which opening fails.
    #[track_caller]
    pub(crate) fn refused(&self) -> String {
        self.open().expect_err("must be refused").to_string()
    }
}

/// A safetensors file, by the format's definition: header length, JSON header, bytes in order.
pub(crate) fn safetensors(tensors: &[&Tensor]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for t in tensors {
        let start = data.len();
        data.extend(&t.bytes);
        let record = json!({"dtype": t.dtype, "shape": t.shape, "data_offsets": [start, data.len()]});
        header.insert(t.name.clone(), record);
    }
    file(&Value::Object(header).to_string(), &data)
}

/// A safetensors file with any header.
pub(crate) fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend(data);
    out
}
