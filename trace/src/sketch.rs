//! Sketches: 88 bytes a row in the place of its values, for runs that are too large to be recorded whole.
//!
//! Of each row of a tap: the norm and the largest size of its finite values, how many are not finite, 16 signed sums (value i goes
//! with a sign of its own into sum i mod 16) and a 64-bit hash of its bits. Equal hashes mean equal rows for all practical
//! purposes. The sums are linear, so the sums of two runs' rows differ by the sums of the rows' difference, whose expected squared
//! norm is the difference's own (Charikar, Chen and Farach-Colton's count sketch): how far two runs are apart is told to within
//! about a third for one row, and better over many. A folder of safetensors files, one a block, which `karat diff` compares as any
//! other: `SEQUENCE/TAP.norm`, `.absmax` F32 `[rows]`, `.projection.v2` F32 `[rows,16]`, `.nonfinite`, `.hash.v2` I64 `[rows]`.
//! Integers and masks have the hash alone; rows that are no longer than their sketch are kept as they are, `.values` F32
//! `[rows, width]`. What signs and keys decide has their version in its name: no two versions' are compared.

mod columns;
mod row;
mod simd_row;
#[cfg(test)]
mod tests;
mod there;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use karat_model::{Error, Result};
use karat_seam::{Block, DataMut, Later, Requests, RowId, Site, TensorMut, There, Visitor, Want};

use crate::TapGlob;
use crate::key::Key;
use crate::writer::{Behind, Entry, Folder, file_name, write_entries};
use columns::{Parts, Room, SKETCH_BYTES};

pub use row::{RowSketch, SUMS};
pub use there::told;

/// What is kept of one tap of one sequence and pass.
enum Lines {
    /// Rows of numbers.
    Sketches(Parts),
    /// Rows of numbers that are no longer than their sketch, and how many each has.
    Values(usize, Vec<f32>),
    /// Rows of integers or masks.
    Hashes(Vec<i64>),
}

impl Lines {
    /// As they are written, by the end of their name; sketches lie in the room.
    fn entries<'a>(&'a self, room: &'a Room) -> Vec<(&'static str, Entry<'a>)> {
        match self {
            Self::Sketches(parts) => room.columns(parts).into(),
            Self::Values(width, values) => {
                vec![("values", Entry::f32([values.len() / width, *width], vec![values]))]
            }
            Self::Hashes(hashes) => vec![("hash.v2", Entry::i64([hashes.len()], vec![hashes]))],
        }
    }
}

/// A visitor that keeps a sketch of what a glob admits. Blocks come one after the other: a block's file is written while the next
/// block is computed. Rows are sketched by the threads of the pool that the visit comes from.
pub struct SketchWriter {
    /// Before the folder, which must not be removed under it.
    behind: Behind,
    folder: Folder,
    glob: TapGlob,
    sequences: Arc<[(String, usize)]>,
    block: Option<Block>,
    written: Vec<Block>,
    lines: BTreeMap<(Site, u32, u32), Lines>,
    /// Where the block's sketches lie.
    room: Room,
    /// Lines that are computed where the rows lie.
    waiting: there::Waiting,
}

impl SketchWriter {
    /// For a run of these requests; `target` is a folder that must not exist yet, and has its name from [`Self::finish`] on.
    ///
    /// # Errors
    /// Usage: the target exists. Input: its parent can't be written.
    pub fn create(target: &Path, requests: &Requests, glob: TapGlob) -> Result<Self> {
        Ok(Self {
            behind: Behind::default(),
            folder: Folder::create(target, "the folder")?,
            glob,
            sequences: requests.seqs.iter().map(|s| (s.id.clone(), s.ids.len())).collect(),
            block: None,
            written: Vec::new(),
            lines: BTreeMap::new(),
            room: Room::default(),
            waiting: there::Waiting::default(),
        })
    }

    /// Writes what is left, and gives the folder its name.
    ///
    /// # Errors
    /// Input: nothing was seen, or the folder can't be written.
    pub fn finish(mut self) -> Result<PathBuf> {
        self.flush()?;
        self.behind.finish()?;
        if self.written.is_empty() {
            return Err(self.folder.nothing());
        }
        self.folder.finish()
    }

