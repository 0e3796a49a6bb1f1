//! Summary of one number over positions.

use crate::metrics::quantile;

/// Mean, RMS, standard error and percentiles of one number over positions. Values that are NaN (positions without a
/// distribution) are counted apart and in none of the numbers; print `nan` beside them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Values that are a number.
    pub n: u64,
    /// Values that are NaN.
    pub nan: u64,
    /// Mean (NaN for no values, like all that follow).
    pub mean: f64,
    /// Root mean square.
    pub rms: f64,
    /// Standard error of the mean (paired: give it differences); NaN for fewer than two values.
    pub standard_error: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Largest.
    pub max: f64,
}

impl Summary {
    /// Summarises values in any order of positions.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let (mut v, nan): (Vec<f64>, Vec<f64>) = values.into_iter().partition(|v| !v.is_nan());
        // Ascending order makes the sums independent of the order of positions.
        v.sort_by(f64::total_cmp);
        let n = v.len() as f64;
        let mean = if v.is_empty() { f64::NAN } else { v.iter().sum::<f64>() / n };
        let rms = if v.is_empty() { f64::NAN } else { (v.iter().map(|v| v * v).sum::<f64>() / n).sqrt() };
        let spread = v.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0);
        let standard_error = if v.len() < 2 { f64::NAN } else { (spread / n).sqrt() };
        let [p50, p90, p99, p999, max] = [0.5, 0.9, 0.99, 0.999, 1.0].map(|q| quantile(&mut v, q));
        Self { n: v.len() as u64, nan: nan.len() as u64, mean, rms, standard_error, p50, p90, p99, p999, max }
    }
}
