//! One position.

use std::cmp::Ordering;

/// How one row of logits differs (golden p = softmax(g), candidate q = softmax(c), natural logarithms).
///
/// A row with a NaN or +inf on either side, or only `-inf`, has no distribution: every f64 is NaN there, and
/// `nonfinite` counts its values. `-inf` itself is a forbidden token of probability 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    /// KL(golden‖candidate) = Σ p·(ln p - ln q) in nats; infinite when the candidate forbids what golden allows.
    pub kl: f64,
    /// Jensen-Shannon divergence in nats, 0 to ln 2.
    pub js: f64,
    /// Root mean square of c - g over the vocabulary (tokens that are finite on both sides).
    pub delta_logit_rms: f64,
    /// ½·Var_p(c - g): about `kl` while the difference is small (consistency check).
    pub kl_from_variance: f64,
    /// Golden's first choice (lowest id on a tie).
    pub top1_golden: u32,
    /// The candidate's first choice.
    pub top1_candidate: u32,
    /// Golden's best logit less its second best; infinite for a vocabulary of one.
    pub margin_golden: f64,
    /// The candidate's best logit less its second best.
    pub margin_candidate: f64,
    /// Golden's logit of its own first choice less its logit of the candidate's: 0 when they agree. What noise bridged.
    pub flip_margin: f64,
    /// Share of golden's k best that are among the candidate's k best.
    pub top_k_overlap: f64,
    /// Rank of the target in golden, from 1 (ties: lower id first); `None` without a target or a distribution.
    pub target_rank_golden: Option<u32>,
    /// Rank of the target in the candidate.
    pub target_rank: Option<u32>,
    /// ln p of the target.
    pub target_log_prob_golden: Option<f64>,
    /// ln q of the target.
    pub target_log_prob: Option<f64>,
    /// Values (of both rows) that are NaN or +inf.
    pub nonfinite: u64,
}

/// Log-softmax of a row and its order of tokens.
struct Row<'a> {
    logits: &'a [f64],
    /// max + ln Σ exp(l - max).
    log_sum: f64,
    /// exp of each log-probability.
    probs: Vec<f64>,
}

impl<'a> Row<'a> {
    fn of(logits: &'a [f64]) -> Option<Self> {
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let bad = logits.iter().any(|l| l.is_nan() || *l == f64::INFINITY);
        if bad || max == f64::NEG_INFINITY {
            return None;
        }
        let sum: f64 = logits.iter().map(|l| (l - max).exp()).sum();
        let log_sum = max + sum.ln();
        Some(Self { logits, log_sum, probs: logits.iter().map(|l| (l - log_sum).exp()).collect() })
    }

    fn log_prob(&self, token: usize) -> f64 {
        self.logits[token] - self.log_sum
    }

    /// Larger logit first, then lower id.
    fn order(&self, a: usize, b: usize) -> Ordering {
        self.logits[b].total_cmp(&self.logits[a]).then(a.cmp(&b))
    }

    /// The `k` best tokens, best first.
    fn top(&self, k: usize) -> Vec<usize> {
        let mut ids: Vec<usize> = (0..self.logits.len()).collect();
        let k = k.min(ids.len());
        if k == 0 {
            return Vec::new();
        }
        if k < ids.len() {
            ids.select_nth_unstable_by(k - 1, |a, b| self.order(*a, *b));
            ids.truncate(k);
        }
        ids.sort_by(|a, b| self.order(*a, *b));
        ids
    }

    fn rank(&self, token: usize) -> u32 {
        1 + (0..self.logits.len()).filter(|&t| self.order(t, token) == Ordering::Less).count() as u32
    }
}

impl Position {
    /// Compares two rows of the same length; `target` lies inside.
    pub(super) fn of(golden: &[f64], candidate: &[f64], target: Option<u32>, k: usize) -> Self {
        let count = |row: &[f64]| row.iter().filter(|l| l.is_nan() || **l == f64::INFINITY).count() as u64;
        let nonfinite = count(golden) + count(candidate);
        let (Some(g), Some(c)) = (Row::of(golden), Row::of(candidate)) else { return Self::none(nonfinite) };
        let (top_g, top_c) = (g.top(k.max(2)), c.top(k.max(2)));
        let k = k.min(golden.len());
        let common = top_g[..k].iter().filter(|t| top_c[..k].contains(t)).count();
        let margin = |row: &Row<'_>, top: &[usize]| top.get(1).map_or(f64::INFINITY, |&b| gap(row.logits, top[0], b));
        let target = target.map(|t| t as usize);
        Self {
            kl: kl(&g, &c),
            js: js(&g, &c),
            delta_logit_rms: delta_rms(golden, candidate),
            kl_from_variance: 0.5 * variance(&g, candidate),
            top1_golden: top_g[0] as u32,
            top1_candidate: top_c[0] as u32,
            margin_golden: margin(&g, &top_g),
            margin_candidate: margin(&c, &top_c),
            flip_margin: gap(golden, top_g[0], top_c[0]),
            top_k_overlap: if k == 0 { 1.0 } else { common as f64 / k as f64 },
            target_rank_golden: target.map(|t| g.rank(t)),
            target_rank: target.map(|t| c.rank(t)),
            target_log_prob_golden: target.map(|t| g.log_prob(t)),
            target_log_prob: target.map(|t| c.log_prob(t)),
            nonfinite,
        }
    }

    fn none(nonfinite: u64) -> Self {
        let nan = f64::NAN;
        Self {
            kl: nan,
            js: nan,
            delta_logit_rms: nan,
            kl_from_variance: nan,
            top1_golden: u32::MAX,
            top1_candidate: u32::MAX,
            margin_golden: nan,
            margin_candidate: nan,
            flip_margin: nan,
            top_k_overlap: nan,
            target_rank_golden: None,
            target_rank: None,
            target_log_prob_golden: None,
            target_log_prob: None,
            nonfinite,
        }
    }

