//! The schedule: which rows are computed in which step and phase.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use karat_model::{Error, Result};
use karat_seam::{Phase, Requests, RowId, Sequence, Span, SpanKind};

use super::{Piece, Program};

/// How a sequence reaches its final context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum History {
    /// Everything before the last generated span in one prefill, that span token by token, what follows in one prefill.
    Cold,
    /// As cold, with every prefill cut into chunks of `size` tokens.
    Chunked {
        /// Tokens in a chunk.
        size: usize,
    },
    /// Every generated span token by token, every prompt span prefilled onto the carried state.
    Decoded,
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cold => f.write_str("cold"),
            Self::Chunked { size } => write!(f, "chunked:{size}"),
            Self::Decoded => f.write_str("decoded"),
        }
    }
}

impl FromStr for History {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            None if text == "cold" => return Ok(Self::Cold),
            None if text == "decoded" => return Ok(Self::Decoded),
            Some(("chunked", size)) => {
                if let Some(size) = size.parse().ok().filter(|n| *n > 0) {
                    return Ok(Self::Chunked { size });
                }
            }
            _ => {}
        }
        Err(Error::usage("unknown history").at("--histories").expected("cold, decoded, chunked:TOKENS").found(text))
    }
}

/// One forward call of the engine: rows `start..end` of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub start: u32,
    pub end: u32,
    pub phase: Phase,
}

/// Consecutive steps of one sequence in one phase: what the row-wise ops run at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Index of the sequence.
    pub seq: u32,
    /// Phase of all steps.
    pub phase: Phase,
    /// The steps; they cover `rows` without gap.
    pub steps: Vec<Step>,
    /// Rows of the streams tensor.
    pub rows: Range<usize>,
    /// True for the last segment of its sequence.
    pub last: bool,
}

/// All segments, sequence by sequence, ascending position.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    pub segments: Vec<Segment>,
    /// Identity of every row.
    pub rows: Vec<RowId>,
    /// Token and phase of every row of a program; empty in the plain form, where the requests and the segments tell.
    known: BTreeMap<RowId, (u32, Phase)>,
}

impl Segment {
    /// First position.
    pub(crate) fn start(&self) -> u32 {
        self.steps[0].start
    }

    /// Segments for some rows of one sequence: a new step wherever position or phase breaks.
    pub(crate) fn of_rows(rows: &[RowId], phase_of: impl Fn(RowId) -> Phase) -> Vec<Self> {
        let mut steps: Vec<Step> = Vec::new();
        for row in rows {
            let phase = phase_of(*row);
            match steps.last_mut() {
                Some(s) if s.phase == phase && s.end == row.pos && phase == Phase::Prefill => s.end += 1,
                _ => steps.push(Step { start: row.pos, end: row.pos + 1, phase }),
            }
        }
        segments(rows.first().map_or(0, |r| r.seq), &steps, 0)
    }
}

impl Schedule {
    /// Steps of every sequence under a history; `chunk` is the most tokens of a prefill step.
    pub(crate) fn new(requests: &Requests, history: History, chunk: Option<usize>) -> Result<Self> {
        let mut out = Self { segments: Vec::new(), rows: requests.rows(), known: BTreeMap::new() };
        let mut at = 0;
        for (seq, sequence) in requests.seqs.iter().enumerate() {
            let steps = steps(sequence, history, chunk)?;
            out.segments.extend(segments(seq as u32, &steps, at));
            at += sequence.ids.len();
        }
        Ok(out)
    }

    /// The pieces of a program, in time order. A piece of several decode rows (verified drafts) is as many steps.
    pub(crate) fn served(program: &Program) -> Self {
        let ends: BTreeSet<usize> = program.ends().into_values().collect();
        let segment = |(j, piece): (usize, &Piece)| {
            let rows = &program.rows[piece.rows.clone()];
            let (first, phase) = (rows[0].id, rows[0].phase);
            let end = first.pos + rows.len() as u32;
            let steps = match phase {
                Phase::Prefill => vec![Step { start: first.pos, end, phase }],
                Phase::Decode => (first.pos..end).map(|p| Step { start: p, end: p + 1, phase }).collect(),
            };
            Segment { seq: first.seq, phase, steps, rows: piece.rows.clone(), last: ends.contains(&j) }
        };
        Self {
            segments: program.pieces().enumerate().map(segment).collect(),
            rows: program.rows.iter().map(|r| r.id).collect(),
            known: program.rows.iter().map(|r| (r.id, (r.token, r.phase))).collect(),
        }
    }

