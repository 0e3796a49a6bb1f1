//! A candidate's KV pages (`state/` taps) of one sequence in one layer.

use std::borrow::Cow;
use std::ops::Range;

use karat_model::{Config, Error, Result};
use karat_seam::{Data, KvPart, KvRows, KvView, Site, Tap, Tensor};
use karat_trace::Trace;

use crate::rotate;

/// What a layer keeps, and how much of it a query reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    /// Tokens an entry stands for; `None` without entries.
    pub(crate) ratio: Option<u32>,
    /// Whether index keys choose among the entries.
    pub(crate) selects: bool,
    /// Width of a window row and of an entry.
    pub(crate) head_dim: usize,
    /// Width of an index key.
    pub(crate) index_dim: usize,
    /// Rows that a query sees before itself.
    pub(crate) before: u32,
}

impl Kept {
    /// Of layer `l`.
    pub(crate) fn of(config: &Config, l: u16) -> Self {
        let kind = config.layers[usize::from(l)];
        Self {
            ratio: kind.ratio().map(|r| r as u32),
            selects: kind.has_indexer(),
            head_dim: config.head_dim,
            index_dim: config.index_head_dim,
            before: config.sliding_window as u32 - 1,
        }
    }

    /// The kinds of rows with their taps, widths and the tap of the compressor rows (or window rows) that make them.
    pub(crate) fn parts(self) -> Vec<(KvPart, Tap, usize, Tap)> {
        let mut parts = vec![(KvPart::Window, Tap::StateWin, self.head_dim, Tap::AttnKv)];
        parts.extend(self.ratio.map(|_| (KvPart::Entries, Tap::StateCkv, self.head_dim, Tap::AttnKvp)));
        parts.extend(self.selects.then_some((KvPart::IndexKeys, Tap::StateIndexK, self.index_dim, Tap::AttnIndexKvp)));
        parts
    }
}

/// Window rows by position, entries and index keys from the first, all after the last step.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Pages {
    /// Positions of the window rows, ascending.
    pub(crate) positions: Vec<u32>,
    pub(crate) window: Vec<f32>,
    pub(crate) entries: Vec<f32>,
    pub(crate) keys: Vec<f32>,
}

impl Pages {
    /// What a trace holds; `None` where it lacks a kind of rows that the layer keeps. Keys of an indexer that rotates them
    /// are rotated back (the rotation is its own inverse).
    ///
    /// Errors (input): another width or number of rows than the model has; positions that are none.
    pub(crate) fn read(trace: &Trace, (l, seq): (u16, u32), kept: Kept, rotated: bool) -> Result<Option<Self>> {
        let mut pages = Self::default();
        let tokens = trace.requests().seqs[seq as usize].ids.len() as u32;
        for (part, tap, width, _) in kept.parts() {
            let site = Site::layer(l, tap);
            if !trace.holds(site, seq, 0) {
                return Ok(None);
            }
            let tensor = narrow(trace.tensor(site, seq, 0)?);
            let fail = |what: &str| Error::input(what).at(site).at(trace.label());
            if tensor.width() != width {
                return Err(fail("KV rows of another width").expected(width).found(tensor.width()));
            }
            let n = tensor.rows();
            if part == KvPart::Window {
                pages.positions = positions(trace, (l, seq), n, tokens)?;
            } else if n as u32 != tokens / kept.ratio.unwrap_or(1) {
                let whole = tokens / kept.ratio.unwrap_or(1);
                return Err(fail("KV content is not that after the last position").expected(whole).found(n));
            }
            let flags = vec![rotated && part == KvPart::IndexKeys; n];
            let Data::F32(values) = rotate::rows(Cow::Owned(tensor), &flags).into_owned().data else { continue };
            *pages.of(part) = values;
        }
        Ok(Some(pages))
    }

