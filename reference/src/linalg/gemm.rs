//! y[m,n] = x[m,:] . w[n,:] over packed weights.

use rayon::prelude::*;

use super::simd::{Block, Panel, dispatch};
use super::{Isa, LANES, Real};

/// Rows of one task: their accumulators and one K-block of their values stay in the inner caches.
const ROW_BLOCK: usize = 96;
/// Multiplications under which a task is not worth a thread.
const TASK: usize = 1 << 16;

/// Threads and instruction set of a path. The result of an op never depends on either.
#[derive(Debug)]
pub(crate) struct Pool {
    threads: rayon::ThreadPool,
    isa: Isa,
}

impl Pool {
    /// A pool of `threads` threads (at least 1) on the fastest instruction set.
    pub(crate) fn new(threads: usize) -> karat_model::Result<Self> {
        Self::with_isa(threads, Isa::best())
    }

    pub(crate) fn with_isa(threads: usize, isa: Isa) -> karat_model::Result<Self> {
        let threads = threads.max(1);
        let built = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("golden-{i}")).build();
        match built {
            Ok(pool) => Ok(Self { threads: pool, isa }),
            Err(e) => Err(karat_model::Error::usage("failed to start threads").found(e).expected(threads)),
        }
    }

    /// Runs `f` where the parallel loops of this crate use this pool.
    pub(crate) fn install<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        self.threads.install(f)
    }

    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }
}

/// A weight `[n,k]` as panels of LANES outputs: `panels[p][k][lane]`, missing outputs zero.
#[derive(Debug, Clone, Default)]
pub(crate) struct Packed<T> {
    n: usize,
    k: usize,
    data: Vec<[T; LANES]>,
}

impl<T: Real> Packed<T> {
    /// Packs `n` rows of `k` values; `row(i, out)` writes row i. Rows are asked for in any order.
    pub(crate) fn from_rows(n: usize, k: usize, row: impl Fn(usize, &mut [T]) + Sync) -> Self {
        let mut data = vec![[T::ZERO; LANES]; n.div_ceil(LANES) * k];
        data.par_chunks_mut(k.max(1)).enumerate().with_min_len(TASK.div_ceil((LANES * k).max(1))).for_each_init(
            || vec![T::ZERO; k],
            |values, (p, panel)| {
                for lane in 0..LANES.min(n - p * LANES) {
                    row(p * LANES + lane, values);
                    for (slot, &v) in panel.iter_mut().zip(values.iter()) {
                        slot[lane] = v;
                    }
                }
            },
        );
        Self { n, k, data }
    }

    /// Repacks in place from row-major values (`[n,k]`), keeping the allocation.
    pub(crate) fn refill(&mut self, n: usize, k: usize, values: &[T]) {
        (self.n, self.k) = (n, k);
        self.data.clear();
        self.data.resize(n.div_ceil(LANES) * k, [T::ZERO; LANES]);
        for (i, row) in values.chunks_exact(k.max(1)).take(n).enumerate() {
            let panel = &mut self.data[i / LANES * k..(i / LANES + 1) * k];
            for (slot, &v) in panel.iter_mut().zip(row) {
                slot[i % LANES] = v;
            }
        }
    }

    /// Outputs.
    pub(crate) fn n(&self) -> usize {
        self.n
    }

    fn panel(&self, p: usize) -> &[[T; LANES]] {
        &self.data[p * self.k..(p + 1) * self.k]
    }

    fn panels(&self) -> usize {
        self.n.div_ceil(LANES)
    }
}

/// `x w^T` for rows that lie anywhere: `[rows, n]`.
pub(crate) fn matmul<T: Real>(isa: Isa, x: &[&[T]], w: &Packed<T>) -> Vec<T> {
    let mut out = vec![T::ZERO; x.len() * w.n];
    matmul_into(isa, x, w, &mut out, w.n, 0);
    out
}

