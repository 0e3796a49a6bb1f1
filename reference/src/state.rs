//! What a sequence carries through a layer: the minimal state of spec section 3.

use karat_model::Config;
use karat_model::config::LayerKind;
use karat_seam::{Block, DataMut, Result, RowId, Tap, TensorMut, Visitor};

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
}

impl<T> Default for CompressorState<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), pend_kvp: Vec::new(), pend_score: Vec::new(), prev: None }
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
