//! y[m,n] = x[m,:] . w[n,:] over packed weights.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use std::ops::Range;

use rayon::prelude::*;

use super::gemm_tiles::{Add, Direct, Place, Slab, sweep};
use super::lines::Lines;
use super::simd::{Job, dispatch};
use super::simd_vector::Machine;
use super::{Isa, K_BLOCK, LANES, Packed, Real};

/// Most rows of one task: one K-block of their values stays in the second cache while panels pass, and the weight comes
/// from memory once for all of them. As many as the rows of a piece, so that none is cut in two.
const ROW_BLOCK: usize = 256;
/// Inputs whose values are copied together.
const SLAB: usize = 8 * K_BLOCK;
/// Panels from which a copy of long rows is worth its time: the copy's rows lie at one distance, so a tile needs one
/// address for all of them, and never far apart by a power of two, where they would fight for the same cache lines.
const COPIED_FROM: usize = 4;
/// Panels whose sums stay in the caches while all inputs pass.
const GROUP: usize = 6;
/// Multiplications under which a task is not worth a thread.
const TASK: usize = 1 << 17;
/// A weight this many times as wide as there are rows is cut, not the rows: each task reads its own part of it.
const WIDER: usize = 4;
/// Outputs that one task puts in place.
const PLACED: usize = 1 << 17;

/// `x w^T` for rows that lie anywhere, into columns `first..first+n` of rows of `stride` values, by all threads.
pub(crate) fn matmul_into<T: Real>(isa: Isa, x: &[&[T]], w: &Packed<T>, out: &mut [T], stride: usize, first: usize) {
    assert!(x.iter().all(|row| row.len() == w.k()), "a row does not have the weight's {} inputs", w.k());
    let (m, threads) = (x.len(), rayon::current_num_threads());
    if m == 0 || w.n() == 0 {
        return;
    }
    let work = m * w.panels() * LANES * w.k();
    if threads == 1 || work < 2 * TASK {
        rows_here(isa, x, w, 0..w.panels(), out, stride, first);
        return;
    }
    let (most, wide) = ((work / TASK).max(2), w.panels() * LANES > WIDER * m);
    if m < 24 * threads || (wide && w.panels() >= 4 * threads) {
        by_panels(isa, x, w, out, stride, first, most.min(2 * threads));
        return;
    }
    // As many tasks for every thread, of about the same number of rows.
    let tasks = m.div_ceil(ROW_BLOCK).next_multiple_of(threads).max(2 * threads).min(most);
    let block = m.div_ceil(tasks).next_multiple_of(2);
    let blocks = x.par_chunks(block).zip(out.par_chunks_mut(block * stride)).with_max_len(1);
    blocks.for_each(|(rows, out)| rows_here(isa, rows, w, 0..w.panels(), out, stride, first));
}

/// As [`matmul_into`], on the calling thread and into a buffer `[rows, n]`: for the inside of parallel loops.
pub(crate) fn matmul_here<T: Real>(isa: Isa, x: &[&[T]], w: &Packed<T>, out: &mut [T]) {
    columns_here(isa, x, w, 0..w.panels(), out);
}

/// As [`matmul_here`], the outputs of some panels only: `[rows, outputs of the panels]`.
pub(crate) fn columns_here<T: Real>(isa: Isa, x: &[&[T]], w: &Packed<T>, panels: Range<usize>, out: &mut [T]) {
    let stride = (panels.end * LANES).min(w.n()) - panels.start * LANES;
    debug_assert_eq!(out.len(), x.len() * stride);
    rows_here(isa, x, w, panels, out, stride, 0);
}

/// Any number of rows, on the calling thread.
fn rows_here<T: Real>(
    isa: Isa,
    x: &[&[T]],
    w: &Packed<T>,
    panels: Range<usize>,
    out: &mut [T],
    stride: usize,
    first: usize,
) {
    T::with_buffers(|buffers| {
        for (rows, out) in x.chunks(ROW_BLOCK).zip(out.chunks_mut((ROW_BLOCK * stride).max(1))) {
            dispatch(isa, Product { rows, w, panels: panels.clone(), out, stride, first, buffers });
        }
    });
}

