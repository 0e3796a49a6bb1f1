//! y[m,n] = x[m,:] . w[n,:] over packed weights.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use std::ops::Range;

use rayon::prelude::*;

use super::simd::{Job, dispatch};
use super::simd_chain::{Panels, RowsOf, short};
use super::simd_vector::{Machine, Vector};
use super::{Isa, K_BLOCK, LANES, Packed, Real};

/// Most rows of one task: one K-block of their values stays in the inner caches.
const ROW_BLOCK: usize = 96;
/// Inputs that are copied together: the values of a row block stay in the second cache while all panels pass.
const SLAB: usize = 4 * K_BLOCK;
/// Panels under which the rows of a slab are not worth a copy.
const COPIED_FROM: usize = 4;
/// Panels that a tile of few rows takes at once.
const WIDE: usize = 6;
/// Multiplications under which a task is not worth a thread.
const TASK: usize = 1 << 17;

/// `x w^T` for rows that lie anywhere: `[rows, n]`.
pub(crate) fn matmul<T: Real>(isa: Isa, x: &[&[T]], w: &Packed<T>) -> Vec<T> {
    let mut out = vec![T::ZERO; x.len() * w.n()];
    matmul_into(isa, x, w, &mut out, w.n(), 0);
    out
}

/// As [`matmul`], into columns `first..first+n` of rows of `stride` values.
pub(crate) fn matmul_into<T: Real>(isa: Isa, x: &[&[T]], w: &Packed<T>, out: &mut [T], stride: usize, first: usize) {
    assert!(x.iter().all(|row| row.len() == w.k()), "a row does not have the weight's {} inputs", w.k());
    let (m, threads) = (x.len(), rayon::current_num_threads());
    if m == 0 || w.n() == 0 {
        return;
    }
    let work = m * w.panels() * LANES * w.k();
    let task = |buffers: &mut Buffers<T>, (rows, out): (&[&[T]], &mut [T])| {
        dispatch(isa, Product { rows, w, panels: 0..w.panels(), out, stride, first, buffers });
    };
    if threads == 1 || work < 2 * TASK {
        let mut buffers = Buffers::default();
        for rows in x.chunks(ROW_BLOCK).zip(out.chunks_mut(ROW_BLOCK * stride)) {
            task(&mut buffers, rows);
        }
    } else if m >= 24 * threads {
        let block = m.div_ceil(2 * threads).min(ROW_BLOCK);
        let blocks = x.par_chunks(block).zip(out.par_chunks_mut(block * stride));
        blocks.for_each_init(Buffers::default, task);
    } else {
        by_panels(isa, x, w, out, stride, first, (work / TASK).min(4 * threads));
    }
}

/// As [`matmul`], on the calling thread and into a buffer `[rows, n]`: for the inside of parallel loops.
pub(crate) fn matmul_here<T: Real>(isa: Isa, x: &[&[T]], w: &Packed<T>, out: &mut [T], buffers: &mut Buffers<T>) {
    columns_here(isa, x, w, 0..w.panels(), out, buffers);
}

/// As [`matmul_here`], the outputs of some panels only: `[rows, outputs of the panels]`.
pub(crate) fn columns_here<T: Real>(
    isa: Isa,
    x: &[&[T]],
    w: &Packed<T>,
    panels: Range<usize>,
    out: &mut [T],
    buffers: &mut Buffers<T>,
) {
    let stride = (panels.end * LANES).min(w.n()) - panels.start * LANES;
    debug_assert_eq!(out.len(), x.len() * stride);
    for (rows, out) in x.chunks(ROW_BLOCK).zip(out.chunks_mut((ROW_BLOCK * stride).max(1))) {
        dispatch(isa, Product { rows, w, panels: panels.clone(), out, stride, first: 0, buffers });
    }
}

