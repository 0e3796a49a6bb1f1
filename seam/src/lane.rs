//! A lane: one stream of activations through a layer. All lanes of a call share one pass over the weights.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{RowId, Tensor, Visitor};

/// Hyper-connection streams at a layer boundary; always host memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Streams {
    /// Identity of each row, sequence by sequence, ascending position.
    pub rows: Arc<[RowId]>,
    /// `[rows, hc, D]`, F32 (or F64 in the f64 mode).
    pub data: Tensor,
}

/// KV content that a lane attends to.
#[derive(Clone, Copy)]
pub enum Kv<'a> {
    /// The lane's own.
    Own,
    /// Replayed: a bad cache is told from a bad kernel by R at (x', KV').
    Given(&'a dyn KvView),
}

/// The three kinds of KV rows that a layer reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KvPart {
    /// Raw kv `[n,hd]` by position.
    Window,
    /// Compressed entries `[T,hd]`.
    Entries,
    /// Index keys `[T,di]`.
    IndexKeys,
}

/// Rows of one kind of KV.
#[derive(Debug, Clone, Copy)]
pub struct KvRows<'a> {
    /// Position (window) or index (entries, keys) of the first row.
    pub first: u32,
    /// Row-major values, any whole number of rows.
    pub values: &'a [f32],
}

/// KV content of one layer, by sequence.
pub trait KvView: Sync {
    /// The rows, or `None` when the view does not hold them (the lane then uses its own).
    fn rows(&self, seq: u32, part: KvPart) -> Option<KvRows<'_>>;
}

/// Where discrete decisions come from.
#[derive(Clone, Copy)]
pub enum Routing<'a> {
    /// The lane decides.
    Free,
    /// Replayed decisions.
    Forced(&'a Choices),
}

/// Recorded decisions of a run, by layer (MTP blocks follow the layers) and sequence.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choices {
    /// Key: (layer, sequence).
    pub by_layer: BTreeMap<(u16, u32), LayerChoices>,
}

/// Decisions of one layer for one sequence.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LayerChoices {
    /// `[S*K]` experts in slot order; empty when not forced.
    pub experts: Vec<u32>,
    /// For each token the entries it attends to, ascending; empty when not forced.
    pub entries: Vec<Vec<u32>>,
}

/// One stream of activations through one layer.
pub struct Lane<'a> {
    /// Input streams.
    pub x: &'a Streams,
    /// KV content.
    pub kv: Kv<'a>,
    /// Decisions.
    pub routing: Routing<'a>,
    /// Sees every tensor.
    pub see: &'a mut dyn Visitor,
    /// Filled by the layer.
    pub out: Option<LayerOut>,
}

impl<'a> Lane<'a> {
    /// A lane with its own KV and free routing.
    pub fn new(x: &'a Streams, see: &'a mut dyn Visitor) -> Self {
        Self { x, kv: Kv::Own, routing: Routing::Free, see, out: None }
    }
}

/// What a layer leaves in a lane.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerOut {
    /// Output streams, rows as the input's.
    pub streams: Streams,
}
