//! Weights of a block, decoded from the checkpoint and packed for the kernels. Everything of a resident block is held
//! once in f32 (or f64) except its routed experts and large linears, which are decoded where they are used, a few panels at a
//! time, or as a whole by a backend.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use karat_model::config::LayerKind;
use karat_model::{Checkpoint, Config, Error, Result};

use crate::decode::{Decoder, plain_f32, plain_index};
use crate::linalg::{Isa, Packed, Real};
use crate::linear::{LARGE, Linear, StoredLinear};
use crate::ops::compress::CompressorWeights;
use crate::ops::experts::{ExpertWeights, Matrices, SharedWeights, Undecoded};
use crate::ops::hc_coefficients::HcWeights;
use crate::ops::head::HeadWeights;
use crate::ops::mtp_input::MtpWeights;
use crate::ops::route::{Choice, RouterWeights};

/// Rows `first..first+n` of a stored weight, packed. A value that is NaN or infinite is an input error: golden on a
/// damaged checkpoint would be no measure of anything.
pub(crate) fn pack<T: Real>(isa: Isa, weight: &Decoder<'_>, first: usize, n: usize) -> Result<Packed<T>> {
    finite(weight, first..first + n)?;
    Ok(Packed::of_stored(isa, weight, first, n))
}

/// Refuses rows of a weight that have a value which is NaN or infinite; the message names the lowest.
pub(crate) fn finite(weight: &Decoder<'_>, rows: Range<usize>) -> Result<()> {
    weight.bad_row(rows).map_or(Ok(()), |row| Err(not_finite(weight.name(), row)))
}

/// The error about a weight with a value that is no number; `at` is its row or index.
pub(crate) fn not_finite(name: &str, at: usize) -> Error {
    Error::input("weight is NaN or infinite")
        .at(format!("{name}[{at}]"))
        .hint("the file is damaged; `karat model verify` lists every such value")
}

