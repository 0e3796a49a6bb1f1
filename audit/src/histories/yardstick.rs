//! The path's own cold run: every sequence alone on empty pages, each row in the phase in which the history computed it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use karat_diff::logits::Position;
use karat_optimized::serving::{
    Action, Event, Geometry, PageRow, Paged, Part, Piece, Program, Script, Setup, Told, Watch, Work,
};
use karat_seam::{Phase, Requests};

/// A row of state: layer, tensor, sequence, index.
pub(super) type Key = (u16, Part, u32, usize);

/// What the cold run wrote to its pages and came to.
#[derive(Debug, Default)]
pub(super) struct Yardstick {
    pub(super) rows: BTreeMap<Key, Vec<f32>>,
    /// `[n,V]` of each sequence.
    pub(super) logits: Vec<Vec<f32>>,
    /// The same of the first MTP block; empty without one.
    pub(super) mtp: Vec<Vec<f32>>,
    /// Against golden's logits, by sequence; empty when golden was not run.
    pub(super) positions: Vec<Vec<Position>>,
}

/// In which forward calls the cold run computes a sequence.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cut {
    /// Phase of each position.
    pub(super) phases: Vec<Phase>,
    /// Positions at which a new call begins, beside those where the phase changes.
    pub(super) starts: Vec<u32>,
}

/// Keeps every row that is written. A request's number is its sequence.
#[derive(Debug, Default)]
pub(super) struct Keep(Mutex<BTreeMap<Key, Vec<f32>>>);

impl Keep {
    pub(super) fn take(&self) -> BTreeMap<Key, Vec<f32>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Watch for Keep {
    fn read(&self, _: &PageRow<'_>) {}

    fn wrote(&self, row: &PageRow<'_>) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.insert((row.layer, row.part, row.request as u32, row.index), row.values.to_vec());
    }
}

/// Runs of decoded positions.
fn decoded(phases: &[Phase]) -> Vec<Range<u32>> {
    let mut out: Vec<Range<u32>> = Vec::new();
    for (p, _) in (0u32..).zip(phases).filter(|(_, phase)| **phase == Phase::Decode) {
        match out.last_mut() {
            Some(range) if range.end == p => range.end += 1,
            _ => out.push(p..p + 1),
        }
    }
    out
}

/// The cold run, cut as asked.
pub(super) fn program(
    requests: &Requests,
    geometry: Geometry,
    cuts: &[Cut],
    watch: Arc<Keep>,
) -> karat_model::Result<Paged> {
    let works: Vec<Work> = (0u32..)
        .zip(requests.seqs.iter().zip(cuts))
        .map(|(seq, (s, cut))| {
            let decode = decoded(&cut.phases);
            Work { seq, ids: s.ids.clone(), decode, last: true, drafts: 0, guesses: Arc::default() }
        })
        .collect();
    let longest = requests.seqs.iter().map(|s| s.ids.len()).max().unwrap_or(1);
    let setup = Setup {
        geometry,
        chunk: usize::MAX,
        batch: 1,
        pages: geometry.pages(longest),
        instances: 1,
        cache: false,
        graphs: false,
        seed: 0,
    };
    let actions = (0..works.len()).map(Action::Submit).collect();
    let program = cut(Script { setup, works, actions }.program()?, cuts);
    Ok(Paged { name: "own cold run".into(), geometry, program, watch: Some(watch) })
}

/// The program with its forward calls cut where the sequences ask for it. A piece has the pages of all its rows from the
/// beginning, and gives none back before its end, so each part of it is told the same tables.
fn cut(program: Program, cuts: &[Cut]) -> Program {
    let mut events = Vec::new();
    for event in &program.events {
        match event {
            Event::Forward { pieces, .. } => {
                for piece in pieces.iter().flat_map(|piece| parts(&program, piece, cuts)) {
                    events.push(Event::Forward { pieces: vec![piece], pads: Vec::new(), replayed: false });
                }
            }
            other => events.push(other.clone()),
        }
    }
    Program { events, ..program }
}

fn parts(program: &Program, piece: &Piece, cuts: &[Cut]) -> Vec<Piece> {
    let seq = program.requests[piece.request].0 as usize;
    let first = program.rows[piece.rows.start].id.pos;
    let inside = |p: &&u32| **p > first && ((**p - first) as usize) < piece.rows.len();
    let starts = cuts[seq].starts.iter().filter(inside).map(|p| piece.rows.start + (*p - first) as usize);
    let mut bounds: Vec<usize> = std::iter::once(piece.rows.start).chain(starts).collect();
    bounds.push(piece.rows.end);
    let part = |ends: &[usize]| Piece {
        request: piece.request,
        rows: ends[0]..ends[1],
        told: Told { seen: piece.told.seen + ends[0] - piece.rows.start, ..piece.told.clone() },
    };
    bounds.windows(2).map(part).collect()
}