    /// Rows of a kind.
    pub(crate) fn of(&mut self, part: KvPart) -> &mut Vec<f32> {
        match part {
            KvPart::Window => &mut self.window,
            KvPart::Entries => &mut self.entries,
            KvPart::IndexKeys => &mut self.keys,
        }
    }

    /// Rows of a kind, to read.
    pub(crate) fn rows(&self, part: KvPart) -> &[f32] {
        match part {
            KvPart::Window => &self.window,
            KvPart::Entries => &self.entries,
            KvPart::IndexKeys => &self.keys,
        }
    }

    /// True when the rows that queries from position `first` on see before them are here.
    pub(crate) fn reaches(&self, first: u32, kept: Kept) -> bool {
        self.run(first.saturating_sub(kept.before), first).is_some()
    }

    /// Places of window rows from one position up to another; `None` when one is missing.
    fn run(&self, from: u32, to: u32) -> Option<Range<usize>> {
        let start = self.positions.partition_point(|p| *p < from);
        let end = start + (to - from) as usize;
        // Ascending, each once: the right ends mean that nothing lacks between.
        let whole =
            to == from || (self.positions.get(start) == Some(&from) && self.positions.get(end - 1) == Some(&(to - 1)));
        whole.then_some(start..end)
    }

    /// What queries at these positions see.
    pub(crate) fn view(&self, seq: u32, run: Range<u32>, kept: Kept) -> View<'_> {
        let first = run.start.saturating_sub(kept.before);
        let mut end = run.end;
        // Rows of the queries themselves are overlaid as far as they are here.
        let places = loop {
            match self.run(first, end) {
                Some(places) => break places,
                None if end > first => end -= 1,
                None => break 0..0,
            }
        };
        let window = &self.window[places.start * kept.head_dim..places.end * kept.head_dim];
        View { seq, first, window, entries: &self.entries, keys: &self.keys, kept }
    }
}

/// The pages as one run of queries sees them.
pub(crate) struct View<'a> {
    seq: u32,
    first: u32,
    window: &'a [f32],
    entries: &'a [f32],
    keys: &'a [f32],
    kept: Kept,
}

impl KvView for View<'_> {
    fn rows(&self, seq: u32, part: KvPart) -> Option<KvRows<'_>> {
        let (first, values) = match part {
            KvPart::Window => (self.first, self.window),
            KvPart::Entries => (0, self.entries),
            KvPart::IndexKeys => (0, self.keys),
        };
        let is_kept = self.kept.parts().iter().any(|(kept, ..)| *kept == part);
        (seq == self.seq && is_kept).then_some(KvRows { first, values })
    }
}

/// `win_pos`, or the last positions of the sequence where that is missing.
fn positions(trace: &Trace, (l, seq): (u16, u32), n: usize, tokens: u32) -> Result<Vec<u32>> {
    let site = Site::layer(l, Tap::StateWinPos);
    if !trace.holds(site, seq, 0) {
        return Ok((tokens.saturating_sub(n as u32)..tokens).collect());
    }
    let tensor = trace.tensor(site, seq, 0)?;
    let fail = |what: &str| Error::input(what).at(site).at(trace.label());
    let values = tensor.as_i64("positions").map_err(|e| fail("positions are no integers").found(e))?;
    if values.len() != n {
        return Err(fail("window rows and their positions are not equally many").expected(n).found(values.len()));
    }
    let inside = |p: &i64| u32::try_from(*p).ok().filter(|p| *p < tokens);
    let Some(all) = values.iter().map(inside).collect::<Option<Vec<u32>>>() else {
        return Err(
            fail("a position lies outside of the sequence").expected(format!("0 to {}", tokens.saturating_sub(1)))
        );
    };
    if !all.is_sorted_by(|a, b| a < b) {
        return Err(fail("positions are not ascending, each once"));
    }
    Ok(all)
}

fn narrow(tensor: Tensor) -> Tensor {
    crate::align::narrow(Cow::Owned(tensor)).into_owned()
}