/// Few rows for the weight's width: groups of panels are the tasks; each fills a buffer of its own, which is then copied
/// in place.
fn by_panels<T: Real>(isa: Isa, x: &[&[T]], w: &Packed<T>, out: &mut [T], stride: usize, first: usize, tasks: usize) {
    let group = w.panels().div_ceil(tasks).next_multiple_of(2);
    let starts: Vec<usize> = (0..w.panels()).step_by(group).collect();
    let parts: Vec<(usize, Vec<T>)> = starts
        .into_par_iter()
        .with_max_len(1)
        .map(|start| {
            let panels = start..w.panels().min(start + group);
            let columns = (panels.end * LANES).min(w.n()) - start * LANES;
            let mut part = vec![T::ZERO; x.len() * columns];
            columns_here(isa, x, w, panels, &mut part);
            (start, part)
        })
        .collect();
    // Rows together: a result of many megabytes is written by all threads, to memory that none has touched yet.
    let together = (PLACED / stride.max(1)).max(1);
    out.par_chunks_mut(together * stride).enumerate().for_each(|(block, out)| {
        for (start, part) in &parts {
            let columns = part.len() / x.len();
            let from = part.chunks_exact(columns).skip(block * together);
            for (values, row) in from.zip(out.chunks_mut(stride)) {
                row[first + start * LANES..][..columns].copy_from_slice(values);
            }
        }
    });
}

/// What a thread's products work with; kept from one to the next.
#[derive(Debug, Default)]
pub struct Buffers<T> {
    /// A slab of the rows: `[blocks][rows][K_BLOCK]`.
    pub(super) slab: Vec<T>,
    /// `[panels][rows]`.
    pub(super) sums: Lines<f64>,
    /// What was decoded last of a stored weight.
    pub(super) block: Packed<T>,
}

/// Rows times panels. Row r's outputs go to `out[r * stride + first..]`, those of the first panel first.
pub(super) struct Product<'a, T> {
    pub(super) rows: &'a [&'a [T]],
    pub(super) w: &'a Packed<T>,
    pub(super) panels: Range<usize>,
    pub(super) out: &'a mut [T],
    pub(super) stride: usize,
    pub(super) first: usize,
    pub(super) buffers: &'a mut Buffers<T>,
}

impl<T: Real> Job for Product<'_, T> {
    #[inline(always)]
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(self) {
        let Self { rows, w, panels, out, stride, first, buffers } = self;
        let (m, k) = (rows.len(), w.k());
        let mut place = Place { out, stride, first, start: panels.start, w };
        if k <= 2 * K_BLOCK {
            // A tile of two panels has more rows than there are registers for their addresses.
            if P > 1 && m >= R && panels.len() >= COPIED_FROM {
                let x = copy(&mut buffers.slab, rows, 0..k);
                sweep::<T, M, R, H, P>(x, m, w, panels, 0..k, k, &mut place);
            } else {
                sweep::<T, M, R, H, P>(Direct { rows }, m, w, panels, 0..k, k, &mut place);
            }
            return;
        }
        // More than two blocks: block sums are added in f64.
        buffers.sums.clear(panels.len() * m);
        if panels.len() < COPIED_FROM {
            for k0 in (0..k).step_by(K_BLOCK) {
                let mut add = Add { sums: &mut buffers.sums, m, start: panels.start };
                let end = k.min(k0 + K_BLOCK);
                sweep::<T, M, R, H, P>(Direct { rows }, m, w, panels.clone(), k0..end, end, &mut add);
            }
            place.round(&buffers.sums, m, panels);
            return;
        }
        for k0 in (0..k).step_by(SLAB) {
            let k1 = k.min(k0 + SLAB);
            let x = copy(&mut buffers.slab, rows, k0..k1);
            for start in panels.clone().step_by(GROUP) {
                let group = start..panels.end.min(start + GROUP);
                let sums = &mut buffers.sums[(start - panels.start) * m..];
                for k in (k0..k1).step_by(K_BLOCK) {
                    let mut add = Add { sums: &mut *sums, m, start };
                    let end = k1.min(k + K_BLOCK);
                    sweep::<T, M, R, H, P>(x, m, w, group.clone(), k..end, end, &mut add);
                }
            }
        }
        place.round(&buffers.sums, m, panels);
    }
}

/// Inputs `ks` of the rows as tiles read them.
#[inline(always)]
pub(super) fn copy<'b, T: Real>(slab: &'b mut Vec<T>, rows: &[&[T]], ks: Range<usize>) -> Slab<'b, T> {
    let n = rows.len() * ks.len().next_multiple_of(K_BLOCK);
    // What is left of an earlier product behind a block that is not whole is never read.
    if slab.len() < n {
        slab.resize(n, T::ZERO);
    }
    let blocks = slab.chunks_exact_mut(rows.len() * K_BLOCK);
    for (block, k0) in blocks.zip(ks.clone().step_by(K_BLOCK)) {
        let k1 = ks.end.min(k0 + K_BLOCK);
        for (to, row) in block.chunks_exact_mut(K_BLOCK).zip(rows) {
            to[..k1 - k0].copy_from_slice(&row[k0..k1]);
        }
    }
    Slab { data: &slab[..n], m: rows.len(), first: ks.start }
}