    /// True when both rows are distributions.
    pub fn is_comparable(&self) -> bool {
        !self.kl.is_nan()
    }

    /// True when the first choices differ (or there is none).
    pub fn is_flip(&self) -> bool {
        self.top1_golden != self.top1_candidate || !self.is_comparable()
    }
}

/// The first choices of two rows alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FirstChoice {
    /// As [`Position::is_flip`].
    pub is_flip: bool,
    /// As [`Position::flip_margin`].
    pub flip_margin: f64,
}

impl FirstChoice {
    pub(super) fn of(golden: &[f64], candidate: &[f64]) -> Self {
        let (true, true) = (is_distribution(golden), is_distribution(candidate)) else {
            return Self { is_flip: true, flip_margin: f64::NAN };
        };
        let (g, c) = (first(golden), first(candidate));
        Self { is_flip: g != c, flip_margin: gap(golden, g, c) }
    }
}

fn is_distribution(logits: &[f64]) -> bool {
    let bad = logits.iter().any(|l| l.is_nan() || *l == f64::INFINITY);
    !bad && logits.iter().any(|l| *l > f64::NEG_INFINITY)
}

/// The largest logit, the lowest id among equals.
fn first(logits: &[f64]) -> usize {
    let mut best = 0;
    for (t, l) in logits.iter().enumerate() {
        if l.total_cmp(&logits[best]) == Ordering::Greater {
            best = t;
        }
    }
    best
}

fn gap(logits: &[f64], a: usize, b: usize) -> f64 {
    if logits[a] == logits[b] { 0.0 } else { logits[a] - logits[b] }
}

/// Σ p·(ln p - ln q). Both ln carry a rounding error of 1e-16, too much for the tiny KL of an f32 path (1e-12), so
/// while the difference is small it is written as ln(1 + Σ p·(e^u - 1 - u)) with u = δ - Σ pδ, δ = c - g: a sum of
/// terms that are all >= 0.
fn kl(g: &Row<'_>, c: &Row<'_>) -> f64 {
    let allowed = || (0..g.logits.len()).filter(|&t| g.logits[t] > f64::NEG_INFINITY);
    if allowed().any(|t| c.logits[t] == f64::NEG_INFINITY) {
        return f64::INFINITY;
    }
    let same_support =
        (0..g.logits.len()).all(|t| (g.logits[t] == f64::NEG_INFINITY) == (c.logits[t] == f64::NEG_INFINITY));
    let p = |t: usize| g.probs[t];
    let delta = |t: usize| c.logits[t] - g.logits[t];
    let (mut mean, mut mass) = (0.0, 0.0);
    for t in allowed() {
        mean += p(t) * delta(t);
        mass += p(t);
    }
    mean /= mass;
    let small = allowed().all(|t| (delta(t) - mean).abs() < 1.0);
    if same_support && small {
        let sum: f64 = allowed().map(|t| p(t) / mass * excess(delta(t) - mean)).sum();
        return sum.max(0.0).ln_1p();
    }
    allowed().map(|t| p(t) * (g.log_prob(t) - c.log_prob(t))).sum::<f64>().max(0.0)
}

/// e^u - 1 - u, without cancellation for small u.
fn excess(u: f64) -> f64 {
    if u.abs() < 1e-2 {
        // Taylor to u^7: the next term is below 1e-16 of the sum.
        let series = 1.0 / 720.0 + u / 5040.0;
        return u * u * (0.5 + u * (1.0 / 6.0 + u * (1.0 / 24.0 + u * (1.0 / 120.0 + u * series))));
    }
    u.exp_m1() - u
}

/// ½ Σ p·ln(2p/(p+q)) + ½ Σ q·ln(2q/(p+q)).
fn js(g: &Row<'_>, c: &Row<'_>) -> f64 {
    // ln(2a/(a+b)) = -ln(1 + (b/a - 1)/2).
    let half = |p: f64, a: f64, b: f64| {
        if a == f64::NEG_INFINITY { 0.0 } else { -p * (0.5 * (b - a).exp_m1()).ln_1p() }
    };
    let one = |t: usize| {
        let (a, b) = (g.log_prob(t), c.log_prob(t));
        if a == b { 0.0 } else { 0.5 * (half(g.probs[t], a, b) + half(c.probs[t], b, a)) }
    };
    let sum: f64 = (0..g.logits.len()).map(one).sum();
    sum.clamp(0.0, std::f64::consts::LN_2)
}

fn delta_rms(golden: &[f64], candidate: &[f64]) -> f64 {
    let mut n = 0u64;
    let mut sum = 0.0;
    for (g, c) in golden.iter().zip(candidate).filter(|(g, c)| g.is_finite() && c.is_finite()) {
        n += 1;
        sum += (c - g) * (c - g);
    }
    if n == 0 { f64::NAN } else { (sum / n as f64).sqrt() }
}

/// Var_p(c - g); infinite when the candidate forbids what golden allows.
fn variance(g: &Row<'_>, candidate: &[f64]) -> f64 {
    let mut mean = 0.0;
    let tokens = || (0..candidate.len()).filter(|&t| g.logits[t] > f64::NEG_INFINITY);
    for t in tokens() {
        mean += g.probs[t] * (candidate[t] - g.logits[t]);
    }
    if !mean.is_finite() {
        return f64::INFINITY;
    }
    tokens().map(|t| g.probs[t] * (candidate[t] - g.logits[t] - mean).powi(2)).sum()
}
