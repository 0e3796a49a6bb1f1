//! Copies of large tensors by all threads: most of what a copy of gigabytes takes is the system's, page by page of fresh memory, and
//! that is done by whichever thread first writes to a page.

use rayon::prelude::*;

/// Elements under which a copy is one thread's.
const LARGE: usize = 1 << 18;
/// Elements of one task.
const TASK: usize = 1 << 16;

fn is_large(n: usize) -> bool {
    n >= LARGE && rayon::current_num_threads() > 1
}

/// A copy of the values.
pub fn copied<T: Copy + Send + Sync>(values: &[T]) -> Vec<T> {
    let mut out = Vec::new();
    out.reserve_exact(values.len());
    extend(&mut out, values);
    out
}

/// Appends the values.
pub fn extend<T: Copy + Send + Sync>(out: &mut Vec<T>, values: &[T]) {
    if is_large(values.len()) {
        out.par_extend(values.par_iter().with_min_len(TASK).copied());
    } else {
        out.extend_from_slice(values);
    }
}

/// Copies between two slices of one length.
pub fn copy<T: Copy + Send + Sync>(to: &mut [T], from: &[T]) {
    if is_large(from.len()) && to.len() == from.len() {
        to.par_chunks_mut(TASK).zip(from.par_chunks(TASK)).for_each(|(to, from)| to.copy_from_slice(from));
    } else {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths around the bound, with every number of threads: what std's own copies give.
    #[test]
    fn copies_are_what_they_copy() {
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for n in [0, 1, LARGE - 1, LARGE, 3 * LARGE + TASK + 7] {
                let values: Vec<u32> = (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
                pool.install(|| {
                    assert!(copied(&values) == values, "{n} values, {threads} threads");
                    let mut out = vec![7, 8, 9];
                    extend(&mut out, &values);
                    assert!(out[..3] == [7, 8, 9] && out[3..] == values, "{n} values behind three, {threads} threads");
                    let mut to = vec![0; n];
                    copy(&mut to, &values);
                    assert!(to == values, "{n} values in place, {threads} threads");
                });
            }
        }
    }
}
