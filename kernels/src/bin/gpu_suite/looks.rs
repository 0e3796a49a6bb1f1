//! Visitors of the part `capture`: one that only looks, one that times another, and one for decode steps.

use std::time::Instant;

use karat_model::Result;
use karat_seam::{DataMut, Later, RowId, Site, TensorMut, There, Visitor, Want};
use karat_trace::{RowSketch, SketchWriter, told};

use super::capture::What;

/// Reads every tap and keeps nothing.
pub(crate) struct Looks;

impl Visitor for Looks {
    fn want(&self, _: Site) -> Want {
        Want::Read
    }

    fn takes_few_rows(&self) -> bool {
        true
    }

    fn visit(&mut self, _: Site, _: &[RowId], _: TensorMut<'_>) -> karat_seam::Result<()> {
        Ok(())
    }
}

/// A writer whose visits are timed.
pub(crate) struct Timed<'a> {
    writer: &'a mut SketchWriter,
    /// Of rows that also lie on a device, of those that lie there alone, and of those that are here.
    pub(crate) seconds: [f64; 3],
    pub(crate) visits: [u64; 3],
}

impl<'a> Timed<'a> {
    pub(crate) fn new(writer: &'a mut SketchWriter) -> Self {
        Self { writer, seconds: [0.0; 3], visits: [0; 3] }
    }

    fn timed<R>(&mut self, which: usize, visit: impl FnOnce(&mut SketchWriter) -> R) -> R {
        let start = Instant::now();
        let done = visit(self.writer);
        self.seconds[which] += start.elapsed().as_secs_f64();
        self.visits[which] += 1;
        done
    }
}

impl Visitor for Timed<'_> {
    fn want(&self, at: Site) -> Want {
        self.writer.want(at)
    }

    fn takes_few_rows(&self) -> bool {
        self.writer.takes_few_rows()
    }

    fn takes_sketches(&self, at: Site, width: usize) -> bool {
        self.writer.takes_sketches(at, width)
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> karat_seam::Result<()> {
        self.timed(2, |writer| writer.visit(at, rows, tensor))
    }

    fn visit_there(
        &mut self,
        at: Site,
        rows: &[RowId],
        tensor: TensorMut<'_>,
        there: &dyn There,
    ) -> karat_seam::Result<()> {
        self.timed(0, |writer| writer.visit_there(at, rows, tensor, there))
    }

    fn visit_sketched(&mut self, at: Site, rows: &[RowId], lines: Box<dyn Later>) -> karat_seam::Result<()> {
        self.timed(1, |writer| writer.visit_sketched(at, rows, lines))
    }
}

/// Captures the taps of a decode step.
pub(crate) struct Step {
    what: What,
    dump: Vec<u8>,
    begun: Vec<Box<dyn Later>>,
}

impl Step {
    pub(crate) fn new(what: What) -> Self {
        Self { what, dump: Vec::new(), begun: Vec::new() }
    }

    /// Waits for its sketches, and gives what is to be written.
    pub(crate) fn ended(self) -> Result<Vec<u8>> {
        for later in self.begun {
            std::hint::black_box(later.lines().map_err(told)?);
        }
        Ok(self.dump)
    }
}

impl Visitor for Step {
    fn want(&self, _: Site) -> Want {
        Want::Read
    }

    fn takes_sketches(&self, _: Site, width: usize) -> bool {
        self.what == What::Sketch && width > 22
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> karat_seam::Result<()> {
        match (self.what, &tensor.data) {
            (What::Dump, DataMut::F32(values)) => self.dump.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            (What::Dump, DataMut::F64(values)) => self.dump.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            (What::Dump, DataMut::I64(values)) => self.dump.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            (What::Dump, DataMut::U8(values)) => self.dump.extend_from_slice(values),
            (What::Sketch, DataMut::F32(values)) if !at.tap.is_state() => {
                let width = values.len() / rows.len().max(1);
                for row in values.chunks_exact(width.max(1)) {
                    std::hint::black_box(RowSketch::of(row));
                }
            }
            // Decisions are bits as they are; who only looks has looked.
            _ => {}
        }
        Ok(())
    }

    fn visit_there(
        &mut self,
        at: Site,
        rows: &[RowId],
        tensor: TensorMut<'_>,
        there: &dyn There,
    ) -> karat_seam::Result<()> {
        let short = !at.tap.is_ragged() && tensor.data.len() <= 22 * rows.len();
        let counts = self.what == What::Sketch && !short && !rows.is_empty() && !tensor.data.is_empty();
        match if counts { there.sketch(rows.len(), at.tap.is_ragged())? } else { None } {
            Some(later) => self.begun.push(later),
            None => self.visit(at, rows, tensor)?,
        }
        Ok(())
    }

    fn visit_sketched(&mut self, _: Site, _: &[RowId], lines: Box<dyn Later>) -> karat_seam::Result<()> {
        self.begun.push(lines);
        Ok(())
    }
}
