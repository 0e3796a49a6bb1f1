//! RMSNorm (spec 2.4).

use super::rows;
use crate::arith::{bf16, dot, vectorised};
use crate::plan::{Numerics, Store};

/// rsqrt(mean(x^2) + eps) of one vector.
pub(crate) fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    1.0 / (dot(x, x) / x.len() as f32 + eps).sqrt()
}

/// y = B(w * (x * rsqrt(mean(x^2) + eps))) for each row of `x [S,n]`, in place; multiplied before the one rounding.
pub(crate) fn rms_norm(rules: &Numerics, x: &mut [f32], weight: &[f32], eps: f32) {
    rms_norm_as(rules.store, x, weight, eps);
}

/// [`rms_norm`] with another rounding at its end.
pub(crate) fn rms_norm_as(store: Store, x: &mut [f32], weight: &[f32], eps: f32) {
    rows(x, weight.len(), |_, row| {
        let r = inverse_rms(row, eps);
        scale(row, weight, r, store.rounds());
    });
}

vectorised! {
    /// B(w * (x * r)) in place.
    fn scale(x: &mut [f32], weight: &[f32], r: f32, rounds: bool) {
        for (v, w) in x.iter_mut().zip(weight) {
            let y = w * (*v * r);
            *v = if rounds { bf16(y) } else { y };
        }
    }
}
