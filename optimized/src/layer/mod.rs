//! A resident layer: all lanes and the whole schedule through one pass over its weights.

mod attention;
mod experts;
mod keys;
mod op;
mod paged;
mod run;
mod taps;
mod weights;

use karat_model::Config;
use karat_model::config::LayerKind;
use karat_seam::{Block, Lane, Layer, Op, Phase, Result, RowId, Tap, Tensor};

pub(crate) use taps::Taps;
pub(crate) use weights::{LayerWeights, vector};

use crate::Optimized;
use crate::ops::rope::Rope;
use crate::plan::Numerics;

/// A layer with its weights.
pub(crate) struct Resident<'p> {
    pub path: &'p Optimized,
    pub l: u16,
    pub kind: LayerKind,
    pub w: LayerWeights,
    pub rope: Rope,
}

impl<'p> Resident<'p> {
    /// Loads layer `l`.
    pub(crate) fn load(path: &'p Optimized, l: u16) -> karat_model::Result<Self> {
        let config = path.config();
        let kind = config.layers[l as usize];
        let w = LayerWeights::load(&path.checkpoint, &path.resolved, l)?;
        Ok(Self { path, l, kind, w, rope: path.rope(kind).clone() })
    }

    fn config(&self) -> &'p Config {
        self.path.config()
    }

    fn rules(&self, phase: Phase) -> &'p Numerics {
        self.path.resolved.rules(phase)
    }

    fn block(&self) -> Block {
        Block::Layer(self.l)
    }

    /// Entries that exist after `n` tokens; they are also those that the query at position n-1 may use.
    fn entries_after(&self, n: usize) -> usize {
        self.kind.ratio().map_or(0, |r| n / r)
    }
}

impl Layer for Resident<'_> {
    fn run(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        self.path.pool.install(|| self.run_lanes(lanes))
    }

    fn op(&self, op: Op, operands: &[(Tap, Tensor)], rows: &[RowId]) -> Result<Vec<(Tap, Tensor)>> {
        self.path.pool.install(|| self.run_op(op, operands, rows))
    }

    fn has_op(&self, op: Op) -> bool {
        match op {
            Op::HeadCollapse | Op::HeadLogits => false,
            Op::CompressProject | Op::CompressPool | Op::Select => self.kind != LayerKind::Sliding,
            Op::IndexProject | Op::IndexPool | Op::IndexQuery | Op::IndexWeights | Op::IndexScore => {
                self.kind.has_indexer()
            }
            _ => true,
        }
    }
}
