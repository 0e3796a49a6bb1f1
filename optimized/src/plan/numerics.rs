//! The numeric rules of one phase, as data: one field for each place where an engine can round.
//!
//! A stock profile is a value of [`Numerics`]; a speed patch edits it. Ops read the rules and never know who set them.

/// Channels that share an activation scale in [`Product::Fp8`].
pub(crate) const ACT_BLOCK: usize = 128;

/// Format in which every activation is stored between ops: the B() of the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// No rounding.
    F32,
    /// Round to bf16 at every storage point.
    Bf16,
}

impl Store {
    /// True when storage points round.
    pub fn rounds(self) -> bool {
        self == Self::Bf16
    }
}

/// Operands of a matrix product. Accumulation is f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Product {
    /// Dequantised weights and unrounded activations in f32.
    F32,
    /// Both operands rounded to bf16.
    Bf16,
    /// Raw E4M3 (or E2M1) weight codes against Q8 activation codes of block 128, scales per block (spec 2.12). A weight
    /// that is stored without codes is multiplied as [`Product::Bf16`].
    Fp8,
}

/// Precision of the per-head query norm (spec 2.5, D2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryNorm {
    /// f32 inside, fused with rope: one rounding after both.
    Fused,
    /// Square, mean, +eps, rsqrt and product each rounded to bf16.
    Bf16Chain,
}

/// What is done to the nope part of kv rows and entries before they are stored (spec 2.5, 2.7, D3, D4).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KvFormat {
    /// Stored as any activation.
    Stored,
    /// Q8 with power-of-two scales, from the stored (rounded) values.
    Q8 {
        /// Channels that share a scale.
        block: usize,
        /// Smallest block maximum.
        floor: f32,
    },
}

/// Format of index queries and keys (spec 2.8, D7).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum IndexFormat {
    /// Stored as any activation.
    Stored,
    /// Q4 with power-of-two scales.
    Q4 {
        /// Dims that share a scale.
        block: usize,
    },
    /// E4M3 codes with one f32 scale a block.
    Fp8 {
        /// Dims that share a scale (the whole head where it is smaller).
        block: usize,
    },
}

/// Arithmetic of the index scores (spec 2.8, D7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexScore {
    /// f32 throughout.
    F32,
    /// q.k, product with the head weight and the sum over heads each rounded to bf16.
    Bf16Chain,
    /// Raw codes: q's scale folded into the head weight, the key's scale applied after the sum; f32 logits.
    Folded {
        /// Round each q.k to bf16 before relu.
        bf16_product: bool,
    },
}

/// How an index head is prepared and scored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IndexRule {
    /// Rotate queries and keys by the Hadamard matrix.
    pub hadamard: bool,
    /// Format of queries and keys as scored.
    pub format: IndexFormat,
    /// Score arithmetic.
    pub score: IndexScore,
}

/// Split-K attention over tiles of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitK {
    /// Most splits of the key axis; each is a whole number of tiles.
    pub splits: usize,
    /// Keys in a tile: the running maximum moves once a tile.
    pub tile: usize,
    /// Format of a split's partial output.
    pub partials: Store,
    /// The softmax scale is multiplied into q and rounded to bf16 before q.k.
    pub fold_scale: bool,
    /// exp2 with log2(e) folded into the scale, instead of exp.
    pub exp2: bool,
}

/// Attention arithmetic (spec 2.9, D8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attend {
    /// One softmax over window and entries; the denominator sums unrounded exponentials.
    Fused {
        /// Format of the exponentials in the product with the values.
        p: Store,
    },
    /// The MMA split-K kernel: see `patches/mma_sparse_mla.rs`.
    SplitK(SplitK),
}

/// Which format each op computes and stores in, for one phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Numerics {
    /// Storage points.
    pub store: Store,
    /// The mHC mixing product `f @ fn^T` of the blocks (spec 2.3).
    pub hc: Product,
    /// wq_a, wq_b, wkv, wo_b, indexer.wq_b, shared w1 to w3.
    pub dense: Product,
    /// wo_a (spec 2.10, D9).
    pub wo_a: Product,
    /// Routed w1 to w3.
    pub experts: Product,
    /// Compressor wkv and wgate, main and indexer (spec 2.7, D6).
    pub compress: Product,
    /// indexer.weights_proj.
    pub index_weights: Product,
    /// Router (spec 2.11, D11).
    pub router: Product,
    /// lm head (spec 2.13, D13).
    pub lm_head: Product,
    /// Per-head query norm.
    pub query_norm: QueryNorm,
    /// KV rows and entries.
    pub kv: KvFormat,
    /// Indexer.
    pub index: IndexRule,
    /// Attention.
    pub attend: Attend,
    /// Smallest block maximum of an activation.
    pub act_floor: f32,
    /// The shared expert clamps as the routed ones do (spec 2.11, D10).
    pub shared_clamp: bool,
}
