//! Logits: how far the candidate's next-token distribution is from golden's, position by position.

mod position;
mod summary;
#[cfg(test)]
mod tests;

use karat_seam::{Data, Error, Result, Tensor};
use rayon::prelude::*;

pub use position::Position;
pub use summary::Summary;

/// Compares logits `[S,V]` (f32 or f64) position by position, in f64 throughout. `targets` are the next tokens, one a
/// position (`None` where there is none); `k` is the size of the top-k overlap.
///
/// Errors: shapes that differ, no vocabulary, another count of targets, a target outside the vocabulary, integers.
pub fn positions(golden: &Tensor, candidate: &Tensor, targets: &[Option<u32>], k: usize) -> Result<Vec<Position>> {
    if golden.shape != candidate.shape || golden.shape.len() != 2 || golden.shape[1] == 0 {
        let (expected, found) = (golden.shape.clone(), candidate.shape.clone());
        return Err(Error::Shape { at: "logits".into(), expected, found });
    }
    if targets.len() != golden.rows() {
        return Err(Error::Request(format!("{} targets for {} rows of logits", targets.len(), golden.rows())));
    }
    if let Some(bad) = targets.iter().flatten().find(|t| **t as usize >= golden.width()) {
        return Err(Error::Request(format!("target {bad} is not in the vocabulary of {}", golden.width())));
    }
    for data in [&golden.data, &candidate.data] {
        if !matches!(data, Data::F32(_) | Data::F64(_)) {
            return Err(Error::Dtype { at: "logits".into(), expected: "f32 or f64", found: data.dtype() });
        }
    }
    let width = golden.width();
    let row = |data: &Data, r: usize| -> Vec<f64> {
        match data {
            Data::F32(v) => v[r * width..(r + 1) * width].iter().map(|&v| f64::from(v)).collect(),
            Data::F64(v) => v[r * width..(r + 1) * width].to_vec(),
            Data::I64(_) | Data::U8(_) => Vec::new(),
        }
    };
    let one =
        |(r, target): (usize, &Option<u32>)| Position::of(&row(&golden.data, r), &row(&candidate.data, r), *target, k);
    Ok(targets.par_iter().enumerate().map(one).collect())
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
