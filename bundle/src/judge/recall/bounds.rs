//! Bounds of a share of lost answers, the conversation being the unit.

use crate::judge::stats;

/// Paired answers of one conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answers that golden and candidate both gave.
    pub answers: u64,
    /// Right in golden, wrong in the candidate.
    pub lost: u64,
    /// Wrong in golden, right in the candidate.
    pub gained: u64,
}

/// (lost - gained) per answer with its one-sided 95 % bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Answers.
    pub answers: u64,
    /// Lost.
    pub lost: u64,
    /// Gained.
    pub gained: u64,
    /// (lost - gained) / answers.
    pub mean: f64,
    /// Lower bound.
    pub lower: f64,
    /// Upper bound.
    pub upper: f64,
    /// Standard error of the mean, from the spread between conversations; 0 where there is none to speak of.
    pub spread: f64,
}

/// Bounds from the spread between conversations (ratio estimator, Student t), and never narrower than the exact
/// (Clopper-Pearson) bounds of the lost answers as if they were independent: few conversations, or none with a loss,
/// have no spread to speak of. Without answers every number is NaN.
pub fn bounds(conversations: &[Counts]) -> Bounds {
    let sum = |f: fn(&Counts) -> u64| conversations.iter().map(f).sum::<u64>();
    let (answers, lost, gained) = (sum(|c| c.answers), sum(|c| c.lost), sum(|c| c.gained));
    let n = answers as f64;
    let mean = (lost as f64 - gained as f64) / n;
    let k = conversations.len() as f64;
    // Σ (d_c - mean n_c)² · k/(k-1), over n²: the variance of a ratio of sums over clusters.
    let squares: f64 =
        conversations.iter().map(|c| c.lost as f64 - c.gained as f64 - mean * c.answers as f64).map(|e| e * e).sum();
    let spread = if conversations.len() < 2 { 0.0 } else { (squares * k / (k - 1.0)).sqrt() / n };
    let t = student(conversations.len().saturating_sub(1));
    let share = gained as f64 / n;
    Bounds {
        answers,
        lost,
        gained,
        mean,
        lower: (mean - t * spread).min(at_least(lost, answers) - share),
        upper: (mean + t * spread).max(at_most(lost, answers) - share),
        spread,
    }
}

/// Chance of such a loss, or a larger one, if the true loss were `margin`: by the spread between conversations and by the
/// exact count as if answers were independent, whichever is larger.
pub fn p_value(conversations: &[Counts], margin: f64) -> f64 {
    let b = bounds(conversations);
    let degrees = conversations.len().saturating_sub(1).max(1) as f64;
    let spread = match b.spread > 0.0 {
        true => stats::student_tail((b.mean - margin) / b.spread, degrees),
        false => f64::from(u8::from(b.mean <= margin)),
    };
    let share = (margin + b.gained as f64 / b.answers as f64).min(1.0);
    let exact = if b.lost == 0 { 1.0 } else { 1.0 - cumulative(b.lost - 1, b.answers, share) };
    spread.max(exact)
}

/// The smallest loss that `answers` answers can rule out, when none is lost: 1 - 0.05^(1/answers).
pub fn can_rule_out(answers: u64) -> f64 {
    at_most(0, answers)
}

/// 95th percentile of Student's t (Cornish-Fisher expansion around the normal's 1.645; within 1 % from 4 degrees on).
fn student(degrees: usize) -> f64 {
    const Z: f64 = 1.644_853_626_951_472_2;
    // The expansion is too small for very few degrees: exact values there.
    match degrees {
        0 => 0.0,
        1 => 6.3138,
        2 => 2.9200,
        3 => 2.3534,
        n => {
            let v = n as f64;
            let (z3, z5) = (Z.powi(3), Z.powi(5));
            Z + (z3 + Z) / (4.0 * v) + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * v * v)
        }
    }
}

/// The largest share under which `k` or fewer of `n` still have a chance of 5 %.
fn at_most(k: u64, n: u64) -> f64 {
    if n == 0 {
        return f64::NAN;
    }
    if k >= n {
        return 1.0;
    }
    solve(|p| cumulative(k, n, p) - 0.05)
}

/// The smallest share under which `k` or more of `n` have a chance of 5 %.
fn at_least(k: u64, n: u64) -> f64 {
    if n == 0 {
        return f64::NAN;
    }
    if k == 0 {
        return 0.0;
    }
    solve(|p| 0.05 - (1.0 - cumulative(k - 1, n, p)))
}

/// The root of a falling function on 0 to 1.
fn solve(f: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    for _ in 0..60 {
        let mid = 0.5 * (low + high);
        if f(mid) > 0.0 { low = mid } else { high = mid }
    }
    0.5 * (low + high)
}

/// P(X <= k) of a binomial with n draws of probability p.
fn cumulative(k: u64, n: u64, p: f64) -> f64 {
    if p <= 0.0 {
        return 1.0;
    }
    if p >= 1.0 {
        return f64::from(u8::from(k >= n));
    }
    // Terms by recurrence in logarithms: (n-i)/(i+1) · p/(1-p).
    let odds = (p / (1.0 - p)).ln();
    let mut log = n as f64 * (1.0 - p).ln();
    let mut sum = log.exp();
    for i in 0..k.min(n) {
        log += ((n - i) as f64 / (i + 1) as f64).ln() + odds;
        sum += log.exp();
    }
    sum.min(1.0)
}
