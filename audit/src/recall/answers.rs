//! Logits of the turns that answer a question, under golden and one candidate.

use std::collections::BTreeMap;

use karat_scenarios::Ask;
use karat_seam::{Data, RowId, Tensor};

/// The logits of one answering turn: row `i` predicts the id at position `ask.turn.start + i`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    /// Index of the sequence.
    pub(crate) seq: usize,
    /// Index of the question within it.
    pub(crate) question: usize,
    /// `[n,V]`, the whole turn.
    pub(crate) golden: Tensor,
    /// `[m,V]`: the rows that the candidate computed, from the first on. Fewer than golden's: it was truncated.
    pub(crate) candidate: Tensor,
}

/// Logits of the positions that questions need, by (sequence, position).
#[derive(Debug, Clone, Default)]
pub(crate) struct Picked {
    width: usize,
    rows: BTreeMap<(u32, u32), Vec<f32>>,
}

impl Picked {
    /// Keeps the rows of `logits` (`[rows,V]`) that come before an id of an answering turn.
    pub(crate) fn take(&mut self, rows: &[RowId], logits: &Tensor, asks: &[Vec<Ask>]) {
        self.width = logits.width();
        for (i, row) in rows.iter().enumerate() {
            let wanted = |ask: &Ask| ask.turn.contains(&(row.pos + 1));
            if !asks.get(row.seq as usize).is_some_and(|asks| asks.iter().any(wanted)) {
                continue;
            }
            let range = i * self.width..(i + 1) * self.width;
            let values = match &logits.data {
                Data::F32(v) => v[range].to_vec(),
                Data::F64(v) => v[range].iter().map(|&v| v as f32).collect(),
                Data::I64(_) | Data::U8(_) => continue,
            };
            // Of a row that was computed again the last pass counts: it comes later.
            self.rows.insert((row.seq, row.pos), values);
        }
    }

    /// The rows that predict positions `from..to` of a sequence, as far as they are there from the first on.
    pub(crate) fn rows(&self, seq: u32, from: u32, to: u32) -> Tensor {
        let have: Vec<&Vec<f32>> = (from..to).map_while(|pos| self.rows.get(&(seq, pos.checked_sub(1)?))).collect();
        let values = have.iter().flat_map(|row| row.iter().copied()).collect();
        Tensor::f32([have.len(), self.width], values)
    }
}

/// The answers that golden has whole.
pub(crate) fn answers(asks: &[Vec<Ask>], golden: &Picked, candidate: &Picked) -> Vec<Answer> {
    let mut out = Vec::new();
    for (seq, asks) in asks.iter().enumerate() {
        for (question, ask) in asks.iter().enumerate() {
            let rows = |picked: &Picked| picked.rows(seq as u32, ask.turn.start, ask.turn.end);
            let golden = rows(golden);
            if golden.rows() as u32 == ask.turn.end - ask.turn.start {
                let mut candidate = rows(candidate);
                candidate.shape[1] = golden.width();
                out.push(Answer { seq, question, golden, candidate });
            }
        }
    }
    out
}
