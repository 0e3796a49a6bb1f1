//! Clamped SwiGLU (spec 2.11), the same for routed and shared experts.
//!
//! `g = min(g, L)`, `u = clamp(u, -L, L)`, `a = (silu(g) * u)`, routed: `a = wt * a` BEFORE w2. The gate has no lower
//! clamp. A NaN stays one.

use crate::linalg::Real;

/// `silu(min(g, L)) * clamp(u, -L, L)`.
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
