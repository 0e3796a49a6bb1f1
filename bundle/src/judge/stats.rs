//! Tails of the distributions that limits are tested with, and Holm's procedure.

/// P(T > t) of Student's t with `degrees` degrees of freedom.
pub(crate) fn student_tail(t: f64, degrees: f64) -> f64 {
    if t.is_nan() {
        return f64::NAN;
    }
    let half = 0.5 * incomplete_beta(0.5 * degrees, 0.5, degrees / (degrees + t * t));
    if t > 0.0 { half } else { 1.0 - half }
}

/// The t above which a share `p` (under a half) of Student's distribution lies.
pub fn student_quantile(p: f64, degrees: f64) -> f64 {
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    while student_tail(high, degrees) > p && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..100 {
        let mid = 0.5 * (low + high);
        if student_tail(mid, degrees) > p { low = mid } else { high = mid }
    }
    0.5 * (low + high)
}

/// Regularised incomplete beta function I_x(a, b), by its continued fraction (Numerical Recipes 6.4, modified Lentz).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(a, b, x) / a
    } else {
        1.0 - front * fraction(b, a, 1.0 - x) / b
    }
}

fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let safe = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / safe(1.0 - (a + b) * x / (a + 1.0));
    let mut out = d;
    for m in 1..10_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / safe(1.0 + even * d);
        c = safe(1.0 + even / c);
        out *= c * d;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / safe(1.0 + odd * d);
        c = safe(1.0 + odd / c);
        out *= c * d;
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    out
}

/// ln Γ(x) for x > 0 (Lanczos, g = 7, nine terms: 15 digits).
fn ln_gamma(x: f64) -> f64 {
    const G: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let sum = G[1..].iter().zip(1..).fold(G[0], |sum, (g, i)| sum + g / (x + f64::from(i)));
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// Holm's step-down procedure: which of these tests are rejected so that the chance of one wrong rejection among all of
/// them is at most `delta`, whatever their dependence.
pub(crate) fn holm(p: &[f64], delta: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut out = vec![false; p.len()];
    for (rank, i) in order.into_iter().enumerate() {
        if p[i] > delta / (p.len() - rank) as f64 {
            break;
        }
        out[i] = true;
    }
    out
}

#[cfg(test)]
mod tests;
