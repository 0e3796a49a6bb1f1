//! The Hadamard rotation of index queries and keys (spec 2.8).

use crate::arith::vectorised;

vectorised! {
    /// Sylvester-order Hadamard transform of one vector, scaled by len^-0.5, in place: f32 butterflies of stride 1, 2, 4,
    /// ... The length is a power of two. Orthogonal: in exact arithmetic it changes no dot product.
    pub fn hadamard(x: &mut [f32]) {
        debug_assert!(x.len().is_power_of_two());
        let mut stride = 1;
        while stride < x.len() {
            for pair in x.chunks_exact_mut(2 * stride) {
                let (low, high) = pair.split_at_mut(stride);
                for (a, b) in low.iter_mut().zip(high) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            stride *= 2;
        }
        let scale = (x.len() as f32).powf(-0.5);
        for v in x {
            *v *= scale;
        }
    }
}
