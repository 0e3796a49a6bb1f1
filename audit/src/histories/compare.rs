//! Rows that a history reads from its pages against those that the cold run has there.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use karat_model::Config;
use karat_optimized::serving::{Geometry, Layout, PageRow, Part, Program, Watch};
use karat_seam::Phase;

use super::yardstick::Yardstick;

/// The first place where a history is not its own cold run.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Layer; `None` in the logits.
    pub layer: Option<u16>,
    /// Tensor; `None` in the logits.
    pub part: Option<Part>,
    /// Sequence, by its name.
    pub sequence: String,
    /// Position (for an entry the last of its window).
    pub position: usize,
    /// Physical page and row in it, where there is one.
    pub at: Option<(u32, usize)>,
    /// Where engines hold that row by default, in bytes from the start of its page.
    pub bytes: Option<Range<usize>>,
    /// When it is read: which piece of a forward call, of how many, and its first position and phase; `None` for the
    /// content after the last row.
    pub read_by: Option<(usize, usize, u32, Phase)>,
    /// Element of the row, what the history has there, and what the cold run has.
    pub element: (usize, f32, f32),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.layer, self.part) {
            (Some(layer), Some(part)) => write!(f, "layer {layer}, {}", part.name())?,
            _ => f.write_str("logits")?,
        }
        write!(f, ", sequence {}, position {}", self.sequence, self.position)?;
        match self.at {
            Some((page, row)) => {
                write!(f, ", page {page}, row {row}")?;
                if let Some(bytes) = &self.bytes {
                    write!(f, " (bytes {} to {})", bytes.start, bytes.end - 1)?;
                }
            }
            None if self.part.is_some() => f.write_str(", no page in the table")?,
            None => {}
        }
        if self.part.is_some() {
            match self.read_by {
                Some((piece, of, start, phase)) => {
                    write!(f, ", read by call {piece} of {of} ({} from {start})", phase.name())?;
                }
                None => f.write_str(", after the last row")?,
            }
        }
        let (element, own, cold) = self.element;
        write!(f, ": element {element} is {own:e}, in the cold run {cold:e}")
    }
}

/// The first element that differs in a bit.
pub(super) fn first_element(own: &[f32], cold: &[f32]) -> Option<(usize, f32, f32)> {
    let at = own.iter().zip(cold).position(|(a, b)| a.to_bits() != b.to_bits());
    at.map(|i| (i, own[i], cold[i]))
}

/// Compares what the final requests read.
pub(super) struct Compare {
    pub(super) yardstick: Arc<Yardstick>,
    pub(super) geometry: Geometry,
    pub(super) config: Config,
    /// Of each request: its sequence and name, when it brings that to the final context.
    pub(super) sequences: Vec<Option<(u32, String)>>,
    /// Of each piece: its first position and phase.
    pub(super) pieces: Vec<(u32, Phase)>,
    pub(super) first: Mutex<Option<Difference>>,
    /// Rows compared.
    pub(super) read: AtomicU64,
}

impl Compare {
    pub(super) fn new(
        yardstick: Arc<Yardstick>,
        geometry: Geometry,
        config: Config,
        program: &Program,
        names: &[String],
    ) -> Self {
        let sequence = |(request, is_final): (usize, &bool)| {
            let seq = program.requests[request].0;
            is_final.then(|| (seq, names[seq as usize].clone()))
        };
        let pieces = program.pieces().map(|p| {
            let row = &program.rows[p.rows.start];
            (row.id.pos, row.phase)
        });
        Self {
            yardstick,
            geometry,
            config,
            sequences: program.finals.iter().enumerate().map(sequence).collect(),
            pieces: pieces.collect(),
            first: Mutex::new(None),
            read: AtomicU64::new(0),
        }
    }
}

impl Watch for Compare {
    fn read(&self, row: &PageRow<'_>) {
        let Some((seq, name)) = &self.sequences[row.request] else { return };
        self.read.fetch_add(1, Ordering::Relaxed);
        let cold = self.yardstick.rows.get(&(row.layer, row.part, *seq, row.index)).map_or(&[][..], Vec::as_slice);
        // A row that the cold run never had (stale metadata reaches past the end) differs in every element.
        let element = match cold.is_empty() {
            true => row.values.first().map(|v| (0, *v, f32::NAN)),
            false => first_element(row.values, cold),
        };
        let Some(element) = element else { return };
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        // Layers come in order, and calls within a layer: the first that is seen is the first there is.
        first.get_or_insert_with(|| Difference {
            layer: Some(row.layer),
            part: Some(row.part),
            sequence: name.clone(),
            position: self.geometry.last_token(row.part, row.index),
            at: row.at,
            bytes: row.at.map(|(_, r)| Layout::of(row.part, &self.config, &self.geometry).bytes(r).0),
            read_by: self
                .pieces
                .get(row.piece)
                .map(|(start, phase)| (row.piece + 1, self.pieces.len(), *start, *phase)),
            element,
        });
    }

    fn wrote(&self, _: &PageRow<'_>) {}
}
