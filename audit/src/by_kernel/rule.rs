//! How far a kernel may be from its contract: what adding in another order costs, and nothing more.
//!
//! Both round at the same places; they add in different orders, with different accumulators. A sum of K products that cancel as
//! sums of random signs do is sqrt(K) smaller than the sum of their sizes, so n units of the last place of sum |a||b| are
//! n * 2^-24 * sqrt(K) of the result. How many units a tensor core costs follows from how it accumulates ([`units`]), which is declared
//! for each architecture and probed on the device. Where a result is stored in bf16 such a difference shows as a few values on the
//! neighbouring code: these are counted row by row ([`flips`](super::flips)).

use karat_model::Config;
use karat_optimized::{Accumulation, Attend, IndexScore, Numerics, Store};
use karat_seam::{Phase, Tap};

use super::flips::Flips;

/// Products after which a kernel empties the accumulator of the tensor cores into f32 registers. Sums of more that stay in it
/// (attention's scores, `compress-bf16`) are of random signs: their partial sums grow with the root of their number, so what is cut off
/// them comes to 0.5 * sqrt(K) / products of these units, 2 at K = 4096.
const EMPTIED: f64 = 64.0;

/// The largest of 16 products of two bells over the mean of their sizes; what aligns a step is a power of two at most as large.
const PEAK: f64 = 4.0;

/// f32.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// bf16.
const CODE: f64 = 1.0 / 256.0;

/// The device's 2^x against one rounded once: two units of the last place.
const EXP: f64 = 4.0 * UNIT;

/// Sinkhorn's divisions, one rounding each on either side, twenty times two.
const DIVISIONS: f64 = 40.0 * UNIT;

/// Probabilities of one size that go into one output, where there are so many keys: their codes flip independently. Few, so that
/// little is allowed.
const PROBABILITIES: f64 = 8.0;

/// Runs of right kernels of which one has a row over what is allowed for flips, at most: one in a thousand.
const FAMILY: f64 = 1e-3;

/// Lengths of the sums of a model, and what its plan stores.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    streams: usize,
    hidden: usize,
    inner: usize,
    head: usize,
    keys: usize,
    index: usize,
    picks: usize,
    rules: [Numerics; 2],
    /// Units of the last place that a sum is off, see [`units`].
    units: f64,
    /// Probability that one row's flips may go over what is allowed.
    rate: f64,
}

/// Taps whose rows count flips.
const STORED: [Tap; 7] = [
    Tap::AttnKvp,
    Tap::AttnGateScore,
    Tap::AttnIndexKvp,
    Tap::AttnIndexGateScore,
    Tap::AttnO,
    Tap::FfnExpertAct,
    Tap::FfnRouted,
];

/// What a tap's values may differ by: sums in another order, and how these show in codes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rule {
    /// Of a value, relative to the RMS of its part of the row.
    sums: f64,
    /// Stores in bf16 of a value, or of parts of it that have its size.
    stores: f64,
    /// Factors of a value that are stored before they are multiplied.
    factors: f64,
    /// Values, each stored, that a value is the sum of.
    addends: usize,
    /// Values of a row that have one size; 0: all.
    part: usize,
    /// What a score may differ by where probabilities are stored in bf16; 0: they are not.
    probabilities: f64,
}

/// Units of the last place of sum |a||b| in f32 (2^-24 of it) that an accumulator costs, on average, at most.
///
/// A segment of `EMPTIED` products goes through m = `EMPTIED` / products steps. Each step's result is cut off to 24 bits, which costs 1
/// unit of it on average and 2 at most; the results are 1/m, 2/m, .. 1 of the segment's sum of sizes at most: (m + 1) / 2 units. Before
/// that each of the products + 1 addends of a step loses what lies below 2^-bits of the largest exponent among them, half of that on
/// average: (products + 1) / 2 * 2^(24 - bits) * `PEAK` times the mean size, where the step has products times the mean size. sm_90: 4
/// steps of 16 with 25 bits, 2.5 + 1.1 = 3.6 units. Where all signs are one, the accumulator itself aligns the later steps and makes 5
/// units of the 1.1; but there nothing cancels, and the factor sqrt(K) of the tolerance (8 and more) is not used up by the data. One that
/// rounds to nearest errs to both sides: what adds up is the root of the number.
pub(super) fn units(of: &Accumulation) -> f64 {
    let products = f64::from(of.products.max(1));
    let steps = (EMPTIED / products).max(1.0);
    let addends = products + 1.0;
    let below = f64::exp2(24.0 - f64::from(of.bits)) * PEAK / products;
    if of.truncates { f64::midpoint(steps, 1.0) + addends / 2.0 * below } else { steps.sqrt() + addends.sqrt() * below }
}

