//! A checkpoint: memory-mapped bytes with names. It hands out raw tensors; decoding is each path's own business.

mod hash;
pub(crate) mod header;
mod index;
mod inventory;
mod names;
mod pages;
mod resolve;
mod source;
pub(crate) mod store;
pub(crate) mod structure;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

pub use inventory::{Expected, Role, Storage, expected_tensors};
pub use names::to_transformers;
pub use pages::Pages;
use pages::Users;
pub use source::tune_allocator;
use store::Store;
pub use structure::{Check, Finding, Severity};

use crate::{Config, Result};

/// Element type of a stored tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// 8-bit float, 4 exponent bits, no infinity.
    F8E4M3,
    /// Power-of-two scale.
    F8E8M0,
    /// Packed FP4 codes, two a byte (I8 or U8 on disk).
    Packed4,
    /// bfloat16.
    Bf16,
    /// 32-bit float.
    F32,
    /// 64-bit integer.
    I64,
    /// 32-bit integer.
    I32,
}

impl Dtype {
    /// Short name, as safetensors writes it where it has one.
    pub fn name(self) -> &'static str {
        match self {
            Self::F8E4M3 => "F8_E4M3",
            Self::F8E8M0 => "F8_E8M0",
            Self::Packed4 => "packed FP4",
            Self::Bf16 => "BF16",
            Self::F32 => "F32",
            Self::I64 => "I64",
            Self::I32 => "I32",
        }
    }
}

/// A stored tensor: little-endian bytes, perhaps not aligned for its element type.
#[derive(Debug, Clone)]
pub struct RawTensor<'a> {
    /// Name on disk (in transformers naming a fused tensor has one name for many parts).
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Shape in elements as stored; for `Packed4` the last axis counts bytes.
    pub shape: Vec<usize>,
    /// Row-major bytes.
    pub bytes: &'a [u8],
}

impl RawTensor<'_> {
    /// The values of an I64 or I32 tensor; empty for other dtypes.
    pub fn ids(&self) -> Vec<i64> {
        match self.dtype {
            Dtype::I64 => self.bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
            Dtype::I32 => self.bytes.as_chunks::<4>().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect(),
            _ => Vec::new(),
        }
    }
}

/// How a weight's values follow from its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// BF16 or F32 values as they are.
    Plain,
    /// E4M3 codes times `scale[row div block_rows, col div block_cols]` (E8M0, F32 or BF16 scales).
    Fp8Block {
        /// Rows and columns that share a scale.
        block: [usize; 2],
    },
    /// E2M1 codes (low nibble first) times an E8M0 scale per row and 32 columns.
    Mxfp4,
    /// E2M1 codes times an E4M3 scale per row and 16 columns times a global F32 scale.
    Nvfp4,
}

/// A linear's weight with everything needed to decode it.
#[derive(Debug, Clone)]
pub struct Weight<'a> {
    /// Canonical (released) name without `.weight`.
    pub name: String,
    /// Output features.
    pub rows: usize,
    /// Input features (logical: two a byte for packed codes).
    pub cols: usize,
    /// How values follow from bytes.
    pub encoding: Encoding,
    /// The codes or values.
    pub data: RawTensor<'a>,
    /// Block scales, shape `[ceil(rows/block_rows), ceil(cols/block_cols)]` or `[rows, cols/32]`, `[rows, cols/16]`.
    pub scale: Option<RawTensor<'a>>,
    /// NVFP4: F32 scalar that multiplies every block scale (`weight_scale_2`).
    pub global_scale: Option<RawTensor<'a>>,
    /// NVFP4: F32 scalar for activations (`input_scale`); unused by golden.
    pub input_scale: Option<RawTensor<'a>>,
}

/// A model on disk (or in memory): config, tensors, tokenizer, encoder texts.
pub struct Checkpoint {
    store: Store,
    /// Made when somebody asks for it.
    inventory: OnceLock<Vec<Expected>>,
    weights: OnceLock<[u8; 32]>,
    users: Users,
}

impl Checkpoint {
    /// Opens a model folder: config.json, `*.safetensors` (with index json when sharded); checks names, shapes, dtypes.
    ///
    /// # Errors
    /// The first thing that doesn't fit, by file and tensor. Of the values only expert ids are looked at, because they
    /// become indices; `verify` looks at all.
    pub fn open(dir: &Path) -> Result<Self> {
        Self::of(Store::open(dir)?)
    }

    /// A checkpoint from files held in memory (name to bytes), with the same checks.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_memory(label: &str, files: BTreeMap<String, Arc<[u8]>>) -> Result<Self> {
        Self::of(Store::from_memory(label, files)?)
    }

    fn of(mut store: Store) -> Result<Self> {
        let expected = structure::require(&store)?;
        structure::require_ids(&store, &expected)?;
        // Checked, and as long as the table of tensors.
        store.layout.map = None;
        Ok(Self { store, inventory: OnceLock::new(), weights: OnceLock::new(), users: Users::default() })
    }

    /// The config.
    pub fn config(&self) -> &Config {
        &self.store.config
    }

    /// Folder or label, for messages and provenance.
    pub fn label(&self) -> &str {
        &self.store.label
    }

    /// Every tensor of the model in canonical order; all of them are there.
    pub fn inventory(&self) -> &[Expected] {
        self.inventory.get_or_init(|| expected_tensors(self.config()))
    }

    /// Every stored tensor as file, dtype on disk and bytes, in file order.
    pub fn stored(&self) -> impl Iterator<Item = (&str, String, u64)> {
        let store = &self.store;
        store.entries.iter().enumerate().map(|(id, s)| (store.file(id), s.dtype.to_string(), s.range.len() as u64))
    }

    /// A side file (`tokenizer.json`, `encoding.json`, `config.json`), if the model has it.
    ///
    /// # Errors
    /// It can't be read, or the name leads out of the folder.
    pub fn side_file(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.store.side_file(name)
    }

    /// A plain tensor by its canonical name (`layers.0.attn_norm.weight`, `layers.0.hc_attn_fn`,
    /// `layers.0.ffn.gate.tid2eid`), whatever the naming on disk.
    ///
    /// # Errors
    /// The model has no such tensor.
    pub fn tensor(&self, canonical: &str) -> Result<RawTensor<'_>> {
        self.store.tensor(canonical.strip_suffix(".weight").unwrap_or(canonical)).map(|(t, _)| t)
    }

    /// A linear's weight by its canonical name without `.weight` (`layers.0.attn.wq_a`, `layers.2.ffn.experts.3.w1`,
    /// `layers.2.attn.compressor.wkv`, also `embed`, `head` and `layers.0.ffn.gate`), whatever naming, dtype or scale
    /// variant is on disk.
    ///
    /// # Errors
    /// The model has no such linear.
    pub fn linear(&self, canonical: &str) -> Result<Weight<'_>> {
        self.store.linear(canonical).map(|(w, _)| w)
    }

    /// sha256 of config.json's bytes.
    pub fn config_sha256(&self) -> [u8; 32] {
        hash::sha256(&self.store.config_bytes)
    }

    /// sha256 over all tensors (canonical order: name, dtype, shape, sha256 of the bytes), computed once. Naming and
    /// sharding on disk don't change it.
    pub fn weights_sha256(&self) -> [u8; 32] {
        *self.weights.get_or_init(|| {
            // Opening resolved every tensor of the inventory, so none can fail now.
            hash::weights(&self.store, &expected_tensors(self.config())).unwrap_or_default()
        })
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("label", &self.label())
            .field("tensors", &self.inventory().len())
            .finish_non_exhaustive()
    }
}
