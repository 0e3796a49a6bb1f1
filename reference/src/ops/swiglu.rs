//! Clamped SwiGLU (spec 2.11), the same for routed and shared experts.
//!
//! `g = min(g, L)`, `u = clamp(u, -L, L)`, `a = (silu(g) * u)`, routed: `a = wt * a` BEFORE w2. The gate has no lower
//! clamp. A NaN stays one.

#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use crate::linalg::{Function2, Real};

/// `silu(min(g, L)) * clamp(u, -L, L)`.
#[inline(always)]
pub(crate) fn swiglu<T: Real>(g: T, u: T, limit: T) -> T {
    let g = if g > limit { limit } else { g };
    let u = if u > limit {
        limit
    } else if u < -limit {
        -limit
    } else {
        u
    };
    g.silu() * u
}

/// [`swiglu`] of a gate and an up value.
pub(crate) struct Swiglu<T> {
    /// L.
    pub(crate) limit: T,
}

impl<T: Real> Function2<T> for Swiglu<T> {
    #[inline(always)]
    fn of(&self, g: T, u: T) -> T {
        swiglu(g, u, self.limit)
    }
}
