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
    /// Both operands rounded to TF32 (10 mantissa bits, ties away from zero).
    Tf32,
    /// Both operands rounded to bf16.
    Bf16,
    /// The weight as a sum of this many bf16 terms against activations rounded to bf16: three terms hold an f32.
    Terms(u8),
    /// Codes against codes with scales: see [`Coded`].
    Coded(Coded),
}

impl Product {
    /// Raw stored codes against Q8 activation codes of block 128 (spec 2.12). A weight that is stored without codes is
    /// multiplied as [`Product::Bf16`].
    pub const FP8: Self = Self::Coded(Coded { weight: WeightCodes::Stored, act: ActCodes::Q8 });
}

/// Formats of both operands of a product of codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Coded {
    /// The weight.
    pub weight: WeightCodes,
    /// The activations.
    pub act: ActCodes,
}

/// Codes of a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WeightCodes {
    /// As the checkpoint holds them (E4M3 or E2M1).
    Stored,
    /// Converted to E4M3 with one power-of-two scale for each 128 x 128 block.
    Fp8Blocks,
    /// Converted to E4M3 with one f32 scale for each output.
    Fp8Rows,
}

/// Codes of activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActCodes {
    /// E4M3, a power-of-two scale for 128 channels (spec 2.12).
    Q8,
    /// E4M3, a power-of-two scale for 32 channels (MXFP8).
    Mxfp8,
    /// E4M3, one f32 scale a row.
    Fp8Rows,
    /// E2M1, an E4M3 scale for 16 channels and one f32 scale a row (NVFP4).
    Nvfp4,
}

impl ActCodes {
    /// Channels that share a scale in a row of `cols`.
    pub(crate) fn block(self, cols: usize) -> usize {
        match self {
            Self::Q8 => ACT_BLOCK,
            Self::Mxfp8 => 32,
            Self::Fp8Rows => cols,
            Self::Nvfp4 => 16,
        }
    }
}

/// A product whose columns are spread over ranks or splits: each makes a partial sum, and the partial sums are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// How many.
    pub count: usize,
    /// Format of the partial sums and of every addition.
    pub store: Store,
    /// In which order they are added.
    pub order: Order,
}

/// The order of an all-reduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Part by part from the first.
    Ascending,
    /// A ring: the values lie in as many equal chunks as there are ranks, and chunk c is added from rank c + 1 on, once around.
    Ring,
}

impl Parts {
    /// One sum.
    pub const WHOLE: Self = Self { count: 1, store: Store::F32, order: Order::Ascending };
}

/// Where the routed scaling factor is multiplied in (spec section 6): exactly once in a right deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scaling {
    /// In the top-k of layers that route by score.
    pub topk: bool,
    /// In the top-k of layers that route by token id.
    pub hash_topk: bool,
    /// In the sum over the experts.
    pub combine: bool,
}

impl Scaling {
    /// In every top-k, as the official code.
    pub const TOPK: Self = Self { topk: true, hash_topk: true, combine: false };

    /// How often the factor reaches the routed sum in a layer that routes by token id, or by score.
    pub fn times(self, hash_layer: bool) -> u32 {
        u32::from(if hash_layer { self.hash_topk } else { self.topk }) + u32::from(self.combine)
    }
}

/// How the clamped SwiGLU is placed (spec 2.11, D10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swiglu {
    /// Gate and up are clamped as f32 accumulators, before anything is rounded.
    pub fused: bool,
    /// The shared expert clamps as the routed ones do.
    pub shared: bool,
}

/// Where the routing weight meets an expert (spec 2.11, D11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteWeight {
    /// Multiplied into the activation before the down projection and its quantisation: the official code.
    BeforeDown,
    /// Multiplied into the down projection's accumulator, before an expert's output is stored: fused kernels.
    AfterDown,
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
        /// What is quantised: the stored value, or the f32 value of the fused norm before it is stored (D3).
        source: Store,
    },
    /// All dims, the rotated ones too, as E4M3 with scale 1: the uniform record of one byte a dim.
    Uniform,
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
    /// Rounded to bf16, whatever the storage points do.
    Bf16,
    /// E4M3 codes with one scale a head.
    Fp8 {
        /// Most dims that can share a scale.
        block: usize,
        /// The scale is a power of two.
        pow2: bool,
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
        /// Keys in a page of the cache; a page that lies past the visible keys is not read. 0: not paged.
        page: usize,
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
    /// Format of the exponentials in the product with the values.
    pub p: Store,
    /// The exponential.
    pub exp: Exponential,
}

/// How a kernel evaluates e^x.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exponential {
    /// e^x to f32's last place.
    Exp,
    /// 2^x to the last place, log2(e) folded into the scale.
    Exp2,
    /// 2^x by a cubic polynomial on the fraction, log2(e) folded into the scale: 9e-5 of the value at most.
    Cubic,
}

/// Attention arithmetic (spec 2.9, D8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attend {
    /// One softmax over window and entries; the denominator sums unrounded exponentials.
    Fused {
        /// Format of the exponentials in the product with the values.
        p: Store,
    },
    /// Window and entries as two attentions without the sink, merged by log-sum-exp in f32; the sink comes third.
    Parted {
        /// Format of the exponentials in the product with the values.
        p: Store,
        /// Format of the two partial outputs.
        partials: Store,
    },
    /// The MMA split-K kernel: see `patches/mma_sparse_mla.rs`.
    SplitK(SplitK),
    /// Split-K with Q and P requantised to E4M3: see `patches/fp8_q_sparse_mla.rs`.
    Fp8Q {
        /// Most splits of the key axis.
        splits: usize,
        /// Keys in a tile.
        tile: usize,
        /// Format of a split's partial output.
        partials: Store,
    },
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
    /// Partial sums of wq_a and wkv, which one kernel may compute together.
    pub qkv_a: Parts,
    /// Partial sums over ranks: wo_b, w2, shared w2.
    pub reduce: Parts,
    /// Compressor wkv and wgate, main and indexer (spec 2.7, D6).
    pub compress: Product,
    /// Format of the compressor's rows and scores as its product leaves them.
    pub compress_store: Store,
    /// Format of the rows that a compressor carries from one step to the next.
    pub compress_state: Store,
    /// indexer.weights_proj.
    pub index_weights: Product,
    /// Router (spec 2.11, D11).
    pub router: Product,
    /// Format of the router logits.
    pub router_store: Store,
    /// Where the routed scaling factor is multiplied in.
    pub scaling: Scaling,
    /// Where the routing weight is multiplied in.
    pub route_weight: RouteWeight,
    /// lm head (spec 2.13, D13).
    pub lm_head: Product,
    /// Format of the logits.
    pub logits_store: Store,
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
    /// Clamp placement.
    pub swiglu: Swiglu,
}