/// As [`matmul`], into columns `first..first+n` of rows of `stride` values.
pub(crate) fn matmul_into<T: Real>(isa: Isa, x: &[&[T]], w: &Packed<T>, out: &mut [T], stride: usize, first: usize) {
    assert!(x.iter().all(|row| row.len() == w.k), "a row does not have the weight's {} inputs", w.k);
    let m = x.len();
    if m == 0 || w.n == 0 {
        return;
    }
    let work = m * w.panels() * LANES * w.k;
    let by_rows = m.div_ceil(ROW_BLOCK) >= 2 * rayon::current_num_threads();
    if work < 2 * TASK || rayon::current_num_threads() == 1 {
        for (rows, out) in x.chunks(ROW_BLOCK).zip(out.chunks_mut(ROW_BLOCK * stride)) {
            row_block(isa, rows, w, out, stride, first);
        }
    } else if by_rows {
        x.par_chunks(ROW_BLOCK)
            .zip(out.par_chunks_mut(ROW_BLOCK * stride))
            .for_each(|(rows, out)| row_block(isa, rows, w, out, stride, first));
    } else {
        by_panels(isa, x, w, out, stride, first);
    }
}

/// As [`matmul`], on the calling thread and into a buffer `[rows, n]`: for the inside of parallel loops.
pub(crate) fn matmul_here<T: Real>(isa: Isa, x: &[&[T]], w: &Packed<T>, out: &mut [T]) {
    debug_assert_eq!(out.len(), x.len() * w.n);
    for (rows, out) in x.chunks(ROW_BLOCK).zip(out.chunks_mut((ROW_BLOCK * w.n).max(1))) {
        row_block(isa, rows, w, out, w.n, 0);
    }
}

fn row_block<T: Real>(isa: Isa, rows: &[&[T]], w: &Packed<T>, out: &mut [T], stride: usize, first: usize) {
    let mut acc = [[0f64; LANES]; ROW_BLOCK];
    for p in 0..w.panels() {
        let acc = &mut acc[..rows.len()];
        acc.fill([0.0; LANES]);
        dispatch(isa, Block { a: rows, b: w.panel(p), k: w.k, acc });
        let column = first + p * LANES;
        let width = LANES.min(w.n - p * LANES);
        for (sums, row) in acc.iter().zip(out.chunks_mut(stride)) {
            round(&sums[..width], &mut row[column..column + width]);
        }
    }
}

/// Few rows: the panels are the tasks; each writes its own columns of a buffer, which is then copied in place.
fn by_panels<T: Real>(isa: Isa, x: &[&[T]], w: &Packed<T>, out: &mut [T], stride: usize, first: usize) {
    let m = x.len();
    let mut columns = vec![[T::ZERO; LANES]; w.panels() * m];
    let tasks = TASK.div_ceil((m * LANES * w.k).max(1));
    columns.par_chunks_mut(m).enumerate().with_min_len(tasks).for_each(|(p, column)| {
        let mut acc = [[0f64; LANES]; ROW_BLOCK];
        for (rows, column) in x.chunks(ROW_BLOCK).zip(column.chunks_mut(ROW_BLOCK)) {
            let acc = &mut acc[..rows.len()];
            acc.fill([0.0; LANES]);
            dispatch(isa, Block { a: rows, b: w.panel(p), k: w.k, acc });
            for (sums, values) in acc.iter().zip(column) {
                round(sums, values);
            }
        }
    });
    for (p, column) in columns.chunks_exact(m).enumerate() {
        let width = LANES.min(w.n - p * LANES);
        for (values, row) in column.iter().zip(out.chunks_mut(stride)) {
            let at = first + p * LANES;
            row[at..at + width].copy_from_slice(&values[..width]);
        }
    }
}

fn round<T: Real>(sums: &[f64], out: &mut [T]) {
    for (value, &sum) in out.iter_mut().zip(sums) {
        *value = T::of(sum);
    }
}

/// Runs one block job on a panel of any kind.
pub(super) fn accumulate<T: Real>(isa: Isa, a: &[&[T]], b: impl Panel<T>, k: usize, acc: &mut [[f64; LANES]]) {
    dispatch(isa, Block { a, b, k, acc });
}
