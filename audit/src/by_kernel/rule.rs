//! How far a kernel may be from its contract: what adding in another order costs, and nothing more.
//!
//! Both round at the same places; they add in different orders, with different accumulators. A sum of K products that cancel as
//! sums of random signs do is sqrt(K) smaller than the sum of their sizes, so `SUM` units of the last place of sum |a||b| are
//! SUM * 2^-24 * sqrt(K) of the result. Where the result is stored in bf16 such a difference shows as a few values on the
//! neighbouring code: a boundary lies between two results that differ by e with a probability of about 2^9 e, and costs 2^-8.

use karat_model::Config;
use karat_optimized::{Attend, IndexScore, Numerics, Store};
use karat_seam::{Phase, Tap};

/// Units of the last place of sum |a||b| in f32. An accumulator of the tensor cores truncates (probed: down to 2^-25 of the largest
/// term), and is emptied every 32 to 64 products.
const SUM: f64 = 4.0;

/// f32.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// bf16.
const CODE: f64 = 1.0 / 256.0;

/// The device's 2^x against one rounded once: two units of the last place.
const EXP: f64 = 4.0 * UNIT;

/// Sinkhorn's divisions, one rounding each on either side, twenty times two.
const DIVISIONS: f64 = 40.0 * UNIT;

/// Probabilities that go into one output: their codes flip independently. Few, so that little is allowed.
const PROBABILITIES: f64 = 8.0;

/// Lengths of the sums of a model, and what its plan stores.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    streams: usize,
    hidden: usize,
    inner: usize,
    head: usize,
    keys: usize,
    index: usize,
    rules: [Numerics; 2],
}

/// What a sum of `k` products may differ by.
fn sums(k: usize) -> f64 {
    SUM * UNIT * (k as f64).sqrt()
}

/// What storing in bf16 makes of results that differ by `e`.
fn codes(e: f64) -> f64 {
    (e / CODE * 2.0).min(1.0).sqrt() * CODE
}

impl Sizes {
    /// Of a model and a plan's rules, in prefill and in decode.
    pub fn new(config: &Config, rules: [&Numerics; 2]) -> Self {
        Self {
            streams: config.hc_mult * config.hidden_size,
            hidden: config.hidden_size,
            inner: config.moe_intermediate_size,
            head: config.head_dim,
            keys: config.sliding_window + config.index_topk,
            index: config.index_n_heads * config.index_head_dim,
            rules: rules.map(|r| *r),
        }
    }

    fn rules(&self, phase: Phase) -> &Numerics {
        &self.rules[usize::from(phase == Phase::Decode)]
    }

    /// rel-L2 that a kernel's result may be off its contract's, on the same operands; 0 for decisions.
    pub(crate) fn tolerance(&self, tap: Tap, phase: Phase) -> f64 {
        let rules = self.rules(phase);
        match tap {
            Tap::HcAttnPre | Tap::HcAttnPost | Tap::HcFfnPre | Tap::HcFfnPost => sums(self.streams),
            Tap::HcAttnComb | Tap::HcFfnComb => sums(self.streams) + DIVISIONS,
            Tap::AttnKvp | Tap::AttnGateScore | Tap::AttnIndexKvp | Tap::AttnIndexGateScore => {
                self.stored(tap, phase, sums(self.hidden))
            }
            Tap::AttnIndexScore => {
                let products = match rules.index.score {
                    IndexScore::Folded { bf16_product: true, .. } => codes(sums(self.index)),
                    _ => 0.0,
                };
                sums(self.index) + products
            }
            Tap::AttnLse => sums(self.head) + EXP,
            Tap::AttnO => {
                let scores = sums(self.head) + EXP;
                let bf16 = |store: Store, e: f64| if store == Store::Bf16 { codes(e) } else { 0.0 };
                let (p, partials) = match rules.attend {
                    Attend::SplitK(split) => (split.p, split.partials),
                    _ => (Store::F32, Store::F32),
                };
                let probabilities = bf16(p, scores) / PROBABILITIES.sqrt();
                let sum = sums(self.keys) + scores + probabilities;
                self.stored(tap, phase, sum + bf16(partials, sum))
            }
            Tap::FfnExpertAct => self.stored(tap, phase, sums(self.hidden) + EXP),
            // Every expert's output is stored, their sum is not.
            Tap::FfnRouted => codes(sums(self.inner)) + sums(1),
            _ => 0.0,
        }
    }

    fn stored(&self, tap: Tap, phase: Phase, e: f64) -> f64 {
        if is_stored(tap, self, phase) { e + codes(e) } else { e }
    }
}

/// True where the kernel stores its result in bf16.
pub(super) fn is_stored(tap: Tap, sizes: &Sizes, phase: Phase) -> bool {
    match tap {
        Tap::AttnO | Tap::FfnExpertAct => true,
        Tap::AttnKvp | Tap::AttnGateScore | Tap::AttnIndexKvp | Tap::AttnIndexGateScore => {
            sizes.rules(phase).compress_store == Store::Bf16
        }
        _ => false,
    }
}
