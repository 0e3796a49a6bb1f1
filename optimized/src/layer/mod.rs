//! A resident layer: all lanes and the whole schedule through one pass over its weights.

mod attention;
mod experts;
mod keys;
mod op;
mod paged;
mod run;
mod taps;
mod weights;

use std::sync::Arc;

use karat_model::Config;
use karat_model::checkpoint::Pages;
use karat_model::config::LayerKind;
use karat_seam::{Block, Lane, Layer, Op, Phase, Result, RowId, Tap, Tensor};

pub(crate) use run::run_lanes;
pub(crate) use taps::Taps;
pub(crate) use weights::{LayerWeights, Loads, vector};

use crate::Optimized;
use crate::ops::rope::Rope;
use crate::plan::Numerics;

/// A layer of one path with its weights, which paths that run together share.
pub(crate) struct Resident<'p> {
    pub path: &'p Optimized,
    pub l: u16,
    pub kind: LayerKind,
    pub w: Arc<LayerWeights>,
    pub rope: Rope,
    /// What was read of the file is given back with the layer.
    _pages: Pages<'p>,
}

/// The block with a number: layers, then MTP blocks.
fn block_of(config: &Config, l: u16) -> Block {
    let layers = config.layers.len() as u16;
    if l < layers { Block::Layer(l) } else { Block::Mtp(l - layers) }
}

/// What that block keeps besides its window.
fn kind_of(config: &Config, l: u16) -> LayerKind {
    match block_of(config, l) {
        Block::Mtp(i) => config.mtp[usize::from(i)],
        _ => config.layers[usize::from(l)],
    }
}

/// Prefix of that block's tensors.
fn name_of(config: &Config, l: u16) -> String {
    match block_of(config, l) {
        Block::Mtp(i) => format!("mtp.{i}"),
        _ => format!("layers.{l}"),
    }
}

impl<'p> Resident<'p> {
    /// Loads layer `l`; MTP blocks follow the layers.
    pub(crate) fn load(path: &'p Optimized, l: u16) -> karat_model::Result<Self> {
        let loads = &path.shared.loads;
        // Before anything is read: the pages of a layer that can't be loaded are given back too.
        let _pages = path.checkpoint.pages(&name_of(path.config(), l));
        let w = loads.timed(|| LayerWeights::load(&path.checkpoint, &[&path.resolved], l, loads))?;
        Ok(Self::with(path, l, Arc::new(w)))
    }

    /// Layer `l` with weights in the forms that the path's plan needs.
    pub(crate) fn with(path: &'p Optimized, l: u16, w: Arc<LayerWeights>) -> Self {
        let kind = kind_of(path.config(), l);
        let pages = path.checkpoint.pages(&name_of(path.config(), l));
        Self { path, l, kind, w, rope: path.rope(kind).clone(), _pages: pages }
    }

    fn config(&self) -> &'p Config {
        self.path.config()
    }

    fn rules(&self, phase: Phase) -> &'p Numerics {
        self.path.resolved.rules(phase)
    }

    fn block(&self) -> Block {
        block_of(self.config(), self.l)
    }

    /// Entries that exist after `n` tokens; they are also those that the query at position n-1 may use.
    fn entries_after(&self, n: usize) -> usize {
        self.kind.ratio().map_or(0, |r| n / r)
    }
}

impl Layer for Resident<'_> {
    fn run(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        let residents = vec![self; lanes.len()];
        self.path.adder.checked(self.path.pool().install(|| run_lanes(&residents, lanes)))
    }

    fn op(&self, op: Op, operands: &[(Tap, Tensor)], rows: &[RowId]) -> Result<Vec<(Tap, Tensor)>> {
        self.path.adder.checked(self.path.pool().install(|| self.run_op(op, operands, rows)))
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