/// Reads tensors under one prefix (`layers.3`, `mtp.0`, or nothing for the ends of the model).
#[derive(Clone)]
pub(crate) struct Loader<'a> {
    checkpoint: &'a Checkpoint,
    prefix: String,
    isa: Isa,
    /// Values from which a linear is decoded as it is multiplied.
    large: usize,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(checkpoint: &'a Checkpoint, prefix: impl Into<String>, isa: Isa) -> Self {
        Self { checkpoint, prefix: prefix.into(), isa, large: LARGE }
    }

    /// Has linears of so many values decoded as they are multiplied.
    #[cfg(test)]
    pub(crate) fn large_from(mut self, values: usize) -> Self {
        self.large = values;
        self
    }

    fn name(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_string() } else { [&self.prefix, ".", name].concat() }
    }

    fn config(&self) -> &'a Config {
        self.checkpoint.config()
    }

    /// A linear's weight, still encoded, of shape `[n,k]`.
    pub(crate) fn decoder(&self, name: &str, n: usize, k: usize) -> Result<Decoder<'a>> {
        let decoder = Decoder::new(self.checkpoint.linear(&self.name(name))?)?;
        let found = [decoder.rows(), decoder.cols()];
        if found == [n, k] {
            return Ok(decoder);
        }
        let error = Error::input("a weight does not have the shape that the config asks for");
        Err(error.at(decoder.name()).expected(format!("[{n}, {k}]")).found(format!("{found:?}")))
    }

    /// A linear's weight `[n,k]`.
    fn linear<T: Real>(&self, name: &str, n: usize, k: usize) -> Result<Packed<T>> {
        let weight = self.decoder(name, n, k)?;
        let packed = pack(self.isa, &weight, 0, n).map_err(|e| e.at(self.checkpoint.label()));
        self.done_with(&weight);
        packed
    }

    /// Gives the pages of a weight back.
    fn done_with(&self, weight: &Decoder<'_>) {
        weight.stored().for_each(|bytes| self.checkpoint.done_with(bytes));
    }

    /// The same, to be decoded as it is multiplied.
    fn stored(&self, name: &str, n: usize, k: usize) -> Result<StoredLinear<'a>> {
        let mut parts = StoredLinear::parts(self.checkpoint, self.decoder(name, n, k)?, 1)?;
        parts.pop().ok_or_else(|| Error::input("a weight without rows").at(self.name(name)))
    }

    /// A linear's weight `[parts * n,k]` in parts: packed, unless it is large and not to be kept.
    fn parts<T: Real>(&self, name: &str, [parts, n, k]: [usize; 3], keep: bool) -> Result<Vec<Linear<'a, T>>> {
        let weight = self.decoder(name, parts * n, k)?;
        if !keep && parts * n * k >= self.large {
            let stored = StoredLinear::parts(self.checkpoint, weight, parts)?;
            return Ok(stored.into_iter().map(Linear::Stored).collect());
        }
        let pack = |part| pack(self.isa, &weight, part * n, n).map_err(|e| e.at(self.checkpoint.label()));
        let packed = (0..parts).map(|part| pack(part).map(Linear::Packed)).collect();
        self.done_with(&weight);
        packed
    }

    /// The same in one part.
    fn whole<T: Real>(&self, name: &str, [n, k]: [usize; 2], keep: bool) -> Result<Linear<'a, T>> {
        let mut parts = self.parts(name, [1, n, k], keep)?;
        parts.pop().ok_or_else(|| Error::input("a weight without rows").at(self.name(name)))
    }

    /// A plain tensor of `count` values.
    fn plain<T: Real>(&self, name: &str, count: usize) -> Result<Vec<T>> {
        let values = plain_f32(&self.checkpoint.tensor(&self.name(name))?, count)?;
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            return Err(not_finite(&self.name(name), at).at(self.checkpoint.label()));
        }
        Ok(values.into_iter().map(T::of_f32).collect())
    }

    /// A plain matrix `[n,k]` that is no linear by name (mHC fn).
    fn matrix<T: Real>(&self, name: &str, n: usize, k: usize) -> Result<Packed<T>> {
        let values: Vec<T> = self.plain(name, n * k)?;
        Ok(Packed::from_rows(n, k, |i, out| out.copy_from_slice(&values[i * k..(i + 1) * k])))
    }

    fn hc<T: Real>(&self, part: &str) -> Result<HcWeights<T>> {
        let (hc, d) = (self.config().hc_mult, self.config().hidden_size);
        let n = (2 + hc) * hc;
        Ok(HcWeights {
            mix: self.matrix(&format!("{part}_fn"), n, hc * d)?,
            base: self.plain(&format!("{part}_base"), n)?,
            scale: self.plain(&format!("{part}_scale"), 3)?,
        })
    }

    fn compressor<T: Real>(&self, name: &str, width: usize, kind: LayerKind) -> Result<Option<CompressorWeights<T>>> {
        let Some(ratio) = kind.ratio() else { return Ok(None) };
        let overlap = kind.has_indexer();
        let columns = if overlap { 2 * width } else { width };
        let d = self.config().hidden_size;
        Ok(Some(CompressorWeights {
            wkv: self.linear(&format!("{name}.wkv"), columns, d)?,
            wgate: self.linear(&format!("{name}.wgate"), columns, d)?,
            ape: self.plain(&format!("{name}.ape"), ratio * columns)?,
            norm: self.plain(&format!("{name}.norm.weight"), width)?,
            ratio,
            overlap,
        }))
    }

    fn attention<T: Real>(&self, kind: LayerKind, keep: bool) -> Result<AttentionWeights<'a, T>> {
        let c = self.config();
        let (d, r, width) = (c.hidden_size, c.q_lora_rank, c.num_attention_heads * c.head_dim);
        let (groups, rank) = (c.o_groups, c.o_lora_rank);
        let indexer = if kind.has_indexer() {
            let compressor = self.compressor("attn.indexer.compressor", c.index_head_dim, kind)?;
            Some(IndexerWeights {
                wq_b: self.linear("attn.indexer.wq_b", c.index_n_heads * c.index_head_dim, r)?,
                weights_proj: self.linear("attn.indexer.weights_proj", c.index_n_heads, d)?,
                compressor: compressor.ok_or_else(|| Error::input("an indexer without a ratio").at(&self.prefix))?,
            })
        } else {
            None
        };
        Ok(AttentionWeights {
            norm: self.plain("attn_norm.weight", d)?,
            wq_a: self.linear("attn.wq_a", r, d)?,
            q_norm: self.plain("attn.q_norm.weight", r)?,
            wq_b: self.whole("attn.wq_b", [width, r], keep)?,
            wkv: self.linear("attn.wkv", c.head_dim, d)?,
            kv_norm: self.plain("attn.kv_norm.weight", c.head_dim)?,
            sink: self.plain("attn.attn_sink", c.num_attention_heads)?,
            compressor: self.compressor("attn.compressor", c.head_dim, kind)?,
            indexer,
            wo_a: self.parts("attn.wo_a", [groups, rank, width / groups], keep)?,
            wo_b: self.whole("attn.wo_b", [d, groups * rank], keep)?,
        })
    }

    fn router<T: Real>(&self, hashed: bool) -> Result<RouterWeights<T>> {
        let c = self.config();
        let (e, k) = (c.n_routed_experts, c.num_experts_per_tok);
        let choice = if hashed {
            let table = self.checkpoint.tensor(&self.name("ffn.gate.tid2eid"))?;
            Choice::Hashed(plain_index(&table, c.vocab_size * k, e)?)
        } else {
            Choice::Scored(self.plain("ffn.gate.bias", e)?)
        };
        Ok(RouterWeights { gate: self.linear("ffn.gate", e, c.hidden_size)?, choice })
    }

    fn shared<T: Real>(&self, keep: bool) -> Result<SharedWeights<'a, T>> {
        let (d, inner) = (self.config().hidden_size, self.config().shared_intermediate_size());
        Ok(SharedWeights {
            w1: self.whole("ffn.shared_experts.w1", [inner, d], keep)?,
            w3: self.whole("ffn.shared_experts.w3", [inner, d], keep)?,
            w2: self.whole("ffn.shared_experts.w2", [d, inner], keep)?,
        })
    }

    /// A block. `keep` holds all that was decoded (sessions); otherwise an expert is dropped after its use, and large linears are decoded
    /// as they are multiplied.
    pub(crate) fn block<T: Real>(&self, kind: LayerKind, hashed: bool, keep: bool) -> Result<BlockWeights<'a, T>> {
        let empty = |n: usize| if keep { n } else { 0 };
        let experts = self.config().n_routed_experts;
        Ok(BlockWeights {
            kind,
            hc_attn: self.hc("hc_attn")?,
            attn: self.attention(kind, keep)?,
            hc_ffn: self.hc("hc_ffn")?,
            ffn_norm: self.plain("ffn_norm.weight", self.config().hidden_size)?,
            router: self.router(hashed)?,
            shared: self.shared(keep)?,
            experts: Experts {
                loader: self.clone(),
                up: (0..empty(experts)).map(|_| OnceLock::new()).collect(),
                down: (0..empty(experts)).map(|_| OnceLock::new()).collect(),
            },
        })
    }

    /// The hyper-connection head under this prefix.
    pub(crate) fn head<T: Real>(&self) -> Result<HeadWeights<T>> {
        let (hc, d) = (self.config().hc_mult, self.config().hidden_size);
        Ok(HeadWeights {
            mix: self.matrix("hc_head_fn", hc, hc * d)?,
            base: self.plain("hc_head_base", hc)?,
            scale: self.plain("hc_head_scale", 1)?,
            norm: self.plain("norm.weight", d)?,
        })
    }

    /// The input of an MTP block.
    pub(crate) fn mtp<T: Real>(&self) -> Result<MtpWeights<T>> {
        let d = self.config().hidden_size;
        Ok(MtpWeights {
            e_proj: self.linear("e_proj", d, d)?,
            h_proj: self.linear("h_proj", d, d)?,
            enorm: self.plain("enorm.weight", d)?,
            hnorm: self.plain("hnorm.weight", d)?,
        })
    }
}

