//! Logits: how far the candidate's next-token distribution is from golden's, position by position.

mod position;
mod summary;
#[cfg(test)]
mod tests;

use karat_seam::{Data, Error, Result, Tensor};
use rayon::prelude::*;

pub use position::{FirstChoice, Position};
pub use summary::Summary;

/// Compares logits `[S,V]` (f32 or f64) position by position, in f64 throughout. `targets` are the next tokens, one a
/// position (`None` where there is none); `k` is the size of the top-k overlap.
///
/// Errors: shapes that differ, no vocabulary, another count of targets, a target outside the vocabulary, integers.
pub fn positions(golden: &Tensor, candidate: &Tensor, targets: &[Option<u32>], k: usize) -> Result<Vec<Position>> {
    check(golden, candidate)?;
    if targets.len() != golden.rows() {
        return Err(Error::Request(format!("{} targets for {} rows of logits", targets.len(), golden.rows())));
    }
    if let Some(bad) = targets.iter().flatten().find(|t| **t as usize >= golden.width()) {
        return Err(Error::Request(format!("target {bad} is not in the vocabulary of {}", golden.width())));
    }
    let one = |(r, target): (usize, &Option<u32>)| Position::of(&row(golden, r), &row(candidate, r), *target, k);
    Ok(targets.par_iter().enumerate().map(one).collect())
}

/// What [`positions`] says of the first choices, without the rest.
///
/// Errors: shapes that differ, no vocabulary, integers.
pub fn first_choices(golden: &Tensor, candidate: &Tensor) -> Result<Vec<FirstChoice>> {
    check(golden, candidate)?;
    let one = |r: usize| FirstChoice::of(&row(golden, r), &row(candidate, r));
    Ok((0..golden.rows()).into_par_iter().map(one).collect())
}

fn check(golden: &Tensor, candidate: &Tensor) -> Result<()> {
    if golden.shape != candidate.shape || golden.shape.len() != 2 || golden.shape[1] == 0 {
        let (expected, found) = (golden.shape.clone(), candidate.shape.clone());
        return Err(Error::Shape { at: "logits".into(), expected, found });
    }
    for data in [&golden.data, &candidate.data] {
        if !matches!(data, Data::F32(_) | Data::F64(_)) {
            return Err(Error::Dtype { at: "logits".into(), expected: "f32 or f64", found: data.dtype() });
        }
    }
    Ok(())
}

/// A row in f64.
fn row(logits: &Tensor, r: usize) -> Vec<f64> {
    let here = r * logits.width()..(r + 1) * logits.width();
    match &logits.data {
        Data::F32(v) => v[here].iter().map(|&v| f64::from(v)).collect(),
        Data::F64(v) => v[here].to_vec(),
        Data::I64(_) | Data::U8(_) => Vec::new(),
    }
}

/// P(flip) = Φ(-m/(s·√2)): the chance that noise of standard deviation `s` on each of two logits (or scores) whose
/// golden margin is `m >= 0` turns their order. `s` is *predicted* noise (the contract's or stock's), never the
/// candidate's own. A tie (m = 0) is 1/2, also for s = 0.
pub fn expected_flip_probability(m: f64, s: f64) -> f64 {
    if m == 0.0 {
        return 0.5;
    }
    // Φ(-z) = erfc(z/√2)/2 with z = m/(s·√2).
    0.5 * libm::erfc(m / (2.0 * s))
}

/// The chance that noise changes golden's first choice, all other ids considered: every logit of `golden` gets
/// independent Gaussian noise of standard deviation `s`, and
///   P(kept) = E_x[ Π_j Φ((m_j + x)/s) ],  x ~ N(0, s²), m_j = best logit - logit j,
/// integrated over x by Simpson's rule on ±8 s. With one other id this is [`expected_flip_probability`]. An id that is
/// not finite cannot be chosen; a row without two finite ids is never changed.
pub fn expected_choice_change(golden: impl Iterator<Item = f64>, s: f64) -> f64 {
    let mut finite: Vec<f64> = golden.filter(|v| v.is_finite()).collect();
    finite.sort_unstable_by(|a, b| b.total_cmp(a));
    let Some((best, rest)) = finite.split_first() else { return 0.0 };
    // Beyond 16 s (8 from each side) an id adds less than 1e-15.
    let margins: Vec<f64> = rest.iter().map(|v| best - v).take_while(|m| *m <= 16.0 * s).collect();
    if margins.is_empty() {
        return 0.0;
    }
    if s == 0.0 {
        // Exact ties: each is as likely as the next.
        return margins.len() as f64 / (margins.len() + 1) as f64;
    }
    const STEPS: usize = 128;
    let h = 16.0 / STEPS as f64;
    let kept: f64 = (0..=STEPS)
        .map(|i| {
            let z = -8.0 + h * i as f64;
            let weight = if i == 0 || i == STEPS { 1.0 } else { 2.0 + 2.0 * (i % 2) as f64 };
            let density = (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
            weight * density * all_stay(&margins, s, z)
        })
        .sum::<f64>()
        * h
        / 3.0;
    (1.0 - kept).clamp(0.0, 1.0)
}

/// Π_j Φ(m_j/s + z) over ascending margins. Two ends of the product cost nothing and change no bit of a result that is
/// known to 1e-16: below 1e-40 it adds nothing, and from an argument of 6√2 on libm's erfc is exactly 2, so every
/// further factor is 1.
fn all_stay(margins: &[f64], s: f64, z: f64) -> f64 {
    let mut stays = 1.0;
    for m in margins {
        let at = -(m / s + z) / std::f64::consts::SQRT_2;
        if at < -6.0 || stays < 1e-40 {
            break;
        }
        stays *= 0.5 * libm::erfc(at);
    }
    stays
}
