//! Memory of tensors that are written, for those that come next.

use std::sync::{Arc, Mutex, PoisonError};

use karat_seam::{Data, Tensor};

/// Elements under which the allocator is quick enough.
const LARGE: usize = 1 << 16;

/// Buffers that nobody needs any more: the system takes memory of this size back at once and hands it out again page by page and
/// cleared, which costs more than the copy into it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Spare(Arc<Mutex<Vec<Vec<f32>>>>);

impl Spare {
    /// An empty buffer with room for `n` elements: the smallest that is there, if it is not twice as large as it must be.
    pub(super) fn take(&self, n: usize) -> Vec<f32> {
        if n >= LARGE {
            let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = held.iter().enumerate().filter(|(_, buffer)| (n..=2 * n).contains(&buffer.capacity()));
            if let Some((at, _)) = fits.min_by_key(|(_, buffer)| buffer.capacity()) {
                let mut buffer = held.swap_remove(at);
                buffer.clear();
                return buffer;
            }
        }
        Vec::with_capacity(n)
    }

    /// Keeps a tensor's memory.
    pub(super) fn leave(&self, tensor: Tensor) {
        if let Data::F32(buffer) = tensor.data
            && buffer.capacity() >= LARGE
        {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        }
    }

    /// Gives all of it back: nobody wanted it.
    pub(super) fn empty(&self) {
        let unwanted = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(unwanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_where_it_fits() {
        let spare = Spare::default();
        let of = |n: usize| Tensor::f32([n], vec![7.0; n]);
        for n in [LARGE, 3 * LARGE, LARGE - 1] {
            spare.leave(of(n));
        }
        // Too small to be kept; too large by more than twice; the smaller of two that fit.
        assert!(spare.take(LARGE - 1).capacity() < LARGE);
        spare.leave(of(2 * LARGE));
        let held = || spare.0.lock().unwrap().len();
        assert_eq!(held(), 3);
        let fits = spare.take(LARGE + 1);
        assert_eq!((fits.len(), fits.capacity()), (0, 2 * LARGE));
        assert!(spare.take(LARGE + 1).capacity() < 2 * LARGE, "3 is more than twice 1");
        assert_eq!(held(), 2);
        spare.empty();
        assert_eq!(held(), 0);
    }
}
