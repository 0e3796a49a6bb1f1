//! Products with weights that are never whole: each block of panels is decoded into the caches, multiplied by all rows, and
//! overwritten by the next. The bits are those of a packed weight, since the chains and their blocks are.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use std::ops::Range;

use super::gemm::{Buffers, Product, copy};
use super::gemm_tiles::{Add, Place, Slab, sweep};
use super::simd::{Job, dispatch};
use super::simd_vector::Machine;
use super::{Isa, K_BLOCK, LANES, Packed, Real};

/// A weight `[n,k]` that is stored in some other form.
pub(crate) trait Stored<T>: Sync {
    /// k
    fn inputs(&self) -> usize;
    /// Inputs `ks` of at most LANES outputs `rows`, side by side: `[ks][LANES]`, zero for outputs that aren't there. `ks`
    /// begins at a multiple of K_BLOCK. Every value is finite: the caller has seen to it.
    fn panel(&self, isa: Isa, rows: Range<usize>, ks: Range<usize>, out: &mut [[T; LANES]]);
}

/// Bytes of panels that are decoded together and of their sums: they stay in the second cache while all rows pass. The more
/// panels, the less often the rows come from farther away.
pub(super) const CACHED: usize = 1 << 18;
/// Most rows for which a weight is decoded once: a block of their values stays in the second cache too, and beyond this
/// number decoding takes no time that counts.
pub(super) const ROWS: usize = 384;

/// A product with a stored weight: all of its outputs `[m,n]`.
pub(crate) struct Times<'a, T> {
    /// `[n,k]`
    pub(crate) w: &'a dyn Stored<T>,
    /// n
    pub(crate) n: usize,
    /// `[m,n]`
    pub(crate) out: &'a mut [T],
}

/// Rows times each of the weights, on the calling thread. The weights have as many inputs as the rows have values.
pub(crate) fn multiply_stored<T: Real>(isa: Isa, x: &[&[T]], products: &mut [Times<'_, T>]) {
    let k = x.first().map_or(0, |row| row.len());
    for times in products.iter() {
        assert!(x.is_empty() || times.w.inputs() == k, "a row does not have the weight's inputs");
        assert_eq!(times.out.len(), x.len() * times.n, "[m,{}]", times.n);
    }
    T::with_buffers(|buffers| {
        let mut block = std::mem::take(&mut buffers.block);
        for (i, rows) in x.chunks(ROWS).enumerate() {
            if k > 2 * K_BLOCK {
                copy(&mut buffers.slab, rows, 0..k);
            }
            for times in &mut *products {
                let out = &mut times.out[i * ROWS * times.n..][..rows.len() * times.n];
                let panel = LANES * (K_BLOCK * size_of::<T>() + rows.len() * size_of::<f64>());
                let width = LANES * ((CACHED / panel).clamp(4, 16) / 2 * 2);
                for first in (0..times.n).step_by(width) {
                    let outputs = first..times.n.min(first + width);
                    let group = Group { w: times.w, isa, outputs, stride: times.n };
                    group.multiply(rows, out, &mut block, buffers);
                }
            }
        }
        buffers.block = block;
    });
}

/// Some panels of a weight.
struct Group<'a, T> {
    w: &'a dyn Stored<T>,
    isa: Isa,
    outputs: Range<usize>,
    stride: usize,
}

impl<T: Real> Group<'_, T> {
    /// Into columns `outputs` of `out` `[m,stride]`. The rows' copy is in the buffers where they are long.
    fn multiply(&self, rows: &[&[T]], out: &mut [T], block: &mut Packed<T>, buffers: &mut Buffers<T>) {
        let (m, k, first, stride) = (rows.len(), self.w.inputs(), self.outputs.start, self.stride);
        let panels = 0..self.outputs.len().div_ceil(LANES);
        if k <= 2 * K_BLOCK {
            decode(self.isa, self.w, &self.outputs, 0..k, block);
            let product = Product { rows, w: block, panels, out, stride, first, buffers };
            return dispatch(self.isa, product);
        }
        buffers.sums.clear(panels.len() * m);
        for (i, k0) in (0..k).step_by(K_BLOCK).enumerate() {
            decode(self.isa, self.w, &self.outputs, k0..k.min(k0 + K_BLOCK), block);
            let x = Slab { data: &buffers.slab[i * m * K_BLOCK..][..m * K_BLOCK], m, first: 0 };
            dispatch(self.isa, Block { x, w: block, sums: &mut buffers.sums });
        }
        let place = Place { out, stride, first, start: 0, w: block };
        dispatch(self.isa, Round { sums: &buffers.sums, m, place });
    }
}

/// Inputs `ks` of some outputs of a weight, as a weight of their own.
pub(super) fn decode<T: Real>(
    isa: Isa,
    w: &dyn Stored<T>,
    outputs: &Range<usize>,
    ks: Range<usize>,
    block: &mut Packed<T>,
) {
    let data = block.reshape(outputs.len(), ks.len());
    for (p, panel) in data.chunks_exact_mut(ks.len().max(1)).enumerate() {
        let first = outputs.start + p * LANES;
        w.panel(isa, first..outputs.end.min(first + LANES), ks.clone(), panel);
    }
}

/// One block of inputs of some panels, added to the sums `[panels][m]`.
pub(super) struct Block<'a, T> {
    pub(super) x: Slab<'a, T>,
    pub(super) w: &'a Packed<T>,
    pub(super) sums: &'a mut [[f64; LANES]],
}

impl<T: Real> Job for Block<'_, T> {
    #[inline(always)]
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(self) {
        let Self { x, w, sums } = self;
        let k = w.k();
        sweep::<T, M, R, H, P>(x, x.m, w, 0..w.panels(), 0..k, k, &mut Add { sums, m: x.m, start: 0 });
    }
}

/// Sums of all panels `[panels][m]` to their places.
struct Round<'a, T> {
    sums: &'a [[f64; LANES]],
    m: usize,
    place: Place<'a, T>,
}

impl<T: Real> Job for Round<'_, T> {
    #[inline(always)]
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(mut self) {
        let panels = 0..self.place.w.panels();
        self.place.round(self.sums, self.m, panels);
    }
}
