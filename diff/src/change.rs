//! Where along a series the values change, and for how long: the first bad place along depth.

/// A stretch of the series that differs from the rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// First value of the stretch.
    pub start: usize,
    /// One past its last value.
    pub end: usize,
    /// How far its mean lies over the rest's, in standard errors.
    pub statistic: f64,
    /// Bound on the chance that noise alone gives as much anywhere (all stretches counted).
    pub chance: f64,
}

/// Spread that is taken at least: log-ratios of errors never agree better than this.
const LEAST_SPREAD: f64 = 0.1;
/// Values of a normal distribution that lie within 1 median absolute deviation have this many of them in one σ.
const MAD: f64 = 1.4826;

/// The stretch whose mean lies furthest over the rest (an epidemic change-point: it may end). σ is the median absolute
/// deviation of the series. `None` for fewer than 8 values, or when no stretch lies over the rest.
///
/// An error that is injected once is measured at every tap behind it in the layer and at none of the next layer, so the
/// stretch begins where the error does.
pub fn change(values: &[f64]) -> Option<Change> {
    let n = values.len();
    if n < 8 || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let centre = median(values.to_vec());
    let spread = (MAD * median(values.iter().map(|v| (v - centre).abs()).collect())).max(LEAST_SPREAD);
    let mut sums = vec![0.0];
    values.iter().for_each(|v| sums.push(sums[sums.len() - 1] + (v - centre) / spread));
    let mut best: Option<Change> = None;
    for start in 0..n {
        for end in start + 1..=n {
            let statistic = (sums[end] - sums[start]) / ((end - start) as f64).sqrt();
            if best.is_none_or(|b| statistic > b.statistic) {
                best = Some(Change { start, end, statistic, chance: 1.0 });
            }
        }
    }
    let best = best.filter(|b| b.statistic > 0.0)?;
    let stretches = (n * (n + 1) / 2) as f64;
    let tail = 0.5 * libm::erfc(best.statistic / std::f64::consts::SQRT_2);
    Some(Change { chance: (stretches * tail).min(1.0), ..best })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (a, b) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    0.5 * (a + b)
}

#[cfg(test)]
mod tests;
