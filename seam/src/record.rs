//! A visitor that keeps what it sees. It copies; it never computes.

use std::collections::BTreeMap;

use crate::{Data, DataMut, Error, Result, RowId, Site, Tensor, TensorMut, Visitor, Want, extend};

/// All pieces of one tap for one sequence, joined along axis 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Identity of each row (one for a state tap).
    pub rows: Vec<RowId>,
    /// The values. Ragged pieces (`[s,T]` with growing T) are widened: `-inf` for scores, 0 for masks.
    pub tensor: Tensor,
}

/// Keeps the taps that a filter lets through, by sequence.
pub struct Recorder {
    filter: Box<dyn Fn(Site) -> bool + Send + Sync>,
    /// What was seen, in (site, sequence) order.
    pub taps: BTreeMap<(Site, u32), Recorded>,
}

impl Recorder {
    /// Keeps what `filter` accepts.
    pub fn new(filter: impl Fn(Site) -> bool + Send + Sync + 'static) -> Self {
        Self { filter: Box::new(filter), taps: BTreeMap::new() }
    }

    /// Keeps everything.
    pub fn all() -> Self {
        Self::new(|_| true)
    }

    /// What was recorded of a tap.
    pub fn get(&self, site: Site, seq: u32) -> Option<&Recorded> {
        self.taps.get(&(site, seq))
    }
}

impl Visitor for Recorder {
    fn want(&self, at: Site) -> Want {
        if (self.filter)(at) { Want::Read } else { Want::Skip }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
        let Some(first) = rows.first() else { return Ok(()) };
        if rows.iter().any(|r| r.seq != first.seq) {
            return Err(Error::Request(format!("{at}: a piece holds rows of two sequences")));
        }
        match self.taps.get_mut(&(at, first.seq)) {
            None => {
                self.taps.insert((at, first.seq), Recorded { rows: rows.to_vec(), tensor: tensor.to_tensor() });
                Ok(())
            }
            Some(_) if at.tap.is_state() => Err(Error::Request(format!("{at}: state was visited twice"))),
            Some(have) => append(at, have, rows, &tensor),
        }
    }
}

fn append(at: Site, have: &mut Recorded, rows: &[RowId], piece: &TensorMut<'_>) -> Result<()> {
    let same_rank = have.tensor.shape.len() == piece.shape.len();
    if at.tap.is_ragged() && same_rank && have.tensor.shape.len() == 2 {
        let width = have.tensor.shape[1].max(piece.shape[1]);
        widen(&mut have.tensor, width);
        if piece.shape[1] < width {
            let mut piece = piece.to_tensor();
            widen(&mut piece, width);
            return join(at, have, rows, &piece.as_mut());
        }
    }
    join(at, have, rows, piece)
}

fn join(at: Site, have: &mut Recorded, rows: &[RowId], piece: &TensorMut<'_>) -> Result<()> {
    if have.tensor.shape.get(1..) != piece.shape.get(1..) {
        let expected = have.tensor.shape.clone();
        return Err(Error::Shape { at: at.to_string(), expected, found: piece.shape.to_vec() });
    }
    match (&mut have.tensor.data, &piece.data) {
        (Data::F32(a), DataMut::F32(b)) => extend(a, b),
        (Data::F64(a), DataMut::F64(b)) => extend(a, b),
        (Data::I64(a), DataMut::I64(b)) => extend(a, b),
        (Data::U8(a), DataMut::U8(b)) => extend(a, b),
        (a, b) => return Err(Error::Dtype { at: at.to_string(), expected: a.dtype(), found: b.dtype() }),
    }
    have.tensor.shape[0] += piece.shape.first().copied().unwrap_or(1);
    have.rows.extend_from_slice(rows);
    Ok(())
}

/// Widens `[s,T]` to `[s,width]` with what "not visible" is for the element type.
fn widen(tensor: &mut Tensor, width: usize) {
    let (rows, old) = (tensor.shape[0], tensor.shape[1]);
    if old == width {
        return;
    }
    fn grow<T: Copy>(v: &[T], rows: usize, old: usize, width: usize, fill: T) -> Vec<T> {
        let mut out = vec![fill; rows * width];
        for r in 0..rows {
            out[r * width..r * width + old].copy_from_slice(&v[r * old..(r + 1) * old]);
        }
        out
    }
    tensor.data = match &tensor.data {
        Data::F32(v) => Data::F32(grow(v, rows, old, width, f32::NEG_INFINITY)),
        Data::F64(v) => Data::F64(grow(v, rows, old, width, f64::NEG_INFINITY)),
        Data::I64(v) => Data::I64(grow(v, rows, old, width, -1)),
        Data::U8(v) => Data::U8(grow(v, rows, old, width, 0)),
    };
    tensor.shape[1] = width;
}

impl DataMut<'_> {
    /// Name of the element type as error messages print it.
    pub fn dtype(&self) -> &'static str {
        match self {
            Self::F32(_) => "f32",
            Self::F64(_) => "f64",
            Self::I64(_) => "i64",
            Self::U8(_) => "u8",
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::U8(v) => v.len(),
        }
    }

    /// True when there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
