//! Rows that are sketched on the processor that computed them.

use std::collections::BTreeMap;

use karat_model::{Error, Result};
use karat_seam::{Later, RowId, Site, TensorMut, There};

use super::columns::Room;
use super::{Lines, SketchWriter, is_sketched, mixed_up};

/// Sketches that were begun, by tap, sequence and pass, in order.
pub(super) type Waiting = BTreeMap<(Site, u32, u32), Vec<Box<dyn Later>>>;

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
        if count == 0 || width == 0 || !is_sketched(at, width) {
            return Ok(false);
        }
        // A new block hands over the one before it, and with it everything that is waited for.
        self.turn_to(at.block).map_err(karat_seam::Error::source)?;
        let Some(later) = there.sketch(count, at.tap.is_ragged())? else { return Ok(false) };
        self.wait(at, *first, later).map_err(karat_seam::Error::source)?;
        Ok(true)
    }

    /// Waits for lines when the block is written.
    pub(super) fn wait(&mut self, at: Site, first: RowId, later: Box<dyn Later>) -> Result<()> {
        self.sketches(at, first)?;
        self.waiting.entry((at, first.seq, first.pass)).or_default().push(later);
        Ok(())
    }

    /// Takes what was begun of one tap, before rows that come behind it.
    pub(super) fn arrived_of(&mut self, key: (Site, u32, u32)) -> Result<()> {
        let Some(begun) = self.waiting.remove(&key) else { return Ok(()) };
        let lines = self.lines.get_mut(&key).ok_or_else(|| mixed_up(key.0))?;
        arrived(key.0, lines, &mut self.room, begun)
    }
}

/// Takes what was begun of a tap, in order.
pub(super) fn arrived(at: Site, lines: &mut Lines, room: &mut Room, all: Vec<Box<dyn Later>>) -> Result<()> {
    for begun in all {
        let Lines::Sketches(to) = &mut *lines else { return Err(mixed_up(at)) };
        let lines = begun.lines().map_err(told)?;
        let (part, mut rows) = room.next(lines.len());
        rows.take(&lines);
        to.push(part);
    }
    Ok(())
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
