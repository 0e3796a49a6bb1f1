//! What a sequence carries through a layer: the minimal state of spec section 3.

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
