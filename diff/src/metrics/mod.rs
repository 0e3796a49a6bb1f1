//! Every metric of one tensor, from its moments alone: a bundle that stores moments can print any of them again.

#[cfg(test)]
mod tests;

use crate::moments::{At, Moments, Sums};

/// Metrics of a set of element pairs (golden x, candidate y, d = y - x).
///
/// When a pair is not finite ([`Sums::nonfinite`] > 0) every number is NaN and only the counts stay; see
/// [`Metrics::of_finite`] for the finite rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metrics {
    /// Pairs seen.
    pub n: u64,
    /// ‖d‖/‖x‖; 0 when d is 0, infinite when only x is 0.
    pub rel_l2: f64,
    /// Scale of y along x, ⟨x,y⟩/⟨x,x⟩; 1 when d is 0, NaN when only x is 0.
    pub gain: f64,
    /// What is left after the gain, ‖y - gain·x‖/‖x‖; 0 when d is 0, infinite when only x is 0.
    pub residual: f64,
    /// 1 - 2⟨x,y⟩/(‖x‖²+‖y‖²) = ‖d‖²/(‖x‖²+‖y‖²): DeepGEMM's and FlashMLA's measure, about rel_l2²/2.
    pub calc_diff: f64,
    /// ⟨x,y⟩/(‖x‖‖y‖); 1 when d is 0, 0 when one side is 0. Blind to scale: never a gate on its own.
    pub cosine: f64,
    /// max |d|.
    pub max_abs: f64,
    /// max |d| over max |x|; 0 when d is 0, infinite when only x is 0.
    pub max_over_max: f64,
    /// Where the largest |d| is.
    pub max_abs_at: Option<At>,
    /// 20·log10(‖x‖/‖d‖) in dB; infinite when d is 0.
    pub snr_db: f64,
    /// Σd/Σ|d| in -1..1; 0 when d is 0.
    pub sign_bias: f64,
    /// Σ d·sign(x)/Σ|d| in -1..1: near -1 for truncation towards zero; 0 when d is 0.
    pub outward_bias: f64,
    /// 99th percentile of ULP distance in the storage format (to a factor of 2); `None` for block-scaled formats.
    pub ulp_p99: Option<f64>,
    /// Pairs in which a value is not finite; two `-inf` (masked) are none.
    pub nonfinite: u64,
    /// Candidate values at the storage format's largest magnitude.
    pub saturated: u64,
    /// Candidate exactly zero where golden is not.
    pub zero_lost: u64,
    /// Golden exactly zero where the candidate is not.
    pub zero_gained: u64,
}

impl Metrics {
    /// Metrics of everything that the moments cover.
    pub fn of(moments: &Moments) -> Self {
        let mut m = Self::of_finite(moments);
        if m.nonfinite > 0 {
            for number in [
                &mut m.rel_l2,
                &mut m.gain,
                &mut m.residual,
                &mut m.calc_diff,
                &mut m.cosine,
                &mut m.max_abs,
                &mut m.max_over_max,
                &mut m.snr_db,
                &mut m.sign_bias,
                &mut m.outward_bias,
            ] {
                *number = f64::NAN;
            }
            m.max_abs_at = None;
            m.ulp_p99 = m.ulp_p99.map(|_| f64::NAN);
        }
        m
    }

    /// Metrics of the finite pairs only. Print them beside `nonfinite`, never instead of it.
    pub fn of_finite(moments: &Moments) -> Self {
        let s = &moments.sums;
        Self {
            n: s.n,
            rel_l2: over(s.dd, s.xx).sqrt(),
            gain: gain(s),
            residual: residual(s),
            calc_diff: if s.dd == 0.0 { 0.0 } else { s.dd / (s.xx + s.yy) },
            cosine: cosine(s),
            max_abs: s.max_abs,
            max_over_max: over(s.max_abs, s.max_x),
            max_abs_at: s.max_abs_at,
            snr_db: 10.0 * over(s.xx, s.dd).log10(),
            sign_bias: if s.abs_d == 0.0 { 0.0 } else { s.d / s.abs_d },
            outward_bias: if s.abs_d == 0.0 { 0.0 } else { s.outward_d / s.abs_d },
            ulp_p99: moments.ulp.quantile(0.99),
            nonfinite: s.nonfinite(),
            saturated: s.saturated,
            zero_lost: s.zero_lost,
            zero_gained: s.zero_gained,
        }
        .with_nothing_to_compare(s)
    }

    /// Two all-zero sides: SNR is infinite, as for every other exact match.
    fn with_nothing_to_compare(mut self, s: &Sums) -> Self {
        if s.dd == 0.0 {
            self.snr_db = f64::INFINITY;
        }
        self
    }
}