/// Weights of an attention branch; shapes in the ops that use them.
pub(crate) struct AttentionWeights<'a, T> {
    pub(crate) norm: Vec<T>,
    pub(crate) wq_a: Packed<T>,
    pub(crate) q_norm: Vec<T>,
    pub(crate) wq_b: Linear<'a, T>,
    pub(crate) wkv: Packed<T>,
    pub(crate) kv_norm: Vec<T>,
    pub(crate) sink: Vec<T>,
    pub(crate) compressor: Option<CompressorWeights<T>>,
    pub(crate) indexer: Option<IndexerWeights<T>>,
    /// One weight `[o_lora, H/G*hd]` a group.
    pub(crate) wo_a: Vec<Linear<'a, T>>,
    pub(crate) wo_b: Linear<'a, T>,
}

/// Weights of an indexer.
pub(crate) struct IndexerWeights<T> {
    pub(crate) wq_b: Packed<T>,
    pub(crate) weights_proj: Packed<T>,
    pub(crate) compressor: CompressorWeights<T>,
}

/// A resident block.
pub(crate) struct BlockWeights<'a, T> {
    pub(crate) kind: LayerKind,
    pub(crate) hc_attn: HcWeights<T>,
    pub(crate) attn: AttentionWeights<'a, T>,
    pub(crate) hc_ffn: HcWeights<T>,
    pub(crate) ffn_norm: Vec<T>,
    pub(crate) router: RouterWeights<T>,
    pub(crate) shared: SharedWeights<'a, T>,
    pub(crate) experts: Experts<'a, T>,
}

