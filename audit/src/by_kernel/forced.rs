//! A visitor that keeps what a path made, and has it go on with what another made.

use karat_seam::{Data, DataMut, Recorder, Result, RowId, Site, TensorMut, Visitor, Want};

/// Keeps in `made`, goes on with `given`.
pub(super) struct Forced<'a> {
    given: &'a Recorder,
    /// What the recorders call the layer: MTP blocks follow the others.
    l: u16,
    pub(super) made: Recorder,
}

impl<'a> Forced<'a> {
    pub(super) fn new(given: &'a Recorder, l: u16, made: Recorder) -> Self {
        Self { given, l, made }
    }
}

impl Visitor for Forced<'_> {
    fn want(&self, at: Site) -> Want {
        if at.tap.is_state() { Want::Skip } else { Want::Write }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], mut tensor: TensorMut<'_>) -> Result<()> {
        let at = Site::layer(self.l, at.tap);
        let mut copy = tensor.to_tensor();
        self.made.visit(at, rows, copy.as_mut())?;
        let Some(given) = rows.first().and_then(|row| self.given.get(at, row.seq)) else { return Ok(()) };
        let to = tensor.shape.iter().skip(1).product::<usize>();
        let from = given.tensor.width();
        // A ragged tap was widened when its pieces were joined.
        if from < to || (from != to && !at.tap.is_ragged()) {
            return Ok(());
        }
        let mut next = given.rows.iter().position(|row| Some(row) == rows.first()).unwrap_or(0);
        for (i, row) in rows.iter().enumerate() {
            if given.rows.get(next) != Some(row) {
                let Some(place) = given.rows.iter().position(|r| r == row) else { continue };
                next = place;
            }
            let (source, target) = (next * from..next * from + to, i * to..(i + 1) * to);
            match (&given.tensor.data, &mut tensor.data) {
                (Data::F32(s), DataMut::F32(t)) => t[target].copy_from_slice(&s[source]),
                (Data::I64(s), DataMut::I64(t)) => t[target].copy_from_slice(&s[source]),
                (Data::U8(s), DataMut::U8(t)) => t[target].copy_from_slice(&s[source]),
                _ => {}
            }
            next += 1;
        }
        Ok(())
    }
}
