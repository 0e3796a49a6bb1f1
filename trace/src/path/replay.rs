//! Picks the rows of a lane out of stored tensors and shows them to its visitor.

use std::ops::Range;

use karat_seam::{Block, Data, Error, Lane, Result, RowId, Site, Tap, Tensor, Visitor, Want};

use crate::Trace;

/// Visits the stored taps of a block that `of` admits for the lane's rows, in op order within each run of rows of one sequence and
/// pass, and gives the rows of `result`; `None` when a row of the lane has none.
pub(super) fn block(
    trace: &Trace,
    block: Block,
    (of, result): (fn(Tap) -> bool, Tap),
    lane: &mut Lane<'_>,
) -> Result<Option<Tensor>> {
    let rows = lane.x.rows.clone();
    let mut pieces = Vec::new();
    for run in runs(&rows) {
        let rows = &rows[run];
        let (seq, pass) = (rows[0].seq, rows[0].pass);
        let mut found = None;
        for tap in Tap::ALL.iter().filter(|tap| of(**tap)) {
            let site = Site { block, tap: *tap };
            if !trace.holds(site, seq, pass) {
                continue;
            }
            let is_result = *tap == result;
            if is_result || lane.see.want(site) != Want::Skip {
                let shown = show(trace, site, seq, pass, rows, lane.see)?;
                found = if is_result { shown } else { found };
            }
        }
        pieces.push(found);
    }
    let whole: Option<Vec<Tensor>> = pieces.into_iter().collect();
    let site = Site { block, tap: result };
    whole.filter(|pieces| !pieces.is_empty()).map(|pieces| join(site, pieces)).transpose()
}

/// Shows one tap of some rows of one sequence and pass to a visitor that wants it; what the visitor leaves comes back.
/// Per-entry and state taps are shown whole. `None` when one of the rows is not held.
pub(super) fn show(
    trace: &Trace,
    site: Site,
    seq: u32,
    pass: u32,
    rows: &[RowId],
    see: &mut dyn Visitor,
) -> Result<Option<Tensor>> {
    let mut tensor = trace.tensor(site, seq, pass).map_err(Error::source)?;
    let mut ids = trace.row_ids(site, seq, pass).map_err(Error::source)?;
    if !site.tap.is_per_entry() && !site.tap.is_state() {
        let place = |row: &RowId| ids.binary_search_by_key(&row.pos, |id| id.pos).ok();
        let Some(places) = rows.iter().map(place).collect::<Option<Vec<usize>>>() else { return Ok(None) };
        if places.len() != ids.len() {
            tensor = pick(&tensor, &places);
            ids = rows.to_vec();
        }
    }
    if see.want(site) != Want::Skip && !ids.is_empty() {
        see.visit(site, &ids, tensor.as_mut())?;
    }
    Ok(Some(tensor))
}

/// Runs of rows of one sequence and pass.
fn runs(rows: &[RowId]) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        match out.last_mut() {
            Some(run) if (rows[run.start].seq, rows[run.start].pass) == (row.seq, row.pass) => run.end = i + 1,
            _ => out.push(i..i + 1),
        }
    }
    out
}

/// Some rows of a tensor.
fn pick(tensor: &Tensor, places: &[usize]) -> Tensor {
    fn rows<T: Copy>(v: &[T], width: usize, places: &[usize]) -> Vec<T> {
        places.iter().flat_map(|p| &v[p * width..(p + 1) * width]).copied().collect()
    }
    let width = tensor.width();
    let data = match &tensor.data {
        Data::F32(v) => Data::F32(rows(v, width, places)),
        Data::F64(v) => Data::F64(rows(v, width, places)),
        Data::I64(v) => Data::I64(rows(v, width, places)),
        Data::U8(v) => Data::U8(rows(v, width, places)),
    };
    let mut shape = tensor.shape.clone();
    shape[0] = places.len();
    Tensor::new(shape, data)
}

/// Joins float tensors along axis 0. One F64 piece makes all F64: widening is exact.
///
/// Errors: different row shapes.
pub(super) fn join(at: Site, pieces: Vec<Tensor>) -> Result<Tensor> {
    let mut pieces = pieces;
    if pieces.len() == 1 {
        return Ok(pieces.remove(0));
    }
    let mut shape = pieces.first().map(|p| p.shape.clone()).unwrap_or_default();
    if let Some(other) = pieces.iter().find(|p| p.shape.get(1..) != shape.get(1..)) {
        return Err(Error::Shape { at: at.to_string(), expected: shape, found: other.shape.clone() });
    }
    shape[0] = pieces.iter().map(Tensor::rows).sum();
    let wide = pieces.iter().any(|p| matches!(p.data, Data::F64(_)));
    let (mut single, mut double) = (Vec::new(), Vec::new());
    for piece in pieces {
        match piece.data {
            Data::F32(v) if wide => double.extend(v.into_iter().map(f64::from)),
            Data::F32(v) => single.extend(v),
            Data::F64(v) => double.extend(v),
            other => return Err(Error::Dtype { at: at.to_string(), expected: "f32 or f64", found: other.dtype() }),
        }
    }
    Ok(Tensor::new(shape, if wide { Data::F64(double) } else { Data::F32(single) }))
}

/// `[S,D]` copied into `hc` equal streams, `[S,hc,D]` (spec 2.1).
pub(super) fn copy_to_streams(tensor: &Tensor, hc: usize) -> Tensor {
    let places: Vec<usize> = (0..tensor.rows()).flat_map(|row| std::iter::repeat_n(row, hc)).collect();
    Tensor::new(vec![tensor.rows(), hc, tensor.width()], pick(tensor, &places).data)
}
