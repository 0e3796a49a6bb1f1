//! A path with a fault in it: the inner path, and a visitor that edits what it computes on the way to the audit's.

use std::sync::Arc;

use karat_model::Checkpoint;
use karat_optimized::Optimized;
use karat_seam::{
    Block, Blocks, Lane, Layer, Op, Path, Phase, Recorder, Requests, Result, RowId, Site, Streams, Tensor, TensorMut,
    Visitor, Want,
};

use crate::{Edit, Fault};

/// A candidate with a fault in it.
pub struct Faulty<'a> {
    pub(crate) inner: &'a Optimized,
    pub(crate) donor: Option<&'a Optimized>,
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) fault: &'static Fault,
}

/// The layers whose ops an edit can run again.
#[derive(Clone, Copy)]
struct Layers<'a> {
    own: Option<&'a dyn Layer>,
    donor: Option<&'a dyn Layer>,
}

impl Faulty<'_> {
    fn lanes(
        &self,
        block: Block,
        layers: Layers<'_>,
        lanes: &mut [Lane<'_>],
        run: impl Fn(&mut [Lane<'_>]) -> Result<Vec<Tensor>>,
    ) -> Result<Vec<Tensor>> {
        if !self.fault.is_in(block) {
            return run(lanes);
        }
        let mut out = Vec::new();
        for lane in lanes {
            let x = lane.x;
            let mut see = Edits { path: self, block, layers, x, seen: Recorder::all(), inner: &mut *lane.see };
            let mut own = [Lane { x, kv: lane.kv, routing: lane.routing, see: &mut see, out: None }];
            out.extend(run(&mut own)?);
            lane.out = own[0].out.take();
        }
        Ok(out)
    }
}

struct Edits<'a> {
    path: &'a Faulty<'a>,
    block: Block,
    layers: Layers<'a>,
    x: &'a Streams,
    seen: Recorder,
    inner: &'a mut dyn Visitor,
}

impl Visitor for Edits<'_> {
    fn want(&self, at: Site) -> Want {
        if at.block == self.block && self.path.fault.taps.contains(&at.tap) {
            return Want::Write;
        }
        // A fault may look at anything that went before.
        match self.inner.want(at) {
            Want::Skip if !at.tap.is_state() => Want::Read,
            wanted => wanted,
        }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], mut tensor: TensorMut<'_>) -> Result<()> {
        let fault = self.path.fault;
        if at.block == self.block && fault.taps.contains(&at.tap) {
            let inner = self.path.inner;
            let mut edit = Edit {
                tap: at.tap,
                fault,
                block: self.block,
                rows,
                tensor: tensor.to_tensor(),
                seen: &self.seen,
                x: self.x,
                own: self.layers.own,
                donor: self.layers.donor,
                checkpoint: &self.path.checkpoint,
                phase_of: &|row| inner.phase_of(row),
                hadamard: [Phase::Prefill, Phase::Decode].map(|p| inner.numerics(p).index.hadamard),
            };
            let is_hit = (0..rows.len()).any(|i| edit.hits(i));
            if let Some(change) = fault.edit.filter(|_| is_hit) {
                change(&mut edit)?;
            }
            edit.write(&mut tensor.data);
        }
        if !at.tap.is_state() {
            self.seen.visit(at, rows, tensor.to_tensor().as_mut())?;
        }
        if self.inner.want(at) == Want::Skip { Ok(()) } else { self.inner.visit(at, rows, tensor) }
    }
}

struct FaultyLayer<'a> {
    path: &'a Faulty<'a>,
    l: u16,
    inner: Box<dyn Layer + 'a>,
    donor: Option<Box<dyn Layer + 'a>>,
}

impl Layer for FaultyLayer<'_> {
    fn run(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        let layers = Layers { own: Some(&*self.inner), donor: self.donor.as_deref() };
        let run = |lanes: &mut [Lane<'_>]| self.inner.run(lanes).map(|()| Vec::new());
        self.path.lanes(Block::Layer(self.l), layers, lanes, run).map(|_| ())
    }

    fn has_op(&self, op: Op) -> bool {
        self.inner.has_op(op)
    }
}

impl Path for Faulty<'_> {
    fn name(&self) -> String {
        format!("{} in {}", self.fault.id, self.inner.name())
    }

    /// Nothing that a faulty path computes is kept in a cache.
    fn identity(&self) -> [u8; 32] {
        [0; 32]
    }

    fn requests(&self) -> &Requests {
        self.inner.requests()
    }

    fn blocks(&self) -> Blocks {
        self.inner.blocks()
    }

    fn phase_of(&self, row: RowId) -> Phase {
        self.inner.phase_of(row)
    }

    fn embed(&self, see: &mut dyn Visitor) -> Result<Streams> {
        self.inner.embed(see)
    }

    fn layer(&self, l: u16) -> Result<Box<dyn Layer + '_>> {
        let needed = self.fault.is_in(Block::Layer(l));
        let donor = self.donor.filter(|_| needed).map(|donor| donor.layer(l)).transpose()?;
        Ok(Box::new(FaultyLayer { path: self, l, inner: self.inner.layer(l)?, donor }))
    }

    fn head(&self, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        let layers = Layers { own: None, donor: None };
        self.lanes(Block::Head, layers, lanes, |lanes| self.inner.head(lanes))
    }
}