/// What storing in bf16 makes of results that differ by `e`.
fn codes(e: f64) -> f64 {
    (e / CODE * 2.0).min(1.0).sqrt() * CODE
}

impl Sizes {
    /// Of a model and a plan's rules, in prefill and in decode. `runs`: passes of one sequence through one layer by one patch set in
    /// the whole run; the more rows are judged, the less may happen by chance in each. `accumulation`: of the kernels' device.
    pub fn new(config: &Config, rules: [&Numerics; 2], runs: usize, accumulation: &Accumulation) -> Self {
        Self {
            units: units(accumulation),
            streams: config.hc_mult * config.hidden_size,
            hidden: config.hidden_size,
            inner: config.moe_intermediate_size,
            head: config.head_dim,
            keys: config.sliding_window + config.index_topk,
            index: config.index_n_heads * config.index_head_dim,
            picks: config.num_experts_per_tok,
            rate: FAMILY / (2 * STORED.len() * runs.max(1)) as f64,
            rules: rules.map(|r| *r),
        }
    }

    fn rules(&self, phase: Phase) -> &Numerics {
        &self.rules[usize::from(phase == Phase::Decode)]
    }

    /// What a sum of `k` products may differ by.
    fn sums(&self, k: usize) -> f64 {
        self.units * UNIT * (k as f64).sqrt()
    }

    /// What a kernel's result may be off its contract's, on the same operands; nothing for decisions.
    pub(super) fn rule(&self, tap: Tap, phase: Phase) -> Rule {
        let rules = self.rules(phase);
        let sums_of = |sums: f64| Rule { sums, ..Rule::default() };
        match tap {
            Tap::HcAttnPre | Tap::HcAttnPost | Tap::HcFfnPre | Tap::HcFfnPost => sums_of(self.sums(self.streams)),
            Tap::HcAttnComb | Tap::HcFfnComb => sums_of(self.sums(self.streams) + DIVISIONS),
            Tap::AttnKvp | Tap::AttnGateScore | Tap::AttnIndexKvp | Tap::AttnIndexGateScore => {
                let stores = if is_stored(tap, self, phase) { 1.0 } else { 0.0 };
                Rule { sums: self.sums(self.hidden), stores, ..Rule::default() }
            }
            Tap::AttnIndexScore => {
                let products = match rules.index.score {
                    IndexScore::Folded { bf16_product: true, .. } => codes(self.sums(self.index)),
                    _ => 0.0,
                };
                sums_of(self.sums(self.index) + products)
            }
            Tap::AttnLse => sums_of(self.sums(self.head) + EXP),
            Tap::AttnO => {
                let scores = self.sums(self.head) + EXP;
                let (p, partials) = match rules.attend {
                    Attend::SplitK(split) => (split.p, split.partials),
                    _ => (Store::F32, Store::F32),
                };
                Rule {
                    sums: self.sums(self.keys) + scores,
                    stores: if partials == Store::Bf16 { 2.0 } else { 1.0 },
                    part: self.head,
                    probabilities: if p == Store::Bf16 { scores } else { 0.0 },
                    ..Rule::default()
                }
            }
            Tap::FfnExpertAct => Rule {
                sums: self.sums(self.hidden) + EXP,
                stores: 1.0,
                // Gate and up, unless the clamp sees the sums.
                factors: if rules.swiglu.fused { 0.0 } else { 2.0 },
                part: self.inner,
                ..Rule::default()
            },
            // Every expert's output is stored, their sum is not.
            Tap::FfnRouted => {
                Rule { sums: self.sums(self.inner) + self.sums(1), addends: self.picks, ..Rule::default() }
            }
            _ => Rule::default(),
        }
    }

