//! What comparing one candidate in one block leaves, as an entry of the cache.

use std::collections::BTreeMap;

use karat_bundle::Row;
use karat_seam::Phase;

use crate::cache::{Hash, Reader, Writer, read_tensor, write_tensor};
use crate::candidate::Candidate;
use crate::part::Part;
use crate::patch_rows::Calls;
use crate::recall::{Answer, Asked};

/// Everything that a later block, or another candidate's verdict, needs of a comparison that was made before.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Record {
    /// Rows of the block's taps and decisions.
    pub(crate) part: Part,
    /// Changes of the most likely id that the head itself makes; of the head only.
    pub(crate) injected: Part,
    /// Rows of the logits; of the head only.
    pub(crate) logits: Part,
    /// The streams that leave the candidate's block, by content; `None` where they are not known.
    pub(crate) next: Option<Hash>,
    /// Executions of each patch in this block.
    pub(crate) calls: BTreeMap<String, Calls>,
    /// What the first candidate's logits did at each (sequence, position); of its head only.
    pub(crate) noise: BTreeMap<(u32, u32), Noise>,
    /// Logits of answers, where the conversations ask; of the head only.
    pub(crate) asked: Option<Asked>,
}

/// How far one position's logits are off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Noise {
    /// Δlogit RMS.
    pub(crate) rms: f64,
    /// Whether the most likely id is another than golden's.
    pub(crate) flipped: bool,
}

impl Record {
    /// Counts the executions between two readings.
    pub(crate) fn count(&mut self, before: &BTreeMap<String, Calls>, after: BTreeMap<String, Calls>) {
        let since = |(patch, calls): (String, Calls)| {
            let earlier = before.get(&patch).copied().unwrap_or_default();
            (patch, calls.since(earlier))
        };
        self.calls = after.into_iter().map(since).collect();
    }

    /// The same of a candidate that does the same in the block under another name.
    pub(crate) fn of(mut self, candidate: &Candidate<'_>) -> Self {
        let name = |patch_set: &mut String| patch_set.clone_from(&candidate.patch_set);
        self.part.taps.iter_mut().for_each(|row| name(&mut row.patch_set));
        self.part.flips.iter_mut().for_each(|row| name(&mut row.patch_set));
        self.calls.retain(|patch, _| candidate.patches.iter().any(|p| p.name == *patch));
        self
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut to = Writer::default();
        write_part(&mut to, &self.part);
        write_part(&mut to, &self.injected);
        write_part(&mut to, &self.logits);
        to.bytes(self.next.as_ref().map_or(&[], |hash| hash.as_slice()));
        to.u64(self.calls.len() as u64);
        for (patch, calls) in &self.calls {
            to.text(patch);
            [calls.prefill, calls.decode, calls.largest_prefill].into_iter().for_each(|v| to.u64(v));
        }
        to.u64(self.noise.len() as u64);
        for ((seq, pos), noise) in &self.noise {
            to.u32(*seq);
            to.u32(*pos);
            to.f64(noise.rms);
            to.byte(u8::from(noise.flipped));
        }
        to.byte(u8::from(self.asked.is_some()));
        self.asked.iter().for_each(|asked| write_asked(&mut to, asked));
        to.0
    }

    /// `None` when the bytes are not what [`Record::write`] makes.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        let (part, injected, logits) = (read_part(&mut from)?, read_part(&mut from)?, read_part(&mut from)?);
        let next = match from.bytes()? {
            [] => None,
            hash => Some(hash.try_into().ok()?),
        };
        let mut record = Self { part, injected, logits, next, ..Self::default() };
        for _ in 0..from.count(32)? {
            let patch = from.text()?.to_string();
            let calls = Calls { prefill: from.u64()?, decode: from.u64()?, largest_prefill: from.u64()? };
            record.calls.insert(patch, calls);
        }
        for _ in 0..from.count(17)? {
            let at = (from.u32()?, from.u32()?);
            let noise = Noise { rms: from.f64()?, flipped: from.byte()? != 0 };
            record.noise.insert(at, noise);
        }
        if from.byte()? != 0 {
            record.asked = Some(read_asked(&mut from)?);
        }
        from.is_done().then_some(record)
    }
}

fn write_asked(to: &mut Writer, asked: &Asked) {
    to.text(&asked.patch_set);
    to.text(&asked.history);
    to.u64(asked.answers.len() as u64);
    for (answer, phase) in asked.answers.iter().zip(&asked.phases) {
        to.u64(answer.seq as u64);
        to.u64(answer.question as u64);
        to.byte(u8::from(*phase == Phase::Decode));
        write_tensor(to, &answer.golden);
        write_tensor(to, &answer.candidate);
    }
}

fn read_asked(from: &mut Reader<'_>) -> Option<Asked> {
    let (patch_set, history) = (from.text()?.to_string(), from.text()?.to_string());
    let mut asked = Asked { patch_set, history, answers: Vec::new(), phases: Vec::new() };
    for _ in 0..from.count(17)? {
        let (seq, question) = (usize::try_from(from.u64()?).ok()?, usize::try_from(from.u64()?).ok()?);
        asked.phases.push(if from.byte()? == 0 { Phase::Prefill } else { Phase::Decode });
        let (golden, candidate) = (read_tensor(from)?, read_tensor(from)?);
        asked.answers.push(Answer { seq, question, golden, candidate });
    }
    Some(asked)
}

fn write_part(to: &mut Writer, part: &Part) {
    rows(to, &part.taps);
    rows(to, &part.derivations);
    rows(to, &part.tokens);
    rows(to, &part.flips);
    to.u64(part.own_errors.len() as u64);
    for (patch, error) in &part.own_errors {
        to.text(patch);
        to.f64(*error);
    }
    to.u64(part.notes.len() as u64);
    part.notes.iter().for_each(|note| to.text(note));
}

fn read_part(from: &mut Reader<'_>) -> Option<Part> {
    let (taps, derivations) = (read_rows(from)?, read_rows(from)?);
    let (tokens, flips) = (read_rows(from)?, read_rows(from)?);
    let own_errors =
        (0..from.count(16)?).map(|_| Some((from.text()?.to_string(), from.f64()?))).collect::<Option<_>>()?;
    let notes = (0..from.count(8)?).map(|_| Some(from.text()?.to_string())).collect::<Option<_>>()?;
    Some(Part { taps, derivations, tokens, flips, own_errors, notes })
}

/// Rows as the cells of the bundle's tables: what reads back from a table reads back from here, bit for bit.
pub(crate) fn rows<R: Row>(to: &mut Writer, rows: &[R]) {
    to.u64(rows.len() as u64);
    for row in rows {
        row.cells().iter().for_each(|cell| to.text(cell));
    }
}

pub(crate) fn read_rows<R: Row>(from: &mut Reader<'_>) -> Option<Vec<R>> {
    let columns = R::COLUMNS.len();
    let n = from.count(8 * columns)?;
    let mut cells = Vec::with_capacity(columns);
    let mut rows = Vec::with_capacity(n);
    for _ in 0..n {
        cells.clear();
        for _ in 0..columns {
            cells.push(from.text()?);
        }
        rows.push(R::from_cells(&cells).ok()?);
    }
    Some(rows)
}
