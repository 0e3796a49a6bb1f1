//! Memory for vectors: rows of LANES values, none of which a load splits over two cache lines.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::{LANES, Real};

/// Bytes of a cache line, and of the widest vector.
const CACHE_LINE: usize = 64;

/// An array of `[T; LANES]` that begins where a cache line does. The system's allocator aligns to 16 bytes: there a load of 64
/// would touch two lines, each time.
pub(crate) struct Lines<T> {
    /// Longer than what is used of it by less than a cache line.
    memory: Vec<T>,
    /// Where the first line begins.
    first: usize,
    /// How many there are.
    n: usize,
}

impl<T: Real> Lines<T> {
    /// So many lines of zeros, which the system may have at hand.
    pub(super) fn zeros(n: usize) -> Self {
        let memory = vec![T::ZERO; n * LANES + CACHE_LINE / size_of::<T>()];
        let first = memory.as_ptr().align_offset(CACHE_LINE);
        // A platform that can't say where a cache line begins goes without.
        let first = if first <= memory.len() - n * LANES { first } else { 0 };
        Self { memory, first, n }
    }

    /// Takes another length; what the lines hold then means nothing.
    pub(super) fn reshape(&mut self, n: usize) {
        if self.first + n * LANES <= self.memory.len() {
            self.n = n;
        } else {
            *self = Self::zeros(n);
        }
    }

    /// So many lines of zeros.
    pub(super) fn clear(&mut self, n: usize) {
        self.reshape(n);
        self.fill([T::ZERO; LANES]);
    }
}

impl<T> Default for Lines<T> {
    fn default() -> Self {
        Self { memory: Vec::new(), first: 0, n: 0 }
    }
}

impl<T: Real> Clone for Lines<T> {
    fn clone(&self) -> Self {
        let mut out = Self::zeros(self.n);
        out.copy_from_slice(self);
        out
    }
}

impl<T> Deref for Lines<T> {
    type Target = [[T; LANES]];

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.memory[self.first..].as_chunks().0[..self.n]
    }
}

impl<T> DerefMut for Lines<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.memory[self.first..].as_chunks_mut().0[..self.n]
    }
}

impl<T> fmt::Debug for Lines<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines", self.n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_begin_where_a_cache_line_does() {
        fn check<T: Real>() {
            for n in [0, 1, 3, 1000] {
                let mut lines = Lines::<T>::zeros(n);
                lines.iter_mut().for_each(|line| *line = [T::ONE; LANES]);
                let mut copy = lines.clone();
                assert_eq!(copy[..], vec![[T::ONE; LANES]; n], "a copy holds the same");
                for lines in [&lines, &copy] {
                    assert!(lines.as_ptr().addr().is_multiple_of(CACHE_LINE), "{n} lines of {}", T::MODE);
                }
                copy.clear(2 * n + 1);
                assert_eq!(copy[..], vec![[T::ZERO; LANES]; 2 * n + 1], "all are cleared");
                assert!(copy.as_ptr().addr().is_multiple_of(CACHE_LINE));
                copy.reshape(n);
                assert_eq!(copy.len(), n);
            }
        }
        check::<f32>();
        check::<f64>();
    }
}