/// Few rows: groups of panels are the tasks; each fills a buffer of its own, which is then copied in place.
fn by_panels<T: Real>(isa: Isa, x: &[&[T]], w: &Packed<T>, out: &mut [T], stride: usize, first: usize, tasks: usize) {
    let group = w.panels().div_ceil(tasks).next_multiple_of(WIDE);
    let starts: Vec<usize> = (0..w.panels()).step_by(group).collect();
    let parts: Vec<(usize, Vec<T>)> = starts
        .into_par_iter()
        .map(|start| {
            let panels = start..w.panels().min(start + group);
            let columns = (panels.end * LANES).min(w.n()) - start * LANES;
            let mut part = vec![T::ZERO; x.len() * columns];
            columns_here(isa, x, w, panels, &mut part, &mut Buffers::default());
            (start, part)
        })
        .collect();
    for (start, part) in parts {
        let columns = part.len() / x.len();
        for (values, row) in part.chunks_exact(columns).zip(out.chunks_mut(stride)) {
            row[first + start * LANES..][..columns].copy_from_slice(values);
        }
    }
}

/// Buffers of a task, reused between its products.
#[derive(Debug, Default)]
pub(crate) struct Buffers<T> {
    /// A slab of the rows: `[blocks][rows][K_BLOCK]`.
    slab: Vec<T>,
    /// `[panels][rows]`.
    sums: Vec<[f64; LANES]>,
}

/// Rows times panels. Row r's outputs go to `out[r * stride + first..]`, those of the first panel first.
struct Product<'a, T> {
    rows: &'a [&'a [T]],
    w: &'a Packed<T>,
    panels: Range<usize>,
    out: &'a mut [T],
    stride: usize,
    first: usize,
    buffers: &'a mut Buffers<T>,
}

impl<T: Real> Job for Product<'_, T> {
    #[inline(always)]
    fn run<M: Machine, const R: usize, const H: usize>(self) {
        if self.w.k() <= 2 * K_BLOCK {
            let Self { rows, w, panels, out, stride, first, .. } = self;
            let mut place = Place { out, stride, first, start: panels.start, w };
            sweep::<T, M, R, H>(rows, w, panels, 0..w.k(), &mut place);
        } else {
            self.long::<M, R, H>();
        }
    }
}

impl<T: Real> Product<'_, T> {
    /// More than two blocks: block sums are added in f64.
    #[inline(always)]
    fn long<M: Machine, const R: usize, const H: usize>(self) {
        let Self { rows, w, panels, out, stride, first, buffers } = self;
        let m = rows.len();
        buffers.sums.clear();
        buffers.sums.resize(panels.len() * m, [0.0; LANES]);
        for k0 in (0..w.k()).step_by(SLAB) {
            let k1 = w.k().min(k0 + SLAB);
            let blocks = |k0: usize| (k0..k1).step_by(K_BLOCK).map(move |k| k..k1.min(k + K_BLOCK));
            buffers.slab.clear();
            if panels.len() >= COPIED_FROM {
                for block in blocks(k0) {
                    rows.iter().for_each(|row| buffers.slab.extend_from_slice(&row[block.clone()]));
                }
            }
            let mut rest = buffers.slab.as_slice();
            let mut views: Vec<&[T]> = Vec::with_capacity(m * SLAB / K_BLOCK);
            for block in blocks(k0) {
                for row in rows {
                    if panels.len() >= COPIED_FROM {
                        let (view, after) = rest.split_at(block.len());
                        views.push(view);
                        rest = after;
                    } else {
                        views.push(&row[block.clone()]);
                    }
                }
            }
            for start in panels.clone().step_by(WIDE) {
                let group = start..panels.end.min(start + WIDE);
                let sums = &mut buffers.sums[(start - panels.start) * m..];
                for (views, block) in views.chunks_exact(m).zip(blocks(k0)) {
                    sweep::<T, M, R, H>(views, w, group.clone(), block, &mut Add { sums: &mut *sums, m, start });
                }
            }
        }
        for (i, p) in panels.enumerate() {
            let (width, column) = (w.width(p), first + i * LANES);
            for (r, sums) in buffers.sums[i * m..(i + 1) * m].iter().enumerate() {
                let row = &mut out[r * stride + column..][..width];
                for j in 0..width {
                    row[j] = T::of(sums[j]);
                }
            }
        }
    }
}

/// Takes the sums of one row and panel.
trait Sink<T> {
    fn put<V: Vector<T>>(&mut self, r: usize, p: usize, sums: V);
}

/// Writes them to their place.
struct Place<'a, T> {
    out: &'a mut [T],
    stride: usize,
    first: usize,
    start: usize,
    w: &'a Packed<T>,
}