    /// The token of a row of a program.
    pub(crate) fn token_of(&self, row: RowId) -> Option<u32> {
        self.known.get(&row).map(|(token, _)| *token)
    }

    /// Phase of a row; a row that the schedule lacks counts as prefill.
    pub(crate) fn phase_of(&self, row: RowId) -> Phase {
        if let Some((_, phase)) = self.known.get(&row) {
            return *phase;
        }
        self.segments
            .iter()
            .find(|s| s.seq == row.seq && s.start() <= row.pos && row.pos < s.start() + s.rows.len() as u32)
            .map_or(Phase::Prefill, |s| s.phase)
    }

    /// Rows of the largest prefill step.
    pub(crate) fn largest_prefill(&self) -> usize {
        let steps = self.segments.iter().filter(|s| s.phase == Phase::Prefill).flat_map(|s| &s.steps);
        steps.map(|s| (s.end - s.start) as usize).max().unwrap_or(0)
    }
}

/// Joins consecutive steps of one phase; `at` is the row of the first step.
fn segments(seq: u32, steps: &[Step], mut at: usize) -> Vec<Segment> {
    let mut out: Vec<Segment> = Vec::new();
    for step in steps {
        let end = at + (step.end - step.start) as usize;
        match out.last_mut() {
            Some(s) if s.phase == step.phase && s.steps.last().is_some_and(|l| l.end == step.start) => {
                s.steps.push(*step);
                s.rows.end = end;
            }
            _ => out.push(Segment { seq, phase: step.phase, steps: vec![*step], rows: at..end, last: false }),
        }
        at = end;
    }
    if let Some(last) = out.last_mut() {
        last.last = true;
    }
    out
}

fn steps(sequence: &Sequence, history: History, most: Option<usize>) -> Result<Vec<Step>> {
    let spans = checked_spans(sequence)?;
    let last_generated = spans.iter().rposition(|s| s.kind == SpanKind::Generated);
    let chunk = match history {
        History::Chunked { size: 0 } => {
            return Err(Error::usage("a chunk holds at least one token").at("--histories").found("chunked:0"));
        }
        History::Chunked { size } => u32::try_from(size).unwrap_or(u32::MAX),
        History::Cold | History::Decoded => u32::MAX,
    };
    let chunk = chunk.min(most.map_or(u32::MAX, |m| u32::try_from(m).unwrap_or(u32::MAX)));
    let mut out: Vec<Step> = Vec::new();
    let mut open: Option<Range<u32>> = None;
    let flush = |open: &mut Option<Range<u32>>, out: &mut Vec<Step>| {
        let Some(range) = open.take() else { return };
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start.saturating_add(chunk));
            out.push(Step { start, end, phase: Phase::Prefill });
            start = end;
        }
    };
    for (i, span) in spans.iter().enumerate() {
        let decoded = span.kind == SpanKind::Generated && (history == History::Decoded || Some(i) == last_generated);
        if decoded {
            flush(&mut open, &mut out);
            out.extend((span.start..span.end).map(|p| Step { start: p, end: p + 1, phase: Phase::Decode }));
        } else if history == History::Decoded {
            // A prompt span is its own prefill.
            open = Some(span.start..span.end);
            flush(&mut open, &mut out);
        } else {
            open = Some(open.map_or(span.start, |r| r.start)..span.end);
        }
    }
    flush(&mut open, &mut out);
    Ok(out)
}

/// The spans of a sequence, which must cover its ids without gap or overlap.
fn checked_spans(sequence: &Sequence) -> Result<Vec<Span>> {
    let spans: Vec<Span> = sequence.spans().into_iter().filter(|s| s.start != s.end).collect();
    let mut at = 0;
    for span in &spans {
        if span.start != at || span.end < span.start {
            return Err(Error::input("spans don't cover the ids without gap or overlap")
                .at(format!("sequence {}", sequence.id))
                .expected(format!("a span that starts at {at}"))
                .found(format!("{}..{}", span.start, span.end)));
        }
        at = span.end;
    }
    if at as usize != sequence.ids.len() || at == 0 {
        return Err(Error::input("spans don't cover the ids")
            .at(format!("sequence {}", sequence.id))
            .expected("at least one id, and spans up to the last")
            .found(format!("{} ids, spans up to {at}", sequence.ids.len())));
    }
    Ok(spans)
}
