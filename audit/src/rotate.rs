//! Golden's index queries and keys in the candidate's frame.
//!
//! A low-precision indexer rotates both by the Hadamard matrix before it quantises them (spec 2.8). The rotation is
//! orthogonal, so golden leaves it out; its vectors are rotated here, in f64, before they are compared with rotated ones.

use std::borrow::Cow;

use karat_seam::{Data, Tap, Tensor};
use rayon::prelude::*;

/// True for the taps that a rotated indexer stores rotated.
pub(crate) fn is_rotated(tap: Tap) -> bool {
    matches!(tap, Tap::AttnIndexQ | Tap::AttnIndexK)
}

/// Rotates the rows for which `rotate` says so; the last axis is a vector, its length a power of two (a tensor of
/// another length stays as it is: no rotation of it is defined).
pub(crate) fn rows<'a>(tensor: Cow<'a, Tensor>, rotate: &[bool]) -> Cow<'a, Tensor> {
    let dim = tensor.shape.last().copied().unwrap_or(0);
    if !rotate.contains(&true) || !dim.is_power_of_two() {
        return tensor;
    }
    let width = tensor.width();
    let mut tensor = tensor.into_owned();
    match &mut tensor.data {
        Data::F32(v) => each(v, (width, dim), rotate, rotated),
        Data::F64(v) => each(v, (width, dim), rotate, hadamard),
        Data::I64(_) | Data::U8(_) => {}
    }
    Cow::Owned(tensor)
}

/// Every vector of the rows that are chosen.
fn each<T: Send>(values: &mut [T], (width, dim): (usize, usize), chosen: &[bool], f: impl Fn(&mut [T]) + Sync) {
    let rows = values.par_chunks_exact_mut(width.max(1)).zip(chosen);
    rows.filter(|(_, chosen)| **chosen).for_each(|(row, _)| row.chunks_exact_mut(dim).for_each(&f));
}

/// One vector, rotated in place; its length is a power of two.
pub(crate) fn rotated(x: &mut [f32]) {
    let mut wide: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
    hadamard(&mut wide);
    x.iter_mut().zip(wide).for_each(|(to, from)| *to = from as f32);
}

/// y[i] = n^-0.5 sum_j (-1)^popcount(i & j) x[j], n a power of two, by recursion on halves.
fn hadamard(x: &mut [f64]) {
    fn halves(x: &mut [f64]) {
        if x.len() < 2 {
            return;
        }
        let (a, b) = x.split_at_mut(x.len() / 2);
        halves(a);
        halves(b);
        for (a, b) in a.iter_mut().zip(b) {
            (*a, *b) = (*a + *b, *a - *b);
        }
    }
    let scale = (x.len() as f64).sqrt().recip();
    halves(x);
    x.iter_mut().for_each(|v| *v *= scale);
}
