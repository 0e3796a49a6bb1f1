//! One layer's resident weights, decoded into the forms that the plan's rules need.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use karat_model::config::LayerKind;
use karat_model::{Checkpoint, Error, Result};

use crate::kernels::Held;
use crate::linear::{Linear, indices, values};
use crate::ops::compress::CompressorWeights;
use crate::ops::hc::HcWeights;
use crate::ops::route::Chooser;
use crate::plan::{Numerics, Product, Resolved, distinct};

/// Everything of a layer but its routed experts, which are decoded one at a time.
pub(crate) struct LayerWeights {
    pub hc_attn: HcWeights,
    pub hc_ffn: HcWeights,
    pub attn_norm: Vec<f32>,
    pub ffn_norm: Vec<f32>,
    pub q_norm: Vec<f32>,
    pub kv_norm: Vec<f32>,
    pub sink: Vec<f32>,
    pub wq_a: Linear,
    pub wq_b: Linear,
    pub wkv: Linear,
    pub wo_a: Linear,
    pub wo_b: Linear,
    pub compressor: Option<CompressorWeights>,
    pub indexer: Option<IndexerWeights>,
    pub gate: Linear,
    pub chooser: Chooser,
    /// w1, w2, w3.
    pub shared: [Linear; 3],
    /// What a kernel keeps of the routed experts.
    pub experts: Held,
}

/// CSA only.
pub(crate) struct IndexerWeights {
    pub wq_b: Linear,
    pub weights_proj: Linear,
    pub compressor: CompressorWeights,
}

/// Names and decodes tensors of one block.
struct Loader<'a> {
    checkpoint: &'a Checkpoint,
    plans: &'a [&'a Resolved],
    loads: &'a Loads,
    block: String,
}

impl Loader<'_> {
    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>> {
        vector(self.checkpoint, &format!("{}.{name}", self.block), len)
    }

    fn linear(&self, name: &str, rule: impl Fn(&Numerics) -> Product) -> Result<Linear> {
        self.loads.count();
        Linear::load(self.checkpoint, &format!("{}.{name}", self.block), &distinct(self.plans, rule))
    }

    fn hc(&self, part: &str) -> Result<HcWeights> {
        let config = self.checkpoint.config();
        let (mixes, width) = ((2 + config.hc_mult) * config.hc_mult, config.hc_mult * config.hidden_size);
        let name = |what: &str| format!("hc_{part}_{what}");
        let mix = self.vector(&name("fn"), mixes * width)?;
        Ok(HcWeights {
            values: mix.clone(),
            mix: Linear::dense(mix, width, &distinct(self.plans, |r| r.hc))?,
            base: self.vector(&name("base"), mixes)?,
            scale: self.vector(&name("scale"), 3)?,
        })
    }

    fn compressor(&self, prefix: &str, kind: LayerKind, hd: usize) -> Result<CompressorWeights> {
        let (ratio, overlap) = (kind.ratio().unwrap_or(0), kind.has_indexer());
        let width = if overlap { 2 * hd } else { hd };
        Ok(CompressorWeights {
            prefix: format!("{}.{prefix}", self.block),
            held: Held::default(),
            wkv: self.linear(&format!("{prefix}.wkv"), |r| r.compress)?,
            wgate: self.linear(&format!("{prefix}.wgate"), |r| r.compress)?,
            ape: self.vector(&format!("{prefix}.ape"), ratio * width)?,
            norm: self.vector(&format!("{prefix}.norm.weight"), hd)?,
            ratio,
            overlap,
        })
    }
}

/// A plain tensor of `len` numbers.
pub(crate) fn vector(checkpoint: &Checkpoint, name: &str, len: usize) -> Result<Vec<f32>> {
    let out = values(&checkpoint.tensor(name)?)?;
    if out.len() != len {
        return Err(Error::input("tensor has the wrong number of elements").at(name).expected(len).found(out.len()));
    }
    Ok(out)
}

