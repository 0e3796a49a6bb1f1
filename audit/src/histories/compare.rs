//! Rows that a history reads from its pages against those that the cold run has there.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use karat_model::Config;
use karat_optimized::serving::{Geometry, Layout, PageRow, Part, Program, Watch};
use karat_seam::Phase;

use super::yardstick::Yardstick;

/// The first place where a history is not its own cold run.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Layer (MTP blocks follow the layers); `None` in the logits.
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

impl Difference {
    /// When the row is read, in words; empty in the logits.
    pub fn reader(&self) -> String {
        match (self.part, self.read_by) {
            (None, _) => String::new(),
            (_, Some((piece, of, start, phase))) => format!("call {piece} of {of} ({} from {start})", phase.name()),
            (_, None) => "after the last row".into(),
        }
    }
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
        match (self.part, self.read_by) {
            (Some(_), Some(_)) => write!(f, ", read by {}", self.reader())?,
            (Some(_), None) => write!(f, ", {}", self.reader())?,
            _ => {}
        }
        let (element, own, cold) = self.element;
        write!(f, ": element {element} is {own:e}, in the cold run {cold:e}")
    }
}

/// Rows of one kind of one sequence against the cold run's.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Same {
    /// Rows that were compared.
    pub compared: u64,
    /// Those of them that differ in a bit.
    pub differs: u64,
    /// Largest difference of two elements; infinite where one is no number.
    pub largest: f64,
    /// The first of them.
    pub first: Option<Difference>,
}

impl Same {
    /// Takes a row; `place` is asked where it differs, for the first one.
    pub(super) fn take(&mut self, own: &[f32], cold: &[f32], place: impl FnOnce((usize, f32, f32)) -> Difference) {
        self.compared += 1;
        // A row that the cold run never had (stale metadata reaches past the end) differs in every element.
        let element = match cold.is_empty() {
            true => own.first().map(|v| (0, *v, f32::NAN)),
            false => first_element(own, cold),
        };
        let Some(element) = element else { return };
        self.differs += 1;
        let far = own.iter().zip(cold).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
        let largest = far.fold(0f64, |m, d| if d.is_nan() { f64::INFINITY } else { m.max(d) });
        self.largest = self.largest.max(if cold.is_empty() { f64::INFINITY } else { largest });
        self.first.get_or_insert_with(|| place(element));
    }
}

/// The first element that differs in a bit.
fn first_element(own: &[f32], cold: &[f32]) -> Option<(usize, f32, f32)> {
    let at = own.iter().zip(cold).position(|(a, b)| a.to_bits() != b.to_bits());
    at.map(|i| (i, own[i], cold[i]))
}

/// Logits `[n,V]` of a sequence, position by position.
pub(super) fn logits(own: &[f32], cold: &[f32], name: &str, vocab: usize) -> Same {
    let mut out = Same::default();
    for (position, (own, cold)) in own.chunks_exact(vocab).zip(cold.chunks_exact(vocab)).enumerate() {
        out.take(own, cold, |element| Difference {
            layer: None,
            part: None,
            sequence: name.to_string(),
            position,
            at: None,
            bytes: None,
            read_by: None,
            element,
        });
    }
    out
}

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// By sequence.
    pub(super) pages: Vec<Same>,
    /// The first of all sequences, in order of layers and then of time.
    pub(super) first: Option<Difference>,
}

/// Compares what the final requests read.
pub(super) struct Compare {
    yardstick: Arc<Yardstick>,
    geometry: Geometry,
    config: Config,
    /// Of each request: its sequence and name, when it brings that to the final context.
    sequences: Vec<Option<(u32, String)>>,
    /// Of each piece: its first position and phase.
    pieces: Vec<(u32, Phase)>,
    /// Pieces whose reads are compared; all when `None`.
    only: Option<BTreeSet<usize>>,
    found: Mutex<Found>,
}

impl Compare {
    pub(super) fn new(
        yardstick: Arc<Yardstick>,
        geometry: Geometry,
        config: Config,
        program: &Program,
        names: &[String],
        only: Option<BTreeSet<usize>>,
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
            only,
            found: Mutex::new(Found { pages: vec![Same::default(); names.len()], first: None }),
        }
    }

    pub(super) fn found(&self) -> Found {
        std::mem::take(&mut self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Watch for Compare {
    fn read(&self, row: &PageRow<'_>) {
        let Some((seq, name)) = &self.sequences[row.request] else { return };
        let is_last = row.piece >= self.pieces.len();
        if self.only.as_ref().is_some_and(|only| !is_last && !only.contains(&row.piece)) {
            return;
        }
        let cold = self.yardstick.rows.get(&(row.layer, row.part, *seq, row.index)).map_or(&[][..], Vec::as_slice);
        let place = |element| Difference {
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
        };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let Found { pages, first } = &mut *found;
        let own = &mut pages[*seq as usize];
        own.take(row.values, cold, place);
        // Layers come in order, and calls within a layer: the first that is seen is the first there is.
        if first.is_none() {
            first.clone_from(&own.first);
        }
    }

    fn wrote(&self, _: &PageRow<'_>) {}
}
