//! Brings the rows of two paths into one order.

use std::borrow::Cow;
use std::collections::BTreeMap;

use karat_seam::{Data, Recorded, RowId, Streams, Tap, Tensor, extend};

/// Index of the last pass of each (sequence, position).
fn places(rows: &[RowId]) -> BTreeMap<(u32, u32), usize> {
    let mut places: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for (i, row) in rows.iter().enumerate() {
        let at = places.entry((row.seq, row.pos)).or_insert(i);
        if rows[*at].pass <= row.pass {
            *at = i;
        }
    }
    places
}

/// Rows that both have, in the order of `golden`. Of a row that was computed several times the last pass counts.
pub(crate) fn common(golden: &[RowId], candidate: &[RowId]) -> Vec<RowId> {
    if golden == candidate {
        return golden.to_vec();
    }
    let have = places(candidate);
    golden.iter().copied().filter(|r| have.contains_key(&(r.seq, r.pos))).collect()
}

/// The tensor's rows in the order of `want`; `None` when one is missing.
pub(crate) fn gather<'a>(rows: &[RowId], tensor: &'a Tensor, want: &[RowId]) -> Option<Cow<'a, Tensor>> {
    if rows == want {
        return Some(Cow::Borrowed(tensor));
    }
    let have = places(rows);
    let index: Vec<usize> = want.iter().map(|r| have.get(&(r.seq, r.pos)).copied()).collect::<Option<_>>()?;
    let width = tensor.width();
    fn pick<T: Copy + Send + Sync>(values: &[T], index: &[usize], width: usize) -> Vec<T> {
        let mut out = Vec::with_capacity(index.len() * width);
        // Rows that lie one after the other are copied together.
        for run in index.chunk_by(|a, b| a + 1 == *b) {
            extend(&mut out, &values[run[0] * width..(run[0] + run.len()) * width]);
        }
        out
    }
    let data = match &tensor.data {
        Data::F32(v) => Data::F32(pick(v, &index, width)),
        Data::F64(v) => Data::F64(pick(v, &index, width)),
        Data::I64(v) => Data::I64(pick(v, &index, width)),
        Data::U8(v) => Data::U8(pick(v, &index, width)),
    };
    let mut shape = tensor.shape.clone();
    shape[0] = want.len();
    Some(Cow::Owned(Tensor::new(shape, data)))
}

/// Rows of a recorded tap, as f32 where they are f64, widened to `width` columns where the tap is ragged.
pub(crate) fn take<'a>(tap: Tap, rec: &'a Recorded, want: &[RowId], width: usize) -> Option<Cow<'a, Tensor>> {
    let tensor = gather(&rec.rows, &rec.tensor, want)?;
    if tap.is_ragged() && tensor.shape.len() == 2 && tensor.shape[1] < width {
        return Some(Cow::Owned(widen(&tensor, width)));
    }
    Some(tensor)
}

/// Widens `[s,T]` with what "not visible" is for the element type.
fn widen(tensor: &Tensor, width: usize) -> Tensor {
    fn grow<T: Copy>(v: &[T], rows: usize, old: usize, width: usize, fill: T) -> Vec<T> {
        let mut out = vec![fill; rows * width];
        for r in 0..rows {
            out[r * width..r * width + old].copy_from_slice(&v[r * old..(r + 1) * old]);
        }
        out
    }
    let (rows, old) = (tensor.shape[0], tensor.shape[1]);
    let data = match &tensor.data {
        Data::F32(v) => Data::F32(grow(v, rows, old, width, f32::NEG_INFINITY)),
        Data::F64(v) => Data::F64(grow(v, rows, old, width, f64::NEG_INFINITY)),
        Data::I64(v) => Data::I64(grow(v, rows, old, width, -1)),
        Data::U8(v) => Data::U8(grow(v, rows, old, width, 0)),
    };
    Tensor::new(vec![rows, width], data)
}

/// The values as f32 (a stored trace may hold f64).
pub(crate) fn narrow(tensor: Cow<'_, Tensor>) -> Cow<'_, Tensor> {
    match &tensor.data {
        Data::F64(v) => {
            let values = v.iter().map(|&v| v as f32).collect();
            Cow::Owned(Tensor::f32(tensor.shape.clone(), values))
        }
        _ => tensor,
    }
}

/// Streams with exactly the rows `want`, in that order and in f32; `None` when a row is missing.
pub(crate) fn streams(x: &Streams, want: &std::sync::Arc<[RowId]>) -> Option<Streams> {
    let data = narrow(gather(&x.rows, &x.data, want)?).into_owned();
    Some(Streams { rows: want.clone(), data })
}

/// Streams in f64, for the f64 mode.
pub(crate) fn wide(x: &Streams) -> Streams {
    let data = match &x.data.data {
        Data::F32(v) => Tensor::f64(x.data.shape.clone(), v.iter().map(|&v| f64::from(v)).collect()),
        _ => x.data.clone(),
    };
    Streams { rows: x.rows.clone(), data }
}