/// The `k` rows with the largest rel-L2, worst first, then in order; rows with a value that is not finite come before
/// all others. Rows without an error are none of them.
pub fn worst_rows(rows: &[Sums], k: usize) -> Vec<usize> {
    let size = |s: &Sums| if s.nonfinite() > 0 { f64::INFINITY } else { rel_l2(s) };
    let mut order: Vec<(f64, usize)> = rows.iter().map(size).zip(0..).filter(|(size, _)| *size > 0.0).collect();
    let by_size = |a: &(f64, usize), b: &(f64, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    if k < order.len() {
        order.select_nth_unstable_by(k, by_size);
        order.truncate(k);
    }
    order.sort_by(by_size);
    order.into_iter().map(|(_, row)| row).collect()
}

/// How the rows of a tensor differ. Rows with a value that is not finite are a class of their own: counted, and left
/// out of the percentiles.
#[derive(Debug, Clone, PartialEq)]
pub struct RowMetrics {
    /// Rows of finite (or masked) pairs only.
    pub finite: u64,
    /// Rows with a pair that is not finite.
    pub nonfinite: u64,
    /// The first such row.
    pub first_nonfinite: Option<usize>,
    /// Median of the finite rows' rel-L2; NaN without finite rows, like the next three.
    pub rel_l2_p50: f64,
    /// 99th percentile.
    pub rel_l2_p99: f64,
    /// Largest.
    pub rel_l2_max: f64,
    /// Largest max |d| over the row's RMS of x.
    pub max_abs_over_rms: f64,
    /// Where (the first of them); `None` while every d is zero.
    pub max_abs_over_rms_at: Option<At>,
    /// Row with the largest rel-L2 (the first of them).
    pub worst: Option<usize>,
}

impl RowMetrics {
    /// From the sums of each row.
    pub fn of(rows: &[Sums]) -> Self {
        let is_finite = |s: &&Sums| s.nonfinite() == 0;
        let finite = rows.iter().filter(is_finite).count() as u64;
        let mut rel: Vec<f64> = rows.iter().filter(is_finite).map(rel_l2).collect();
        let worst = (0..rows.len())
            .filter(|&r| rows[r].nonfinite() == 0)
            .reduce(|best, r| if rel_l2(&rows[r]) > rel_l2(&rows[best]) { r } else { best });
        let peak = |s: &Sums| over(s.max_abs, (s.xx / s.finite.max(1) as f64).sqrt());
        let peaks = rows.iter().filter(is_finite).map(|s| (peak(s), s.max_abs_at));
        let (max_abs_over_rms, max_abs_over_rms_at) =
            peaks.reduce(|best, next| if next.0 > best.0 { next } else { best }).unwrap_or((f64::NAN, None));
        Self {
            finite,
            nonfinite: rows.len() as u64 - finite,
            first_nonfinite: rows.iter().position(|s| s.nonfinite() > 0),
            rel_l2_p50: quantile(&mut rel, 0.5),
            rel_l2_p99: quantile(&mut rel, 0.99),
            rel_l2_max: quantile(&mut rel, 1.0),
            max_abs_over_rms,
            max_abs_over_rms_at,
            worst,
        }
    }
}

/// rel-L2 of one row's (or any) sums over its finite pairs.
pub fn rel_l2(s: &Sums) -> f64 {
    over(s.dd, s.xx).sqrt()
}

/// Percentile `q` (0 to 1) of values without NaN, linear between ranks (as numpy's default); NaN for none. Sorts.
pub fn quantile(values: &mut [f64], q: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    values.sort_by(f64::total_cmp);
    let at = q.clamp(0.0, 1.0) * (values.len() - 1) as f64;
    let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
    // Equal ends first: inf - inf is no number.
    if low == high { low } else { low + (high - low) * at.fract() }
}

/// a/b with 0/0 = 0.
fn over(a: f64, b: f64) -> f64 {
    if a == 0.0 { 0.0 } else { a / b }
}

fn gain(s: &Sums) -> f64 {
    if s.dd == 0.0 { 1.0 } else { 1.0 + s.xd / s.xx }
}

fn residual(s: &Sums) -> f64 {
    if s.dd == 0.0 {
        return 0.0;
    }
    if s.xx == 0.0 {
        return f64::INFINITY;
    }
    // ‖d‖² less its share along x; rounding may leave a tiny negative number.
    ((s.dd - s.xd * s.xd / s.xx).max(0.0) / s.xx).sqrt()
}

fn cosine(s: &Sums) -> f64 {
    if s.dd == 0.0 {
        return 1.0;
    }
    let norms = s.xx.sqrt() * s.yy.sqrt();
    if norms == 0.0 { 0.0 } else { (s.xy / norms).clamp(-1.0, 1.0) }
}
