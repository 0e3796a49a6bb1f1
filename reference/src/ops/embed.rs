//! Token embedding and stream expansion (spec 2.1).
//!
//! `x0[t,:] = embed[id[t],:]`, shape `[S,D]`; `h[t,j,:] = x0[t,:]` for every stream j, shape `[S,hc,D]`: a plain copy,
//! no scaling. Errors: an id at or past the vocabulary is the caller's to refuse (it knows the position).

use crate::decode::Decoder;
use crate::linalg::Real;

/// `[S,D]` embeddings of the ids, each below the table's rows.
pub(crate) fn lookup<T: Real>(table: &Decoder<'_>, ids: &[u32]) -> Vec<T> {
    let d = table.cols();
    let mut row = vec![0f32; d];
    let mut out = Vec::with_capacity(ids.len() * d);
    for &id in ids {
        table.row(id as usize, &mut row);
        out.extend(row.iter().map(|&v| T::of(f64::from(v))));
    }
    out
}

/// `[S,D]` to `[S,hc,D]`.
pub(crate) fn expand<T: Real>(x: &[T], d: usize, hc: usize) -> Vec<T> {
    x.chunks_exact(d).flat_map(|row| std::iter::repeat_n(row, hc)).flatten().copied().collect()
}
