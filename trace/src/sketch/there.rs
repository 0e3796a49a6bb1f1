//! Rows that are sketched on the processor that computed them, and rows that are sketched here behind the run.

use std::collections::BTreeMap;

use karat_model::{Error, Result};
use karat_seam::{DataMut, Later, RowId, Site, TensorMut, There};

use super::columns::{Room, SKETCH_BYTES, fill};
use super::{Lines, SketchWriter, mixed_up, shown};

/// Sketches that were begun, by tap, sequence and pass, in order.
pub(super) type Waiting = BTreeMap<(Site, u32, u32), Vec<Begun>>;

/// Rows whose lines come later.
pub(super) enum Begun {
    /// They are computed where the rows lie.
    There(Box<dyn Later>),
    /// Values of so many rows of one width, sketched here when the block is written.
    Here(Vec<f32>, (usize, usize)),
}

/// Most bytes of a block's rows that are put off: the copy is held until the block is written.
const HELD: usize = 64 << 20;

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
        self.sketches(at, *first).map_err(karat_seam::Error::source)?;
        let Some(later) = there.sketch(count, at.tap.is_ragged())? else { return Ok(false) };
        self.waiting.entry((at, first.seq, first.pass)).or_default().push(Begun::There(later));
        Ok(true)
    }

    /// Keeps rows to be sketched when the block is written: where others of the block are computed elsewhere, this processor has time
    /// then and the calling thread has none. False: they are to be taken now.
    pub(super) fn put_off(&mut self, at: Site, first: RowId, tensor: &TensorMut<'_>) -> Result<bool> {
        let DataMut::F32(values) = &tensor.data else { return Ok(false) };
        let (count, width) =
            (tensor.shape.first().copied().unwrap_or(1), tensor.shape.iter().skip(1).product::<usize>());
        let short = !at.tap.is_ragged() && width <= SKETCH_BYTES / 4;
        let (bytes, of_block) = (size_of_val(&**values), self.block == Some(at.block) && !self.waiting.is_empty());
        if short || values.is_empty() || !of_block || self.held + bytes > HELD {
            return Ok(false);
        }
        self.sketches(at, first)?;
        self.held += bytes;
        self.waiting.entry((at, first.seq, first.pass)).or_default().push(Begun::Here(values.to_vec(), (count, width)));
        Ok(true)
    }

    /// Takes what was begun of one tap, before rows that come behind it.
    pub(super) fn arrived_of(&mut self, key: (Site, u32, u32)) -> Result<()> {
        let Some(begun) = self.waiting.remove(&key) else { return Ok(()) };
        let lines = self.lines.get_mut(&key).ok_or_else(|| mixed_up(key.0))?;
        arrived(key.0, lines, &mut self.room, begun)
    }
}

/// Takes what was begun of a tap, in order.
pub(super) fn arrived(at: Site, lines: &mut Lines, room: &mut Room, all: Vec<Begun>) -> Result<()> {
    for begun in all {
        let Lines::Sketches(to) = &mut *lines else { return Err(mixed_up(at)) };
        match begun {
            Begun::There(later) => {
                let lines = later.lines().map_err(told)?;
                let (part, mut rows) = room.next(lines.len());
                rows.take(&lines);
                to.push(part);
            }
            Begun::Here(values, (count, width)) => {
                let (part, rows) = room.next(count);
                fill(rows, &values, width, |row| shown(at, row, |v| *v == f32::NEG_INFINITY));
                to.push(part);
            }
        }
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
