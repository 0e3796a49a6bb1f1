//! Sketches: a line of 96 bytes a row in the place of its values, for runs that are too large to be recorded whole.
//!
//! Of each row of a tap: the norm and the largest size of its finite values, how many are not finite, 16 signed sums (value i goes
//! with a sign of its own into sum i mod 16) and a 64-bit hash of its bits. Equal hashes mean equal rows for all practical
//! purposes. The sums are linear, so the sums of two runs' rows differ by the sums of the rows' difference, whose expected squared
//! norm is the difference's own (Charikar, Chen and Farach-Colton's count sketch): how far two runs are apart is told to within
//! about a third for one row, and better over many. A folder with `sketch.safetensors`, which `karat diff` compares as any other:
//! `SEQUENCE/TAP.norm`, `.absmax` F32 `[rows]`, `.projection` F32 `[rows,16]`, `.nonfinite`, `.hash` I64 `[rows]`. Integers have
//! the hash alone.

mod row;
mod simd_call;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use karat_model::{Error, Result};
use karat_seam::{DataMut, Requests, RowId, Site, Tensor, TensorMut, Visitor, Want};

use crate::TapGlob;
use crate::key::Key;
use crate::writer::{Pieces, write};

pub use row::{RowSketch, SUMS};

/// The file's name.
const FILE: &str = "sketch.safetensors";

/// Lines of one tap of one sequence and pass.
#[derive(Default)]
struct Lines {
    norm: Vec<f32>,
    absmax: Vec<f32>,
    projection: Vec<f32>,
    nonfinite: Vec<i64>,
    hash: Vec<i64>,
    is_number: bool,
}

/// A visitor that keeps a sketch of what a glob admits.
pub struct SketchWriter {
    target: PathBuf,
    glob: TapGlob,
    sequences: Vec<String>,
    lines: BTreeMap<(Site, u32, u32), Lines>,
}

impl SketchWriter {
    /// For a run of these requests; `target` is a folder that must not exist yet, and is made by [`Self::finish`].
    ///
    /// # Errors
    /// Usage: the target exists.
    pub fn create(target: &Path, requests: &Requests, glob: TapGlob) -> Result<Self> {
        if target.symlink_metadata().is_ok() {
            let error = Error::usage("the folder exists already").at(target.display());
            return Err(error.hint("name a new folder, or remove the old one"));
        }
        let sequences = requests.seqs.iter().map(|s| s.id.clone()).collect();
        Ok(Self { target: target.into(), glob, sequences, lines: BTreeMap::new() })
    }

    /// Writes the sketch.
    ///
    /// # Errors
    /// Input: nothing was seen, or the folder can't be written.
    pub fn finish(self) -> Result<PathBuf> {
        if self.lines.is_empty() {
            return Err(Error::input("nothing was recorded").at(self.target.display()).hint("check the tap patterns"));
        }
        let mut tensors = Vec::new();
        for ((site, seq, pass), lines) in self.lines {
            let sequence = self.sequences.get(seq as usize).map_or("", String::as_str);
            let key = Key::tap(sequence, site, pass).to_string();
            let rows = lines.hash.len();
            let mut put = |name: &str, tensor: Tensor| tensors.push((format!("{key}.{name}"), Pieces::whole(tensor)));
            put("hash", Tensor::i64([rows], lines.hash));
            if lines.is_number {
                put("norm", Tensor::f32([rows], lines.norm));
                put("absmax", Tensor::f32([rows], lines.absmax));
                put("projection", Tensor::f32([rows, SUMS], lines.projection));
                put("nonfinite", Tensor::i64([rows], lines.nonfinite));
            }
        }
        let failed = |e: std::io::Error| Error::input("the folder can't be made").at(self.target.display()).found(e);
        std::fs::create_dir(&self.target).map_err(failed)?;
        write(&self.target.join(FILE), &tensors)?;
        Ok(self.target)
    }
}

impl Visitor for SketchWriter {
    fn want(&self, at: Site) -> Want {
        if self.glob.admits(at) { Want::Read } else { Want::Skip }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> karat_seam::Result<()> {
        let Some(first) = rows.first() else { return Ok(()) };
        let lines = self.lines.entry((at, first.seq, first.pass)).or_default();
        let width = tensor.shape.iter().skip(1).product::<usize>().max(1);
        match tensor.data {
            DataMut::F32(values) => {
                lines.is_number = true;
                for row in values.chunks_exact(width) {
                    lines.add(&RowSketch::of(shown(at, row, |v| *v == f32::NEG_INFINITY)));
                }
            }
            DataMut::F64(values) => {
                lines.is_number = true;
                let narrow: Vec<f32> = values.iter().map(|v| *v as f32).collect();
                for row in narrow.chunks_exact(width) {
                    lines.add(&RowSketch::of(shown(at, row, |v| *v == f32::NEG_INFINITY)));
                }
            }
            DataMut::I64(values) => {
                for row in values.chunks_exact(width) {
                    lines.hash.push(row::hash(row.iter().flat_map(|v| [*v as u32, (*v >> 32) as u32])));
                }
            }
            DataMut::U8(values) => {
                for row in values.chunks_exact(width) {
                    lines.hash.push(row::hash(shown(at, row, |v| *v == 0).iter().map(|v| u32::from(*v))));
                }
            }
        }
        Ok(())
    }
}

/// A row without the end that only says "not visible", which grows with the piece that the row came in.
fn shown<T>(at: Site, row: &[T], hidden: impl Fn(&T) -> bool) -> &[T] {
    if !at.tap.is_ragged() {
        return row;
    }
    let end = row.iter().rposition(|v| !hidden(v)).map_or(0, |last| last + 1);
    &row[..end]
}

impl Lines {
    fn add(&mut self, row: &RowSketch) {
        self.norm.push(row.norm);
        self.absmax.push(row.absmax);
        self.projection.extend(row.projection);
        self.nonfinite.push(i64::from(row.nonfinite));
        self.hash.push(row.hash);
    }
}
