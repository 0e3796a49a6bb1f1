//! Memory of tensors that are written, for those that come next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use karat_seam::{Data, Tensor};

/// Elements under which the allocator is quick enough.
const LARGE: usize = 1 << 16;

/// Buffers that nobody needs any more: the system takes memory of this size back at once and hands it out again page by page and
/// cleared, which costs more than the copy into it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Spare(Arc<Mutex<Vec<Held>>>);

#[derive(Debug)]
struct Held {
    buffer: Vec<f32>,
    /// It was there when the last file was handed over.
    is_old: bool,
}

impl Spare {
    /// An empty buffer with room for `n` elements: the smallest that is there, if it is not twice as large as it must be. A new one
    /// takes the place of as much that is held, if as much is: what is held never comes on top of what is needed.
    pub(super) fn take(&self, n: usize) -> Vec<f32> {
        if n >= LARGE {
            let mut held = self.held();
            let fits = held.iter().enumerate().filter(|(_, h)| (n..=2 * n).contains(&h.buffer.capacity()));
            if let Some((at, _)) = fits.min_by_key(|(_, h)| h.buffer.capacity()) {
                let mut buffer = held.swap_remove(at).buffer;
                buffer.clear();
                return buffer;
            }
            let mut freed = 0;
            while freed < n
                && let Some((at, _)) = held.iter().enumerate().min_by_key(|(_, h)| h.buffer.capacity())
            {
                freed += held.swap_remove(at).buffer.capacity();
            }
        }
        Vec::with_capacity(n)
    }

    /// Keeps a tensor's memory.
    pub(super) fn leave(&self, tensor: Tensor) {
        if let Data::F32(buffer) = tensor.data
            && buffer.capacity() >= LARGE
        {
            self.held().push(Held { buffer, is_old: false });
        }
    }

    /// A file is handed over: what it had no use for is given back. What was left since the file before was handed over stays, for the
    /// next one: a producer that is slower than the disk finds it here before it is done.
    pub(super) fn age(&self) {
        let mut held = self.held();
        held.retain(|h| !h.is_old);
        held.iter_mut().for_each(|h| h.is_old = true);
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let held = || -> Vec<usize> {
            let mut all: Vec<usize> = spare.held().iter().map(|h| h.buffer.capacity() / LARGE).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(held(), [1, 2, 3]);
        let fits = spare.take(LARGE + 1);
        assert_eq!((fits.len(), fits.capacity()), (0, 2 * LARGE));
        assert_eq!(held(), [1, 3]);
        // 3 is more than twice 1: a new one, and as much is freed, the smaller buffers first.
        assert!(spare.take(LARGE + 1).capacity() < 2 * LARGE);
        assert!(held().is_empty());
    }

    #[test]
    fn a_buffer_waits_for_one_file_and_no_longer() {
        let spare = Spare::default();
        let leave = || spare.leave(Tensor::f32([LARGE], vec![7.0; LARGE]));
        leave();
        // The file that was open when it was left is handed over; the next one may take it.
        spare.age();
        assert_eq!(spare.held().len(), 1);
        leave();
        spare.age();
        assert_eq!(spare.held().len(), 1, "that of the file before had no use for its own");
        spare.age();
        assert_eq!(spare.held().len(), 0);
    }
}
