//! Cutting a matrix product into tasks.

use std::ops::Range;

use rayon::prelude::*;

/// Work under this many multiply-adds is not worth a second thread.
const INLINE: usize = 1 << 16;
/// Rows in one task: a multiple of every tile's height.
const ROWS: usize = 48;
/// Columns in one task where there are few rows: a multiple of every tile's width.
const COLS: usize = 32;

/// Runs `run(rows, cols, part)` over a cut of `out [m,n]`; `k` is the length of one output's sum. The cut never changes
/// an output's bits, because every output is one sum in a fixed order. `cols` starts at a multiple of 32.
pub(super) fn split(
    m: usize,
    n: usize,
    k: usize,
    out: &mut [f32],
    run: &(dyn Fn(Range<usize>, Range<usize>, &mut [f32]) + Sync),
) {
    if m == 0 || n == 0 {
        return;
    }
    if m * n * k <= INLINE || rayon::current_num_threads() == 1 {
        run(0..m, 0..n, out);
    } else if m >= 2 * ROWS {
        out.par_chunks_mut(ROWS * n).enumerate().for_each(|(i, out)| {
            let start = i * ROWS;
            run(start..(start + ROWS).min(m), 0..n, out);
        });
    } else {
        let parts: Vec<(Range<usize>, Vec<f32>)> = (0..n.div_ceil(COLS))
            .into_par_iter()
            .map(|j| {
                let cols = j * COLS..((j + 1) * COLS).min(n);
                let mut part = vec![0.0; m * cols.len()];
                run(0..m, cols.clone(), &mut part);
                (cols, part)
            })
            .collect();
        for (cols, part) in parts {
            for (row, values) in part.chunks_exact(cols.len()).enumerate() {
                out[row * n + cols.start..row * n + cols.end].copy_from_slice(values);
            }
        }
    }
}