/// The routed experts of a block.
pub(crate) struct Experts<'a, T> {
    loader: Loader<'a>,
    up: Vec<OnceLock<Arc<[Packed<T>; 2]>>>,
    down: Vec<OnceLock<Arc<[Packed<T>; 1]>>>,
}

impl<T: Real> Experts<'_, T> {
    /// Names, outputs and inputs of matrices of expert e.
    fn load<const N: usize>(
        &self,
        kept: Option<&OnceLock<Arc<[Packed<T>; N]>>>,
        names: &[String; N],
        [n, k]: [usize; 2],
    ) -> Result<Matrices<'_, T, N>> {
        if let Some(held) = kept.and_then(OnceLock::get) {
            return Ok(Matrices::Packed(held.clone()));
        }
        if kept.is_none() {
            let mut stored: Vec<Box<dyn Undecoded<T>>> = Vec::with_capacity(N);
            for name in names {
                stored.push(Box::new(self.loader.stored(name, n, k)?));
            }
            let stored = stored.try_into().map_err(|_| Error::input("an expert has another number of matrices"))?;
            return Ok(Matrices::Stored(stored));
        }
        let mut packed = [(); N].map(|()| Packed::default());
        for (packed, name) in packed.iter_mut().zip(names) {
            *packed = self.loader.linear(name, n, k)?;
        }
        let fresh = Arc::new(packed);
        Ok(Matrices::Packed(kept.map_or(fresh.clone(), |cell| cell.get_or_init(|| fresh).clone())))
    }
}

impl<T: Real> ExpertWeights<T> for Experts<'_, T> {
    type Error = Error;

    fn up(&self, e: usize) -> Result<Matrices<'_, T, 2>> {
        let c = self.loader.config();
        let names = ["w1", "w3"].map(|w| format!("ffn.experts.{e}.{w}"));
        self.load(self.up.get(e), &names, [c.moe_intermediate_size, c.hidden_size])
    }

    fn down(&self, e: usize) -> Result<Matrices<'_, T, 1>> {
        let c = self.loader.config();
        let names = [format!("ffn.experts.{e}.w2")];
        self.load(self.down.get(e), &names, [c.hidden_size, c.moe_intermediate_size])
    }
}
