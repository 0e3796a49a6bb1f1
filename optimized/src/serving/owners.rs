//! The accounting of pages, checked with owner tags as content: every row that a kernel would read must be the one that
//! this context's token wrote in this layer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;

use karat_model::config::LayerKind;

use super::store::{Content, Store};
use super::{Event, Geometry, Part, Piece, Program, Told};

/// Who wrote a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Nobody since the page was free.
    Free,
    /// A padding row.
    Pad,
    /// A token.
    Token {
        /// Sequence.
        seq: u32,
        /// Position.
        pos: u32,
        /// Hash of the context up to it.
        prefix: u64,
        /// Layer.
        layer: u16,
    },
}

impl Content for Owner {
    const POISON: Self = Self::Free;
    const PAD: Self = Self::Pad;
    const CLEARED: Self = Self::Free;
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("a free row"),
            Self::Pad => f.write_str("a padding row"),
            Self::Token { seq, pos, layer, .. } => write!(f, "sequence {seq}, position {pos}, layer {layer}"),
        }
    }
}

/// A row that isn't what its reader takes it for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misplaced {
    /// Which event of the program reads it.
    pub event: usize,
    /// For which request.
    pub request: usize,
    /// Layer.
    pub layer: u16,
    /// Tensor.
    pub part: Part,
    /// The token that the reader wants (for an entry: the last of its window).
    pub pos: usize,
    /// The sequence that it wants it of.
    pub seq: u32,
    /// Physical page and row; `None` when the table has no page there.
    pub at: Option<(u32, usize)>,
    /// Whose row stands there.
    pub found: Owner,
    /// Tokens in the cache, and what the kernel was told; they differ when the metadata is another call's.
    pub seen: (usize, usize),
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.seen.0 != self.seen.1 {
            let (have, told) = self.seen;
            return write!(f, "sequence {}: {have} tokens in the cache, but the kernel was told {told}", self.seq);
        }
        write!(f, "layer {}, {}, sequence {}, position {}: ", self.layer, self.part.name(), self.seq, self.pos)?;
        match self.at {
            None => f.write_str("the table has no page there"),
            Some((page, row)) => write!(f, "page {page}, row {row} holds {}", self.found),
        }
    }
}

/// Replays a program with owner tags in the layers `layers` (number and kind); the first row that is not its reader's.
pub fn check_owners(
    program: &Program,
    geometry: &Geometry,
    layers: impl IntoIterator<Item = (u16, LayerKind)>,
) -> Option<Misplaced> {
    let mut first: Option<Misplaced> = None;
    for (layer, kind) in layers {
        let mut found = None;
        Replay { program, geometry, layer, kind }.run(&mut |misplaced| {
            found = Some(misplaced);
            ControlFlow::Break(())
        });
        first = match (first, found) {
            (Some(a), Some(b)) => Some(if b.event < a.event { b } else { a }),
            (a, b) => a.or(b),
        };
    }
    first
}

/// Rows of one tensor of one sequence that were not their reader's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Sequence.
    pub seq: u32,
    /// Tensor.
    pub part: Part,
    /// Layers.
    pub layers: BTreeSet<u16>,
    /// The tokens that the rows stand for (an entry for the last of its window), in order.
    pub positions: BTreeSet<usize>,
    /// Rows over all layers.
    pub rows: usize,
    /// True when all of them were free rows: nobody's, not somebody else's.
    pub are_free: bool,
}

/// Every row that the requests which bring a sequence to its final context read and that is not theirs, by sequence and
/// tensor. A row counts once, however often it is read.
pub fn lost_rows(
    program: &Program,
    geometry: &Geometry,
    layers: impl IntoIterator<Item = (u16, LayerKind)>,
) -> Vec<Lost> {
    let mut found: BTreeMap<(u32, Part), Lost> = BTreeMap::new();
    for (layer, kind) in layers {
        let mut seen = BTreeSet::new();
        Replay { program, geometry, layer, kind }.run(&mut |m| {
            if program.finals[m.request] && seen.insert((m.seq, m.part, m.pos)) {
                let lost = found.entry((m.seq, m.part)).or_insert_with(|| Lost {
                    seq: m.seq,
                    part: m.part,
                    layers: BTreeSet::new(),
                    positions: BTreeSet::new(),
                    rows: 0,
                    are_free: true,
                });
                lost.layers.insert(layer);
                lost.positions.insert(m.pos);
                lost.rows += 1;
                lost.are_free &= m.found == Owner::Free;
            }
            ControlFlow::Continue(())
        });
    }
    found.into_values().collect()
}

type See<'a> = dyn FnMut(Misplaced) -> ControlFlow<()> + 'a;

struct Replay<'a> {
    program: &'a Program,
    geometry: &'a Geometry,
    layer: u16,
    kind: LayerKind,
}

impl Replay<'_> {
    /// Shows every row that is not its reader's, until told to stop.
    fn run(&self, see: &mut See<'_>) {
        let parts = Geometry::parts(self.kind);
        let mut store = Store::new(*self.geometry, self.layer, |part| usize::from(parts.contains(&part)));
        for (i, event) in self.program.events.iter().enumerate() {
            store.apply(event);
            match event {
                Event::Forward { pieces, .. } => {
                    for piece in pieces {
                        let have = self.program.rows[piece.rows.start].id.pos as usize;
                        if self.read(&store, (i, piece.request), have, &piece.told, see).is_break() {
                            return;
                        }
                        self.write(&mut store, piece);
                    }
                }
                Event::Done { request, told, rows } => {
                    if self.read(&store, (i, *request), rows.len(), told, see).is_break() {
                        return;
                    }
                }
                Event::Freed { .. } | Event::Cleared { .. } | Event::Moved { .. } => {}
            }
        }
    }

    fn read(
        &self,
        store: &Store<Owner>,
        (event, request): (usize, usize),
        have: usize,
        told: &Told,
        see: &mut See<'_>,
    ) -> ControlFlow<()> {
        let (seq, contexts) = &self.program.requests[request];
        let misplaced = |part, pos, at, found| Misplaced {
            event,
            request,
            layer: self.layer,
            part,
            pos,
            seq: *seq,
            at,
            found,
            seen: (have, told.seen),
        };
        if have != told.seen {
            return see(misplaced(Part::Window, have, None, Owner::Free));
        }
        for (part, indices) in self.geometry.reads(self.kind, told.seen) {
            for index in indices {
                let pos = self.geometry.last_token(part, index);
                let found = store.read(told, part, index)[0];
                let right = matches!(found, Owner::Token { pos: p, prefix, layer, .. }
                    if p as usize == pos && prefix == contexts[pos] && layer == self.layer);
                if !right {
                    see(misplaced(part, pos, store.place(told, part, index), found))?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn write(&self, store: &mut Store<Owner>, piece: &Piece) {
        let told = &piece.told;
        for (part, indices) in self.geometry.writes(self.kind, told.seen..told.seen + piece.rows.len()) {
            for index in indices {
                let row = &self.program.rows[piece.rows.start + self.geometry.last_token(part, index) - told.seen];
                let owner = Owner::Token { seq: row.id.seq, pos: row.id.pos, prefix: row.prefix, layer: self.layer };
                store.write(told, part, index, &[owner]);
            }
        }
    }
}
