//! Token embedding and stream expansion (spec 2.1).
//!
//! `x0[t,:] = embed[id[t],:]`, shape `[S,D]`; `h[t,j,:] = x0[t,:]` for every stream j, shape `[S,hc,D]`: a plain copy,
//! no scaling. Errors: an id at or past the vocabulary is the caller's to refuse (it knows the position).

use karat_model::Result;

use crate::decode::Decoder;
use crate::linalg::Real;
use crate::weights::not_finite;

/// `[S,D]` embeddings of the ids, each below the table's rows. A row that is not finite is an input error.
pub(crate) fn lookup<T: Real>(table: &Decoder<'_>, ids: &[u32]) -> Result<Vec<T>> {
    let d = table.cols();
    let mut row = vec![0f32; d];
    let mut out = Vec::with_capacity(ids.len() * d);
    for &id in ids {
        table.row(id as usize, &mut row);
        if !row.iter().all(|v| v.is_finite()) {
            return Err(not_finite(table.name(), id as usize));
        }
        out.extend(row.iter().map(|&v| T::of_f32(v)));
    }
    Ok(out)
}

/// `[S,D]` to `[S,hc,D]`.
pub(crate) fn expand<T: Real>(x: &[T], d: usize, hc: usize) -> Vec<T> {
    let mut h = Vec::with_capacity(x.len() * hc);
    for row in x.chunks_exact(d) {
        (0..hc).for_each(|_| h.extend_from_slice(row));
    }
    h
}