    /// Hands the block over to be written, with all that it waits for.
    fn flush(&mut self) -> Result<()> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let Some(block) = self.block.take() else { return Ok(()) };
        if self.written.contains(&block) {
            return Err(Error::input("a block came back after its file was written").found(file_name(block)));
        }
        let (mut lines, mut room) = (std::mem::take(&mut self.lines), self.room.replace());
        let sequences = self.sequences.clone();
        self.written.push(block);
        let path = self.folder.path().join(file_name(block));
        // What was begun is waited for, and keys are made, behind the run as well.
        self.behind.make(path, move |path| {
            for (at, lines) in &mut lines {
                there::arrived(at.0, lines, &mut room, waiting.remove(at).unwrap_or_default())?;
            }
            let mut entries = Vec::new();
            for (at, lines) in &lines {
                let sequence = sequences.get(at.1 as usize).map_or("", |(id, _)| id);
                let key = Key::tap(sequence, at.0, at.2).to_string();
                entries.extend(lines.entries(&room).into_iter().map(|(name, it)| (format!("{key}.{name}"), it)));
            }
            Ok((write_entries(path, entries)?, Vec::new()))
        })
    }

    /// Hands what belongs to another block over.
    fn turn_to(&mut self, block: Block) -> Result<()> {
        if self.block != Some(block) {
            self.flush()?;
            self.block = Some(block);
        }
        Ok(())
    }

    /// Lines of a tap so far; those of another block are handed over before.
    fn lines(&mut self, at: Site, first: RowId, new: impl FnOnce(usize) -> Lines) -> Result<&mut Lines> {
        self.turn_to(at.block)?;
        let rows = self.sequences.get(first.seq as usize).map_or(0, |(_, rows)| *rows);
        Ok(self.lines.entry((at, first.seq, first.pass)).or_insert_with(|| new(rows)))
    }

    /// The same where they are sketches.
    fn sketches(&mut self, at: Site, first: RowId) -> Result<&mut Parts> {
        match self.lines(at, first, |_| Lines::Sketches(Parts::new()))? {
            Lines::Sketches(parts) => Ok(parts),
            _ => Err(mixed_up(at)),
        }
    }

    fn take(&mut self, at: Site, first: RowId, tensor: &TensorMut<'_>) -> Result<()> {
        let width = tensor.shape.iter().skip(1).product::<usize>();
        let count = tensor.shape.first().copied().unwrap_or(1);
        let narrow: Vec<f32>;
        let values = match &tensor.data {
            DataMut::F32(values) => &**values,
            DataMut::F64(values) => {
                narrow = values.iter().map(|v| *v as f32).collect();
                &narrow
            }
            DataMut::I64(values) => {
                let Lines::Hashes(to) = self.lines(at, first, hashes)? else { return Err(mixed_up(at)) };
                let mut bytes = Vec::with_capacity(width * 8);
                to.extend(values.chunks_exact(width.max(1)).map(|row| {
                    bytes.clear();
                    row.iter().for_each(|v| bytes.extend_from_slice(&v.to_le_bytes()));
                    row::hash(row.len(), &bytes)
                }));
                return Ok(());
            }
            DataMut::U8(values) => {
                let Lines::Hashes(to) = self.lines(at, first, hashes)? else { return Err(mixed_up(at)) };
                to.extend((0..count).map(|i| {
                    let row = shown(at, &values[i * width..(i + 1) * width], |v| *v == 0);
                    row::hash(row.len(), row)
                }));
                return Ok(());
            }
        };
        if width > 0 && !is_sketched(at, width) {
            let new = |rows| Lines::Values(width, Vec::with_capacity(rows * width));
            match self.lines(at, first, new)? {
                Lines::Values(before, to) if *before == width => to.extend_from_slice(values),
                _ => return Err(mixed_up(at)),
            }
            return Ok(());
        }
        self.turn_to(at.block)?;
        let (part, to) = self.room.next(count);
        columns::fill(to, values, width, |row| shown(at, row, |v| *v == f32::NEG_INFINITY));
        self.sketches(at, first)?.push(part);
        Ok(())
    }
}

impl Visitor for SketchWriter {
    fn want(&self, at: Site) -> Want {
        if self.glob.admits(at) { Want::Read } else { Want::Skip }
    }

    fn takes_few_rows(&self) -> bool {
        true
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> karat_seam::Result<()> {
        let Some(first) = rows.first() else { return Ok(()) };
        self.arrived_of((at, first.seq, first.pass)).map_err(karat_seam::Error::source)?;
        self.take(at, *first, &tensor).map_err(karat_seam::Error::source)
    }

    fn visit_there(
        &mut self,
        at: Site,
        rows: &[RowId],
        tensor: TensorMut<'_>,
        there: &dyn There,
    ) -> karat_seam::Result<()> {
        if self.wait_for(at, rows, &tensor, there)? { Ok(()) } else { self.visit(at, rows, tensor) }
    }

    fn takes_sketches(&self, at: Site, width: usize) -> bool {
        is_sketched(at, width)
    }

    fn visit_sketched(&mut self, at: Site, rows: &[RowId], lines: Box<dyn Later>) -> karat_seam::Result<()> {
        let Some(first) = rows.first() else { return Ok(()) };
        self.wait(at, *first, lines).map_err(karat_seam::Error::source)
    }
}

/// Whether rows of so many numbers are sketched, not kept as they are. Index scores are a row of another width in each piece.
fn is_sketched(at: Site, width: usize) -> bool {
    at.tap.is_ragged() || width > SKETCH_BYTES / 4
}

fn hashes(rows: usize) -> Lines {
    Lines::Hashes(Vec::with_capacity(rows))
}

fn mixed_up(at: Site) -> Error {
    Error::input("pieces of one tap have different element types or widths").at(at)
}

/// A row without the end that only says "not visible", which grows with the piece that the row came in.
fn shown<T>(at: Site, row: &[T], hidden: impl Fn(&T) -> bool) -> &[T] {
    if !at.tap.is_ragged() {
        return row;
    }
    let end = row.iter().rposition(|v| !hidden(v)).map_or(0, |last| last + 1);
    &row[..end]
}
