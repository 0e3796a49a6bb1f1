//! All pieces of one tensor, joined along axis 0.

use karat_model::{Error, Result};
use karat_seam::{Data, DataMut, RowId, Site, Tensor, TensorMut};

use super::spare::Spare;

/// A tensor that grows row by row. Ragged pieces (`[s,T]` with growing T) stay as they came until they are closed.
#[derive(Default)]
pub(crate) struct Pieces {
    positions: Vec<u32>,
    tensor: Option<Tensor>,
    /// Width of each row while the tensor is ragged (`tensor` then is flat).
    widths: Option<Vec<usize>>,
}

impl Pieces {
    /// A finished tensor.
    pub(crate) fn whole(tensor: Tensor) -> Self {
        Self { positions: Vec::new(), tensor: Some(tensor), widths: None }
    }

    /// A finished tensor of indices.
    pub(super) fn indices(values: Vec<i64>) -> Self {
        Self::whole(Tensor::i64([values.len()], values))
    }

    pub(super) fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// The joined tensor; call [`Pieces::close`] before.
    pub(super) fn tensor(&self) -> Option<&Tensor> {
        self.tensor.as_ref()
    }

    /// The tensor, with its memory.
    pub(super) fn into_tensor(self) -> Option<Tensor> {
        self.tensor
    }

    /// Adds a piece; `expected` rows will come in all, as far as is known.
    pub(super) fn push(
        &mut self,
        at: Site,
        rows: &[RowId],
        piece: &TensorMut<'_>,
        expected: usize,
        spare: &Spare,
    ) -> Result<()> {
        let fail = |what: &str| Error::input(what).at(at);
        let state = at.tap.is_state();
        if state && self.tensor.is_some() {
            return Err(fail("state was visited twice"));
        }
        let count = piece.shape.first().copied().unwrap_or(0);
        if !state && count != rows.len() {
            return Err(fail("a piece has another number of rows than positions").expected(rows.len()).found(count));
        }
        if at.tap.is_ragged() && piece.shape.len() == 2 {
            self.widths.get_or_insert_default().extend(std::iter::repeat_n(piece.shape[1], count));
        }
        if !state {
            self.positions.extend(rows.iter().map(|r| r.pos));
        }
        let Some(have) = &mut self.tensor else {
            let whole = state || at.tap.is_per_entry() || at.tap.is_ragged() || count >= expected;
            let elements = if whole { piece.data.len() } else { piece.data.len() / count.max(1) * expected };
            self.tensor = Some(with_room(piece, elements, spare));
            return Ok(());
        };
        let same_row = have.shape.get(1..) == piece.shape.get(1..);
        if !same_row && self.widths.is_none() {
            return Err(fail("pieces have different row shapes")
                .expected(format!("{:?}", &have.shape))
                .found(format!("{:?}", piece.shape)));
        }
        match (&mut have.data, &piece.data) {
            (Data::F32(a), DataMut::F32(b)) => append(a, b),
            (Data::F64(a), DataMut::F64(b)) => a.extend_from_slice(b),
            (Data::I64(a), DataMut::I64(b)) => a.extend_from_slice(b),
            (Data::U8(a), DataMut::U8(b)) => a.extend_from_slice(b),
            (a, _) => return Err(fail("pieces have different element types").expected(a.dtype())),
        }
        have.shape[0] += count;
        Ok(())
    }

    /// Widens ragged rows to the widest: -inf for scores, 0 for masks.
    pub(super) fn close(&mut self) {
        let (Some(widths), Some(tensor)) = (self.widths.take(), &mut self.tensor) else { return };
        let width = widths.iter().copied().max().unwrap_or(0);
        if widths.iter().any(|w| *w != width) {
            tensor.data = match &tensor.data {
                Data::F32(v) => Data::F32(widen(v, &widths, width, f32::NEG_INFINITY)),
                Data::F64(v) => Data::F64(widen(v, &widths, width, f64::NEG_INFINITY)),
                Data::I64(v) => Data::I64(widen(v, &widths, width, -1)),
                Data::U8(v) => Data::U8(widen(v, &widths, width, 0)),
            };
        }
        tensor.shape = vec![widths.len(), width];
    }
}

/// A copy with room for so many elements.
fn with_room(piece: &TensorMut<'_>, elements: usize, spare: &Spare) -> Tensor {
    fn copy<T: Copy>(v: &[T], elements: usize) -> Vec<T> {
        let mut out = Vec::with_capacity(elements.max(v.len()));
        out.extend_from_slice(v);
        out
    }
    let data = match &piece.data {
        DataMut::F32(v) => {
            let mut out = spare.take(elements.max(v.len()));
            append(&mut out, v);
            Data::F32(out)
        }
        DataMut::F64(v) => Data::F64(copy(v, elements)),
        DataMut::I64(v) => Data::I64(copy(v, elements)),
        DataMut::U8(v) => Data::U8(copy(v, elements)),
    };
    Tensor::new(piece.shape.to_vec(), data)
}

/// Appends values: many by the threads of the pool that the call comes from, if it does.
fn append(to: &mut Vec<f32>, values: &[f32]) {
    if rayon::current_thread_index().is_some() {
        karat_seam::extend(to, values);
    } else {
        to.extend_from_slice(values);
    }
}

fn widen<T: Copy>(flat: &[T], widths: &[usize], width: usize, fill: T) -> Vec<T> {
    let mut out = Vec::with_capacity(widths.len() * width);
    let mut rest = flat;
    for w in widths {
        let (row, tail) = rest.split_at(*w);
        out.extend_from_slice(row);
        out.extend(std::iter::repeat_n(fill, width - w));
        rest = tail;
    }
    out
}