impl<T: Real> Sink<T> for Place<'_, T> {
    #[inline(always)]
    fn put<V: Vector<T>>(&mut self, r: usize, p: usize, sums: V) {
        let row = &mut self.out[r * self.stride + self.first + (p - self.start) * LANES..];
        let width = self.w.width(p);
        if width >= V::LEN {
            sums.store(row);
        } else {
            let mut lanes = [T::ZERO; LANES];
            sums.store(&mut lanes);
            row[..width].copy_from_slice(&lanes[..width]);
        }
    }
}

/// Adds them to f64 accumulators.
struct Add<'a> {
    sums: &'a mut [[f64; LANES]],
    m: usize,
    start: usize,
}

impl<T: Real> Sink<T> for Add<'_> {
    #[inline(always)]
    fn put<V: Vector<T>>(&mut self, r: usize, p: usize, sums: V) {
        let total = &mut self.sums[(p - self.start) * self.m + r];
        let mut lanes = [T::ZERO; LANES];
        sums.store(&mut lanes);
        for j in 0..V::LEN {
            total[j] += lanes[j].wide();
        }
    }
}

/// Rows (restricted to inputs `ks`) times panels, tile by tile.
#[inline(always)]
fn sweep<T: Real, M: Machine, const R: usize, const H: usize>(
    rows: &[&[T]],
    w: &Packed<T>,
    panels: Range<usize>,
    ks: Range<usize>,
    sink: &mut impl Sink<T>,
) {
    if !M::IS_FAST || T::IS_WIDE {
        // The f64 mode and the plain loops of this machine need no speed: every shape of tile costs seconds of compiling.
        for p in panels {
            for r in 0..rows.len() {
                tile::<T, M::Panel<T>, 1, 1>(rows, r, w, p, &ks, sink);
            }
        }
        return;
    }
    let half = panels.end == w.panels() && w.width(panels.end - 1) <= LANES / 2;
    let whole = panels.start..panels.end - usize::from(half);
    let mut r = 0;
    let main = rows.len() / R * R;
    for p in whole.clone() {
        for r in (0..main).step_by(R) {
            tile::<T, M::Panel<T>, R, 1>(rows, r, w, p, &ks, sink);
        }
    }
    r += main;
    while r + 4 <= rows.len() {
        for p in whole.clone() {
            tile::<T, M::Panel<T>, 4, 1>(rows, r, w, p, &ks, sink);
        }
        r += 4;
    }
    while r + 2 <= rows.len() {
        let mut p = whole.start;
        while p + 3 <= whole.end {
            tile::<T, M::Panel<T>, 2, 3>(rows, r, w, p, &ks, sink);
            p += 3;
        }
        for p in p..whole.end {
            tile::<T, M::Panel<T>, 2, 1>(rows, r, w, p, &ks, sink);
        }
        r += 2;
    }
    if r < rows.len() {
        let mut p = whole.start;
        while p + WIDE <= whole.end {
            tile::<T, M::Panel<T>, 1, WIDE>(rows, r, w, p, &ks, sink);
            p += WIDE;
        }
        for p in p..whole.end {
            tile::<T, M::Panel<T>, 1, 1>(rows, r, w, p, &ks, sink);
        }
    }
    if half {
        let mut r = 0;
        while r + H <= rows.len() {
            tile::<T, M::Half<T>, H, 1>(rows, r, w, whole.end, &ks, sink);
            r += H;
        }
        while r + 4 <= rows.len() {
            tile::<T, M::Half<T>, 4, 1>(rows, r, w, whole.end, &ks, sink);
            r += 4;
        }
        while r < rows.len() {
            tile::<T, M::Half<T>, 1, 1>(rows, r, w, whole.end, &ks, sink);
            r += 1;
        }
    }
}

#[inline(always)]
fn tile<T: Real, V: Vector<T>, const R: usize, const P: usize>(
    rows: &[&[T]],
    r0: usize,
    w: &Packed<T>,
    p0: usize,
    ks: &Range<usize>,
    sink: &mut impl Sink<T>,
) {
    let a = RowsOf::<T, R>::new(rows, r0, ks.len());
    let b = Panels::<T, P>::new(ks.len(), |p| &w.panel(p0 + p)[ks.clone()]);
    let sums = short::<T, V, R, P>(a, b, ks.len());
    for r in 0..R {
        for p in 0..P {
            sink.put(r0 + r, p0 + p, sums[r][p]);
        }
    }
}