impl LayerWeights {
    /// Decodes layer `l` (MTP blocks follow the layers) into the forms that all these plans need.
    pub(crate) fn load(checkpoint: &Checkpoint, plans: &[&Resolved], l: u16, loads: &Loads) -> Result<Self> {
        let config = checkpoint.config();
        let kind = super::kind_of(config, l);
        let at = Loader { checkpoint, plans, loads, block: super::name_of(config, l) };
        let d = config.hidden_size;
        let compressor = match kind {
            LayerKind::Sliding => None,
            _ => Some(at.compressor("attn.compressor", kind, config.head_dim)?),
        };
        let indexer = if kind.has_indexer() {
            Some(IndexerWeights {
                wq_b: at.linear("attn.indexer.wq_b", |r| r.dense)?,
                weights_proj: at.linear("attn.indexer.weights_proj", |r| r.index_weights)?,
                compressor: at.compressor("attn.indexer.compressor", kind, config.index_head_dim)?,
            })
        } else {
            None
        };
        let shared = |w: &str| at.linear(&format!("ffn.shared_experts.{w}"), |r| r.dense);
        Ok(Self {
            hc_attn: at.hc("attn")?,
            hc_ffn: at.hc("ffn")?,
            attn_norm: at.vector("attn_norm.weight", d)?,
            ffn_norm: at.vector("ffn_norm.weight", d)?,
            q_norm: at.vector("attn.q_norm.weight", config.q_lora_rank)?,
            kv_norm: at.vector("attn.kv_norm.weight", config.head_dim)?,
            sink: at.vector("attn.attn_sink", config.num_attention_heads)?,
            wq_a: at.linear("attn.wq_a", |r| r.dense)?,
            wq_b: at.linear("attn.wq_b", |r| r.dense)?,
            wkv: at.linear("attn.wkv", |r| r.dense)?,
            wo_a: at.linear("attn.wo_a", |r| r.wo_a)?,
            wo_b: at.linear("attn.wo_b", |r| r.dense)?,
            compressor,
            indexer,
            gate: at.linear("ffn.gate", |r| r.router)?,
            chooser: Self::chooser(&at, l)?,
            shared: [shared("w1")?, shared("w2")?, shared("w3")?],
            experts: Held::default(),
        })
    }

    fn chooser(at: &Loader<'_>, l: u16) -> Result<Chooser> {
        let config = at.checkpoint.config();
        // MTP blocks route by score.
        if usize::from(l) >= config.layers.len() || !config.is_hash_layer(usize::from(l)) {
            return Ok(Chooser::Scored(at.vector("ffn.gate.bias", config.n_routed_experts)?));
        }
        let name = format!("{}.ffn.gate.tid2eid", at.block);
        let table = indices(&at.checkpoint.tensor(&name)?)?;
        let len = config.vocab_size * config.num_experts_per_tok;
        if table.len() != len {
            return Err(Error::input("table has the wrong size").at(name).expected(len).found(table.len()));
        }
        if let Some(bad) = table.iter().find(|e| **e as usize >= config.n_routed_experts) {
            let experts = config.n_routed_experts;
            return Err(Error::input("expert out of range").at(name).expected(format!("under {experts}")).found(bad));
        }
        Ok(Chooser::Hash(table))
    }
}

/// How many linears were decoded, and how long reading and decoding weights took.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    linears: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Loads {
    /// One more linear.
    pub(crate) fn count(&self) {
        self.linears.fetch_add(1, Ordering::Relaxed);
    }

    /// Linears so far.
    pub(crate) fn total(&self) -> u64 {
        self.linears.load(Ordering::Relaxed)
    }

    /// Runs something that reads and decodes weights.
    pub(crate) fn timed<T>(&self, load: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let loaded = load();
        self.nanoseconds.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        loaded
    }

    /// The same for one of as many as there are threads, which run side by side.
    pub(crate) fn timed_beside<T>(&self, load: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let loaded = load();
        let share = start.elapsed().as_nanos() as u64 / rayon::current_num_threads().max(1) as u64;
        self.nanoseconds.fetch_add(share, Ordering::Relaxed);
        loaded
    }

    /// Time of that so far.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }
}
