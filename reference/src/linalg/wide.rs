//! Products with a large stored weight, by all threads: the rows are laid out once for all of them, and each task takes some
//! outputs, whose panels it decodes block by block. The bits are those of a packed weight.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use std::ops::Range;

use rayon::prelude::*;

use super::gemm::Buffers;
use super::gemm_tiles::Slab;
use super::simd::{Job, dispatch};
use super::simd_vector::Machine;
use super::stored::{Block, CACHED, ROWS, decode};
use super::{Isa, K_BLOCK, LANES, Real, Stored};

/// `x w^T` for rows that lie anywhere and outputs `outputs` of a stored weight, into columns `first..` of rows of `stride`
/// values. The rows have as many values as the weight has inputs.
pub(crate) fn multiply_wide<T: Real>(
    isa: Isa,
    x: &[&[T]],
    w: &dyn Stored<T>,
    outputs: Range<usize>,
    (out, stride, first): (&mut [T], usize, usize),
) {
    let k = w.inputs();
    assert!(x.iter().all(|row| row.len() == k), "a row does not have the weight's {k} inputs");
    if outputs.is_empty() {
        return;
    }
    // Not borrowed while others compute: this thread takes tasks too.
    let mut slab = T::with_buffers(|buffers| std::mem::take(&mut buffers.slab));
    for (x, out) in x.chunks(ROWS).zip(out.chunks_mut(ROWS * stride)) {
        let (m, blocks) = (x.len(), k.div_ceil(K_BLOCK));
        if slab.len() < m * blocks * K_BLOCK {
            slab.resize(m * blocks * K_BLOCK, T::ZERO);
        }
        let slab = &mut slab[..m * blocks * K_BLOCK];
        slab.par_chunks_mut(m * K_BLOCK).enumerate().for_each(|(i, block)| {
            let ks = i * K_BLOCK..k.min((i + 1) * K_BLOCK);
            for (to, row) in block.chunks_exact_mut(K_BLOCK).zip(x) {
                to[..ks.len()].copy_from_slice(&row[ks.clone()]);
            }
        });
        let width = LANES * panels(m, outputs.len(), size_of::<T>());
        let mut columns: Vec<Vec<&mut [T]>> = outputs.clone().step_by(width).map(|_| Vec::with_capacity(m)).collect();
        for row in out.chunks_mut(stride) {
            let parts = row[first..first + outputs.len()].chunks_mut(width);
            columns.iter_mut().zip(parts).for_each(|(column, part)| column.push(part));
        }
        let (slab, tasks) = (&*slab, columns.into_par_iter().enumerate().with_max_len(1));
        tasks.for_each(|(i, column)| {
            let start = outputs.start + i * width;
            let outputs = start..outputs.end.min(start + width);
            T::with_buffers(|buffers| task(isa, (slab, m), w, outputs, column, buffers));
        });
    }
    T::with_buffers(|buffers| buffers.slab = slab);
}

/// Panels of a task: their sums and one block of them stay in the second cache; less where threads would have nothing to do.
fn panels(m: usize, outputs: usize, bytes: usize) -> usize {
    let cached = CACHED / (LANES * (K_BLOCK * bytes + m * size_of::<f64>()));
    let shared = outputs.div_ceil(LANES).div_ceil(2 * rayon::current_num_threads());
    // Tiles take two panels.
    cached.min(shared).clamp(2, 16).next_multiple_of(2)
}

/// Some outputs of all rows `[blocks][m][K_BLOCK]`.
fn task<T: Real>(
    isa: Isa,
    (slab, m): (&[T], usize),
    w: &dyn Stored<T>,
    outputs: Range<usize>,
    out: Vec<&mut [T]>,
    buffers: &mut Buffers<T>,
) {
    let Buffers { sums, block, .. } = buffers;
    let k = w.inputs();
    sums.clear(outputs.len().div_ceil(LANES) * m);
    for (i, data) in slab.chunks_exact(m * K_BLOCK).enumerate() {
        decode(isa, w, &outputs, i * K_BLOCK..k.min((i + 1) * K_BLOCK), block);
        dispatch(isa, Block { x: Slab { data, m, first: 0 }, w: block, sums: &mut *sums });
    }
    dispatch(isa, Rounded { sums, m, out });
}

/// Sums `[panels][m]`, each rounded once to its place: the outputs of a row lie together.
struct Rounded<'a, T> {
    sums: &'a [[f64; LANES]],
    m: usize,
    out: Vec<&'a mut [T]>,
}

impl<T: Real> Job for Rounded<'_, T> {
    #[inline(always)]
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(self) {
        for (r, row) in self.out.into_iter().enumerate() {
            for (p, to) in row.chunks_mut(LANES).enumerate() {
                let sums = &self.sums[p * self.m + r];
                if let Some(to) = to.first_chunk_mut::<LANES>() {
                    for j in 0..LANES {
                        to[j] = T::of(sums[j]);
                    }
                } else {
                    to.iter_mut().zip(sums).for_each(|(to, sum)| *to = T::of(*sum));
                }
            }
        }
    }
}
