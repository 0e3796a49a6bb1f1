//! Visitors of a search: one after another, and one that puts another path's tensors in the place of what is computed.

use std::collections::BTreeMap;

use karat_seam::{Data, DataMut, Recorded, Recorder, Result, RowId, Site, Tap, TensorMut, Visitor, Want};

/// Two visitors, one behind the other.
pub(super) struct Both<'a> {
    pub(super) first: &'a mut dyn Visitor,
    pub(super) then: &'a mut Recorder,
}

impl Visitor for Both<'_> {
    fn want(&self, at: Site) -> Want {
        match (self.first.want(at), self.then.want(at)) {
            (Want::Write, _) | (_, Want::Write) => Want::Write,
            (Want::Read, _) | (_, Want::Read) => Want::Read,
            (Want::Skip, Want::Skip) => Want::Skip,
        }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], mut tensor: TensorMut<'_>) -> Result<()> {
        if self.first.want(at) != Want::Skip {
            self.first.visit(at, rows, again(&mut tensor))?;
        }
        if self.then.want(at) == Want::Skip { Ok(()) } else { self.then.visit(at, rows, tensor) }
    }
}

/// The tensor once more.
fn again<'t>(tensor: &'t mut TensorMut<'_>) -> TensorMut<'t> {
    let data = match &mut tensor.data {
        DataMut::F32(v) => DataMut::F32(v),
        DataMut::F64(v) => DataMut::F64(v),
        DataMut::I64(v) => DataMut::I64(v),
        DataMut::U8(v) => DataMut::U8(v),
    };
    TensorMut { shape: tensor.shape, data }
}

/// Puts recorded tensors in the place of what a path computes: with the taps of the first k ops these are another path's,
/// and the rest of the block follows from them.
pub(super) struct Swap<'a> {
    pub(super) from: &'a Recorder,
    pub(super) taps: Vec<Tap>,
}

impl Visitor for Swap<'_> {
    fn want(&self, at: Site) -> Want {
        let is_there = || self.from.taps.range((at, 0)..=(at, u32::MAX)).next().is_some();
        if self.taps.contains(&at.tap) && is_there() { Want::Write } else { Want::Skip }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
        let Some(first) = rows.first() else { return Ok(()) };
        let Some(other) = self.from.get(at, first.seq) else { return Ok(()) };
        let width: usize = tensor.shape.iter().skip(1).product();
        match (tensor.data, &other.tensor.data) {
            (DataMut::F32(to), Data::F32(from)) => copy(to, from, rows, other, width, f32::NEG_INFINITY),
            (DataMut::I64(to), Data::I64(from)) => copy(to, from, rows, other, width, -1),
            (DataMut::U8(to), Data::U8(from)) => copy(to, from, rows, other, width, 0),
            // A path in f64 has no place in a search.
            _ => {}
        }
        Ok(())
    }
}

/// Rows by position, the last pass of a row that was computed again. Only ragged taps differ in width: what one of them
/// does not reach is not visible there. A row that the other path lacks stays as it is.
fn copy<T: Copy>(to: &mut [T], from: &[T], rows: &[RowId], other: &Recorded, width: usize, unseen: T) {
    let theirs = other.tensor.width();
    let mut places: BTreeMap<u32, usize> = BTreeMap::new();
    for (i, row) in other.rows.iter().enumerate() {
        let at = places.entry(row.pos).or_insert(i);
        if other.rows[*at].pass <= row.pass {
            *at = i;
        }
    }
    for (i, row) in rows.iter().enumerate() {
        let Some(at) = places.get(&row.pos) else { continue };
        let (to, from) = (&mut to[i * width..(i + 1) * width], &from[at * theirs..(at + 1) * theirs]);
        let both = width.min(theirs);
        to[..both].copy_from_slice(&from[..both]);
        to[both..].fill(unseen);
    }
}