    /// rel-L2 that rows of this budget may be off; 0 for decisions.
    pub(super) fn tolerance(&self, tap: Tap, phase: Phase, budget: &Budget) -> f64 {
        self.rule(tap, phase).sums + budget.of_flips(self.rate)
    }

    /// The same for these rows of the contract: positions and values.
    pub(crate) fn tolerance_of<'r>(
        &self,
        tap: Tap,
        phase: Phase,
        rows: impl IntoIterator<Item = (u32, &'r [f32])>,
    ) -> f64 {
        let rule = self.rule(tap, phase);
        let mut budget = Budget::default();
        rows.into_iter().for_each(|(pos, values)| budget.row(&rule, pos, values));
        self.tolerance(tap, phase, &budget)
    }
}

/// What the stored values of some rows may differ by.
#[derive(Debug, Default)]
pub(super) struct Budget {
    flips: Flips,
    size: f64,
}

impl Budget {
    /// Adds a row of the contract's values.
    pub(super) fn row(&mut self, rule: &Rule, pos: u32, values: &[f32]) {
        if rule.stores == 0.0 && rule.addends == 0 {
            return;
        }
        let part = if rule.part == 0 || !values.len().is_multiple_of(rule.part) { values.len() } else { rule.part };
        let keys = f64::from(pos + 1).min(PROBABILITIES);
        for values in values.chunks_exact(part.max(1)) {
            self.size += rule.part_of(values, keys, &mut self.flips);
        }
    }

    /// Adds that of other rows.
    pub(super) fn merge(&mut self, other: &Self) {
        self.flips.merge(&other.flips);
        self.size += other.size;
    }

    /// rel-L2 that flips go over with a probability of `rate` at most.
    fn of_flips(&self, rate: f64) -> f64 {
        if self.size > 0.0 { (self.flips.limit(rate) / self.size).sqrt() } else { 0.0 }
    }
}

impl Rule {
    /// Adds the flips of values of one size; gives the sum of their squares.
    fn part_of(&self, values: &[f32], keys: f64, flips: &mut Flips) -> f64 {
        let size: f64 = values.iter().filter(|v| v.is_finite()).map(|v| f64::from(*v) * f64::from(*v)).sum();
        let off = self.sums * (size / values.len().max(1) as f64).sqrt();
        // An addend is smaller than the sum of as many random ones, and so is what it is off by.
        let (stores, share) = match self.addends {
            0 => (self.stores, 1.0),
            n => (n as f64, 1.0 / (n as f64).sqrt()),
        };
        // Values of one exponent have one distance to the next code.
        let mut exponents = [0_u32; 256];
        for v in values.iter().filter(|v| v.is_finite()) {
            exponents[((v * share as f32).to_bits() >> 23 & 255) as usize] += 1;
        }
        for (exponent, n) in exponents.iter().enumerate().filter(|(_, n)| **n > 0) {
            let step = f64::exp2(exponent.max(1) as f64 - 134.0);
            let each = (off * share / step).min(1.0) * f64::from(*n);
            flips.add(stores * each, step * step);
            // A factor's code is up to 2^-7 of it away from the next, which is two codes of the product.
            flips.add(self.factors * each, 4.0 * step * step);
        }
        if self.probabilities > 0.0 {
            // One of `keys` equal probabilities moves the output by CODE / keys of itself, at most, and each of its values to the next
            // code with the probability of that over the distance, 2 CODE at most. The largest probability is 1, and has one code.
            let each = (self.probabilities / CODE * 2.0).min(1.0);
            flips.add((keys - 1.0) * each, size * (CODE / keys) * (2.0 * CODE));
        }
        size
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
