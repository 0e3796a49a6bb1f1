//! What happened in a program: a history that never did what it is named after proves nothing.

use karat_seam::Phase;

use super::{Event, Program, Served};

/// Counts of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// Forward calls.
    pub calls: usize,
    /// Computed rows.
    pub rows: usize,
    /// Rows of a position that was computed before.
    pub again: usize,
    /// Rows computed in decode.
    pub decoded: usize,
    /// Positions of the final contexts whose row another request computed.
    pub reused: usize,
    /// Pages copied to another instance, over all tensors.
    pub moved: usize,
    /// Forward calls that replayed captured metadata.
    pub replayed: usize,
    /// Those of them with padding rows.
    pub padded: usize,
    /// Forward calls with several sequences.
    pub batched: usize,
    /// Drafts that were right, with all before them in their call.
    pub accepted: usize,
    /// Prefill pieces.
    pub prefills: usize,
    /// Rows of the largest prefill piece.
    pub largest_prefill: usize,
    /// Pages that became free and void.
    pub freed: usize,
    /// Sequences that reached their final context.
    pub sequences: usize,
}

impl Facts {
    /// Counts a program.
    pub fn of(program: &Program) -> Self {
        let mut facts = Self { rows: program.rows.len(), ..Self::default() };
        facts.again = program.rows.iter().filter(|r| r.id.pass > 0).count();
        facts.decoded = program.rows.iter().filter(|r| r.phase == Phase::Decode).count();
        let mut request_of = vec![usize::MAX; program.rows.len()];
        for piece in program.pieces() {
            request_of[piece.rows.clone()].fill(piece.request);
            let (_, context) = &program.requests[piece.request];
            let is_right = |row: &&super::Row| context.get(row.id.pos as usize) == Some(&row.prefix);
            if program.rows[piece.rows.start].phase == Phase::Decode {
                facts.accepted += program.rows[piece.rows.clone()].iter().skip(1).take_while(is_right).count();
            } else {
                facts.prefills += 1;
                facts.largest_prefill = facts.largest_prefill.max(piece.rows.len());
            }
        }
        for (request, _, rows) in program.done() {
            facts.sequences += 1;
            facts.reused += rows.iter().filter(|row| request_of[**row] != request).count();
        }
        for event in &program.events {
            match event {
                Event::Forward { pieces, pads, replayed } => {
                    facts.calls += 1;
                    facts.replayed += usize::from(*replayed);
                    facts.padded += usize::from(!pads.is_empty());
                    facts.batched += usize::from(pieces.len() > 1);
                }
                Event::Freed { .. } => facts.freed += 1,
                Event::Moved { copies, .. } => facts.moved += copies.iter().map(|c| c.pages.len()).sum::<usize>(),
                Event::Done { .. } | Event::Cleared { .. } => {}
            }
        }
        facts
    }

    /// Why this is no evidence for a history, if it is none.
    pub fn lacks(&self, history: Served) -> Option<&'static str> {
        let (fine, why) = match history {
            Served::Cold => (self.rows > 0, "nothing was computed"),
            Served::Warm => (self.reused > 0, "no prefix was long enough to be found in the cache"),
            Served::Chunked => (self.prefills > self.sequences, "every prefill fitted into one chunk"),
            Served::AfterAbort => (self.again > 0, "the request was through before it could be aborted"),
            Served::AfterEvict => (self.again > 0, "the request was through before it could be evicted"),
            Served::AfterTransfer => (self.moved > 0, "the request was through before it could be moved"),
            Served::Decoded => (self.decoded > 0, "nothing was decoded"),
            Served::Batched => (self.batched > 0, "no forward call had two sequences"),
            Served::GraphReplayed => (self.padded > 0, "no replayed graph had padding rows"),
            Served::Speculative if self.accepted == 0 => (false, "no draft was right"),
            Served::Speculative => (self.again > 0, "no draft was rejected"),
        };
        (!fine).then_some(why)
    }
}
