//! Rows that are sketched on the processor that computed them.

use std::collections::BTreeMap;

use karat_model::{Error, Result};
use karat_seam::{Later, RowId, Site, SketchLine, TensorMut, There};

use super::columns::{Columns, SKETCH_BYTES};
use super::row::{RowSketch, SUMS};
use super::{Lines, SketchWriter, mixed_up};

/// Sketches that were begun, by tap, sequence and pass, in order.
pub(super) type Waiting = BTreeMap<(Site, u32, u32), Vec<Box<dyn Later>>>;

impl RowSketch {
    /// What a device said of a row.
    pub fn from_line(line: &SketchLine) -> Self {
        let mut projection = [0.0; SUMS];
        projection.iter_mut().zip(&line[2..]).for_each(|(to, bits)| *to = f32::from_bits(*bits));
        Self {
            norm: f32::from_bits(line[0]),
            absmax: f32::from_bits(line[1]),
            projection,
            nonfinite: line[18],
            hash: (u64::from(line[20]) << 32 | u64::from(line[19])) as i64,
        }
    }
}

impl SketchWriter {
    /// Begins to sketch a piece of f32 where it lies. False: it is to be taken as any other.
    pub(super) fn wait_for(
        &mut self,
        at: Site,
        rows: &[RowId],
        tensor: &TensorMut<'_>,
        there: &dyn There,
    ) -> karat_seam::Result<bool> {
        let (Some(first), Some(&count)) = (rows.first(), tensor.shape.first()) else { return Ok(false) };
        let width = tensor.shape.iter().skip(1).product::<usize>();
        let short = !at.tap.is_ragged() && width <= SKETCH_BYTES / 4;
        if short || count == 0 || width == 0 {
            return Ok(false);
        }
        // A new block hands over the one before it, and with it everything that is waited for.
        let lines = self.lines(at, *first, |rows| Lines::Sketches(Columns::with_capacity(rows)));
        if !matches!(lines.map_err(karat_seam::Error::source)?, Lines::Sketches(_)) {
            return Err(karat_seam::Error::source(mixed_up(at)));
        }
        let Some(later) = there.sketch(count, at.tap.is_ragged())? else { return Ok(false) };
        self.waiting.entry((at, first.seq, first.pass)).or_default().push(later);
        Ok(true)
    }

    /// Takes what was begun of one tap, before rows that come behind it.
    pub(super) fn arrived_of(&mut self, key: (Site, u32, u32)) -> Result<()> {
        match self.waiting.remove(&key) {
            None => Ok(()),
            Some(begun) => self.take_lines(key, begun),
        }
    }

    /// Takes all that was begun.
    pub(super) fn arrived(&mut self) -> Result<()> {
        std::mem::take(&mut self.waiting).into_iter().try_for_each(|(key, begun)| self.take_lines(key, begun))
    }

    fn take_lines(&mut self, key: (Site, u32, u32), begun: Vec<Box<dyn Later>>) -> Result<()> {
        let Some(Lines::Sketches(to)) = self.lines.get_mut(&key) else { return Err(mixed_up(key.0)) };
        for later in begun {
            let lines = later.lines().map_err(told)?;
            lines.iter().for_each(|line| to.push(&RowSketch::from_line(line)));
        }
        Ok(())
    }
}

/// An error of the seam with the message that it carries.
pub fn told(error: karat_seam::Error) -> Error {
    match error {
        karat_seam::Error::Source(source) => match source.downcast::<Error>() {
            Ok(model) => *model,
            Err(other) => Error::input(other.to_string()),
        },
        other => Error::input(other.to_string()),
    }
}
