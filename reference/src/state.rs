//! What a sequence carries through a layer: the minimal state of spec section 3.

use karat_model::Config;
use karat_model::config::LayerKind;
use karat_seam::{Block, DataMut, Error, KvPart, KvView, Result, RowId, Tap, TensorMut, Visitor};

use crate::eye::Eye;
use crate::linalg::Real;

/// Compressor rows that later entries still need.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Overlap<T> {
    /// `[r,width]` Ca columns of the last complete window.
    pub(crate) kvp: Vec<T>,
    /// `[r,width]` their scores WITH ape.
    pub(crate) score: Vec<T>,
}

/// State of one compressor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CompressorState<T> {
    /// `[T,width]` all entries so far.
    pub(crate) entries: Vec<T>,
    /// `[n mod r, c*width]` rows of the open window.
    pub(crate) pend_kvp: Vec<T>,
    /// `[n mod r, c*width]` their scores WITHOUT ape.
    pub(crate) pend_score: Vec<T>,
    /// CSA after the first window.
    pub(crate) prev: Option<Overlap<T>>,
    /// Entries below this index can't be computed from this state: rows of their windows are not known.
    pub(crate) unknown: usize,
}

impl<T> Default for CompressorState<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), pend_kvp: Vec::new(), pend_score: Vec::new(), prev: None, unknown: 0 }
    }
}

/// State of one layer after `n` tokens of one sequence.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerState<T> {
    /// Tokens so far.
    pub(crate) n: usize,
    /// `[min(n, W-1), hd]` the last raw kv rows.
    pub(crate) win: Vec<T>,
    /// Main compressor.
    pub(crate) main: CompressorState<T>,
    /// The indexer's compressor.
    pub(crate) index: CompressorState<T>,
}

impl<T> Default for LayerState<T> {
    fn default() -> Self {
        Self { n: 0, win: Vec::new(), main: CompressorState::default(), index: CompressorState::default() }
    }
}

impl<T: Real> LayerState<T> {
    /// The state of sequence `seq` before position `n`, as a view holds it, for a run up to position `end`: window rows and
    /// entries. Rows of windows that are open at `n` are in no view: what they complete is left to the view as well.
    ///
    /// Errors: the view lacks one of the `min(n, W-1)` rows before `n`, or one of the entries that exist at `end`.
    pub(crate) fn resumed(
        view: &dyn KvView,
        (seq, n, end): (u32, usize, usize),
        kind: LayerKind,
        config: &Config,
    ) -> Result<Self> {
        let kept = n.min(config.sliding_window - 1);
        let held = |part: KvPart, width: usize, from: usize, to: usize| -> Result<Vec<T>> {
            let lacks = || {
                Error::Request(format!("KV of sequence {seq} lacks {part:?} rows {from} to {to} before position {n}"))
            };
            let rows = view.rows(seq, part).filter(|_| to > from);
            let Some(rows) = rows else { return if to == from { Ok(Vec::new()) } else { Err(lacks()) } };
            let start = from.checked_sub(rows.first as usize).ok_or_else(lacks)? * width;
            let values = rows.values.get(start..start + (to - from) * width).ok_or_else(lacks)?;
            Ok(values.iter().map(|&v| T::of(f64::from(v))).collect())
        };
        let win = held(KvPart::Window, config.head_dim, n - kept, n)?;
        let mut state = Self { n, win, ..Self::default() };
        let Some(r) = kind.ratio() else { return Ok(state) };
        let (overlap, hd, di) = (kind.has_indexer(), config.head_dim, config.index_head_dim);
        let compressor = |part, width| -> Result<CompressorState<T>> {
            held(part, width, 0, end / r)?;
            let columns = if overlap { 2 * width } else { width };
            // Zeros stand for the rows of the open window: only their number counts.
            let pend = vec![T::ZERO; n % r * columns];
            let unknown = n.div_ceil(r) + usize::from(overlap);
            let entries = held(part, width, 0, n / r)?;
            Ok(CompressorState { entries, pend_kvp: pend.clone(), pend_score: pend, prev: None, unknown })
        };
        state.main = compressor(KvPart::Entries, hd)?;
        if overlap {
            state.index = compressor(KvPart::IndexKeys, di)?;
        }
        Ok(state)
    }

    /// Drops all rows: what a run that resumed leaves is in its view.
    pub(crate) fn forget(&mut self) {
        *self = Self { n: self.n, ..Self::default() };
    }

    /// Shows the state after the last of these rows (`state.*` taps), with that row. What the visitor leaves in the
    /// tensors is not kept: the run that they belong to is over.
    pub(crate) fn show(&self, see: &mut dyn Visitor, block: Block, rows: &[RowId], config: &Config) -> Result<()> {
        let kind = match block {
            Block::Layer(l) => config.layers[usize::from(l)],
            Block::Mtp(i) => config.mtp[usize::from(i)],
            Block::Embed | Block::Head => return Ok(()),
        };
        let mut eye = Eye { see, block, rows: &rows[rows.len() - 1..] };
        let n = self.win.len() / config.head_dim;
        eye.state(Tap::StateWin, config.head_dim, &self.win)?;
        let mut positions: Vec<i64> = (self.n - n..self.n).map(|pos| pos as i64).collect();
        eye.whole(Tap::StateWinPos, TensorMut { shape: &[n], data: DataMut::I64(&mut positions) })?;
        if kind == LayerKind::Sliding {
            return Ok(());
        }
        let series = if kind.has_indexer() { 2 } else { 1 };
        let taps = [Tap::StateCkv, Tap::StatePendKvp, Tap::StatePendScore, Tap::StatePrevKvp, Tap::StatePrevScore];
        self.main.show(&mut eye, taps, series, config.head_dim)?;
        if kind.has_indexer() {
            let taps = [
                Tap::StateIndexK,
                Tap::StateIndexPendKvp,
                Tap::StateIndexPendScore,
                Tap::StateIndexPrevKvp,
                Tap::StateIndexPrevScore,
            ];
            self.index.show(&mut eye, taps, series, config.index_head_dim)?;
        }
        Ok(())
    }
}

impl<T: Real> CompressorState<T> {
    fn show(&self, eye: &mut Eye<'_>, taps: [Tap; 5], series: usize, width: usize) -> Result<()> {
        eye.state(taps[0], width, &self.entries)?;
        eye.state(taps[1], series * width, &self.pend_kvp)?;
        eye.state(taps[2], series * width, &self.pend_score)?;
        if let Some(prev) = &self.prev {
            eye.state(taps[3], width, &prev.kvp)?;
            eye.state(taps[4], width, &prev.score)?;
        }
        Ok(())
    }
}
