//! What a schedule comes to: every forward call with the tables that its kernels are told, and what happens to pages in
//! between. Made from the requests alone, before a number is computed, so that one layer can run all of it before the
//! next layer starts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use karat_seam::{Phase, RowId};

use super::{Part, Pool, Table, Tables};

/// One computed row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Identity. `pass` counts how often this position of this sequence was computed before.
    pub id: RowId,
    /// The token that goes in. A rejected draft is another one than the sequence has there.
    pub token: u32,
    /// Hash of the context up to and with this token: rows with the same hash at the same position are interchangeable.
    pub prefix: u64,
    /// Phase in which it is computed.
    pub phase: Phase,
    /// The token that follows, for the MTP block: the sequence's own where the row stands (a verified draft is then known),
    /// for the last row its own token.
    pub next: u32,
}

/// What the kernels of one forward call are told about one sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Serving instance whose pools are meant.
    pub instance: u8,
    /// Tokens that are in the cache before the call: the call's rows follow them.
    pub seen: usize,
    /// Block tables.
    pub tables: Tables,
    /// Window pages by which compressor state is addressed: the window's own table, as a second argument of a kernel.
    pub state: Table,
}

/// One sequence's part of a forward call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Which request it serves.
    pub request: usize,
    /// Rows of the program.
    pub rows: Range<usize>,
    /// What the kernels are told.
    pub told: Told,
}

/// Pages of one part copied from one instance to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Which tensor.
    pub part: Part,
    /// In which layers.
    pub layers: Range<u16>,
    /// Instances, from and to.
    pub instances: (u8, u8),
    /// Pages, from and to.
    pub pages: Vec<(u32, u32)>,
}

/// One thing that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A forward call.
    Forward {
        /// Sequences of the batch.
        pieces: Vec<Piece>,
        /// Padding rows of a replayed graph: what their kernels are told.
        pads: Vec<Told>,
        /// True when captured metadata was replayed.
        replayed: bool,
    },
    /// A page became free: what is in it is void.
    Freed {
        /// Instance.
        instance: u8,
        /// Pool.
        pool: Pool,
        /// Physical page.
        page: u32,
    },
    /// Rows of one tensor in a page became zero: the page was handed out anew, as engines do with fresh pages. No engine
    /// that keeps the rules does that to a page that somebody will read.
    Cleared {
        /// Instance.
        instance: u8,
        /// Tensor.
        part: Part,
        /// Physical page.
        page: u32,
    },
    /// A sequence moved from one instance to another.
    Moved {
        /// Which request.
        request: usize,
        /// Tensors that went along.
        copies: Vec<Copied>,
    },
    /// A request has all its tokens: its content is final.
    Done {
        /// Which request.
        request: usize,
        /// What its next token's kernels would be told.
        told: Told,
        /// Which row stands at each position.
        rows: Vec<usize>,
    },
}

/// A whole schedule.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Every computed row, in time order.
    pub rows: Vec<Row>,
    /// What happens, in time order.
    pub events: Vec<Event>,
    /// Of each request the sequence, and the hash of its context after each of its tokens.
    pub requests: Vec<(u32, Arc<[u64]>)>,
    /// True for a request that brings its sequence to the final context.
    pub finals: Vec<bool>,
}

impl Program {
    /// Every piece of every forward call, in time order.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.events.iter().flat_map(|event| match event {
            Event::Forward { pieces, .. } => pieces.as_slice(),
            _ => &[],
        })
    }

    /// The piece after which each request that reaches its sequence's final context is done.
    pub(crate) fn ends(&self) -> BTreeMap<usize, usize> {
        let (mut last, mut out) = (BTreeMap::new(), BTreeMap::new());
        let mut j = 0;
        for event in &self.events {
            match event {
                Event::Forward { pieces, .. } => {
                    for piece in pieces {
                        last.insert(piece.request, j);
                        j += 1;
                    }
                }
                Event::Done { request, .. } if self.finals[*request] => {
                    out.extend(last.get(request).map(|j| (*request, *j)));
                }
                _ => {}
            }
        }
        out
    }

    /// The sequences that reached their final context: request, tables and rows.
    pub fn done(&self) -> impl Iterator<Item = (usize, &Told, &[usize])> {
        self.events.iter().filter_map(|event| match event {
            Event::Done { request, told, rows } if self.finals[*request] => Some((*request, told, rows.as_slice())),
            _ => None,
        })
    }
}
