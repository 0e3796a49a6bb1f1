//! A weight in the order in which the kernels read it.

use std::sync::OnceLock;

use rayon::prelude::*;

use super::lines::Lines;
use super::{Isa, K_BLOCK, LANES, Real, Stored};
use crate::backend::{Kept, Matrix, Source};

/// Values under which packing is not worth a thread.
const TASK: usize = 1 << 15;

/// A weight `[n,k]` as panels of LANES outputs: `panels[p][k][lane]`, missing outputs zero.
#[derive(Debug, Default)]
pub(crate) struct Packed<T> {
    n: usize,
    k: usize,
    data: Lines<T>,
    /// What a backend keeps of it.
    kept: OnceLock<Kept>,
}

impl<T: Real> Packed<T> {
    /// Packs `n` rows of `k` values; `row(i, out)` writes row i. Rows are asked for in any order.
    pub(crate) fn from_rows(n: usize, k: usize, row: impl Fn(usize, &mut [T]) + Sync) -> Self {
        let size = n.div_ceil(LANES) * k;
        let mut data = Lines::zeros(size);
        data.par_chunks_mut(k.max(1)).enumerate().with_min_len(TASK.div_ceil((LANES * k).max(1))).for_each_init(
            || vec![T::ZERO; LANES * k],
            |values, (p, panel)| {
                let lanes = LANES.min(n - p * LANES);
                for (lane, values) in values.chunks_exact_mut(k.max(1)).take(lanes).enumerate() {
                    row(p * LANES + lane, values);
                }
                transpose(values, lanes, panel);
            },
        );
        Self { n, k, data, kept: OnceLock::new() }
    }

    /// Packs outputs `first..first+n` of a stored weight.
    pub(crate) fn of_stored(isa: Isa, w: &dyn Stored<T>, first: usize, n: usize) -> Self {
        let k = w.inputs();
        let size = n.div_ceil(LANES) * k;
        let mut data = Lines::zeros(size);
        let panels = data.par_chunks_mut(k.max(1)).enumerate().with_min_len(TASK.div_ceil((LANES * k).max(1)));
        panels.for_each(|(p, panel)| {
            let rows = first + p * LANES..first + n.min((p + 1) * LANES);
            for (i, block) in panel.chunks_mut(K_BLOCK).enumerate() {
                let ks = i * K_BLOCK..i * K_BLOCK + block.len();
                w.panel(isa, rows.clone(), ks, block);
            }
        });
        Self { n, k, data, kept: OnceLock::new() }
    }

    /// Takes another shape; whoever asks writes all of `[panels][k][LANES]`.
    pub(super) fn reshape(&mut self, n: usize, k: usize) -> &mut [[T; LANES]] {
        (self.n, self.k, self.kept) = (n, k, OnceLock::new());
        self.data.reshape(n.div_ceil(LANES) * k);
        &mut self.data
    }

    /// Repacks in place from row-major values (`[n,k]`), keeping the allocation.
    pub(crate) fn refill(&mut self, n: usize, k: usize, values: &[T]) {
        self.kept = OnceLock::new();
        // Missing outputs are zero since the last time.
        if (self.n, self.k) != (n, k) {
            (self.n, self.k) = (n, k);
            self.data.clear(n.div_ceil(LANES) * k);
        }
        for (p, panel) in self.data.chunks_exact_mut(k.max(1)).enumerate() {
            transpose(&values[p * LANES * k..], LANES.min(n - p * LANES), panel);
        }
    }

    /// As a backend takes it (f32 mode).
    pub(crate) fn matrix(&self) -> Matrix<'_> {
        let source = Source::Panels(T::single(self.data.as_flattened()));
        Matrix { n: self.n, k: self.k, source, kept: &self.kept }
    }

    /// Outputs.
    pub(crate) fn n(&self) -> usize {
        self.n
    }

    /// Inputs.
    pub(super) fn k(&self) -> usize {
        self.k
    }

    /// Panel p: one row of LANES outputs an input.
    pub(super) fn panel(&self, p: usize) -> &[[T; LANES]] {
        &self.data[p * self.k..(p + 1) * self.k]
    }

    /// Panels.
    pub(super) fn panels(&self) -> usize {
        self.n.div_ceil(LANES)
    }

    /// Outputs of panel p.
    pub(super) fn width(&self, p: usize) -> usize {
        LANES.min(self.n - p * LANES)
    }
}

/// The first `lanes` rows of row-major values into the lanes of a panel.
fn transpose<T: Real>(values: &[T], lanes: usize, panel: &mut [[T; LANES]]) {
    let k = panel.len();
    if lanes == LANES {
        let mut rows = [values; LANES];
        for (lane, row) in rows.iter_mut().enumerate() {
            *row = &values[lane * k..(lane + 1) * k];
        }
        for (i, slot) in panel.iter_mut().enumerate() {
            for (value, row) in slot.iter_mut().zip(&rows) {
                *value = row[i];
            }
        }
    } else {
        for (lane, row) in values.chunks_exact(k.max(1)).take(lanes).enumerate() {
            for (slot, &v) in panel.iter_mut().zip(row) {
                slot[lane] = v;
            }
        }
    }
}
