//! A path with faults in it: the inner path, and a visitor that edits what it computes on the way to the audit's.

use std::sync::{Arc, Mutex, PoisonError};

use karat_model::Checkpoint;
use karat_optimized::Optimized;
use karat_seam::{
    Block, Blocks, Lane, Layer, Op, Path, Phase, Recorder, Requests, Result, RowId, Site, Streams, Tap, Tensor,
    TensorMut, Visitor, Want,
};

use crate::bench::SECOND;
use crate::{Edit, Fault, Size};

/// A candidate with faults in it, or with none.
pub struct Faulty<'a> {
    pub(crate) inner: &'a Optimized,
    pub(crate) checkpoint: Arc<Checkpoint>,
    /// What is put in, one after the other at a tap that several edit.
    pub(crate) faults: Vec<Put<'a>>,
    /// Keeps what the path computes in the blocks that it wants.
    pub(crate) shows: Option<Mutex<Recorder>>,
}

/// One fault of a candidate.
pub(crate) struct Put<'a> {
    pub(crate) fault: &'static Fault,
    /// How much of it.
    pub(crate) size: Size,
    /// The second path whose ops it runs.
    pub(crate) donor: Option<&'a Optimized>,
}

/// The layers whose ops an edit can run again; of the second paths one a fault.
#[derive(Clone, Copy)]
struct Layers<'a> {
    own: Option<&'a dyn Layer>,
    donors: &'a [Option<Box<dyn Layer + 'a>>],
}

impl Faulty<'_> {
    fn is_in(&self, block: Block) -> bool {
        self.faults.iter().any(|put| put.fault.is_in(block))
    }

    fn shows(&self, at: Site) -> bool {
        let wants = |shows: &Mutex<Recorder>| shows.lock().unwrap_or_else(PoisonError::into_inner).want(at);
        self.shows.as_ref().is_some_and(|shows| wants(shows) != Want::Skip)
    }

    /// What was kept of what it computed.
    pub(crate) fn shown(&self) -> Recorder {
        let empty = || Recorder::new(|_| false);
        self.shows.as_ref().map_or_else(empty, |shows| {
            std::mem::replace(&mut *shows.lock().unwrap_or_else(PoisonError::into_inner), empty())
        })
    }

    fn lanes(
        &self,
        block: Block,
        layers: Layers<'_>,
        lanes: &mut [Lane<'_>],
        run: impl Fn(&mut [Lane<'_>]) -> Result<Vec<Tensor>>,
    ) -> Result<Vec<Tensor>> {
        if !self.is_in(block) && ![Tap::Out, Tap::Logits].into_iter().any(|tap| self.shows(Site { block, tap })) {
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
        if self.path.faults.iter().any(|put| put.is_at(at, self.block)) {
            return Want::Write;
        }
        // A fault may look at anything that went before.
        match self.inner.want(at) {
            Want::Skip if !at.tap.is_state() => Want::Read,
            wanted => wanted,
        }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], mut tensor: TensorMut<'_>) -> Result<()> {
        // Of a batch of two the second request is the one that is changed.
        let is_there = |put: &Put<'_>| !put.fault.together || rows.first().is_some_and(|r| r.seq == SECOND);
        let here = |put: &Put<'_>| put.is_at(at, self.block) && is_there(put);
        for (i, put) in self.path.faults.iter().enumerate().filter(|(_, put)| here(put)) {
            let inner = self.path.inner;
            let mut edit = Edit {
                tap: at.tap,
                fault: put.fault,
                block: self.block,
                rows,
                tensor: tensor.to_tensor(),
                seen: &self.seen,
                x: self.x,
                own: self.layers.own,
                donor: self.layers.donors.get(i).and_then(Option::as_deref),
                checkpoint: &self.path.checkpoint,
                phase_of: &|row| inner.phase_of(row),
                hadamard: [Phase::Prefill, Phase::Decode].map(|p| inner.numerics(p).index.hadamard),
            };
            let is_hit = (0..rows.len()).any(|i| edit.hits(i));
            if let Some(change) = put.fault.edit.filter(|_| is_hit) {
                let right = edit.tensor.clone();
                change(&mut edit)?;
                put.size.shrink(&mut edit, &right);
            }
            edit.write(&mut tensor.data);
        }
        if !at.tap.is_state() {
            self.seen.visit(at, rows, tensor.to_tensor().as_mut())?;
            if let Some(shows) = self.path.shows.as_ref().filter(|_| self.path.shows(at)) {
                let mut shows = shows.lock().unwrap_or_else(PoisonError::into_inner);
                shows.visit(at, rows, tensor.to_tensor().as_mut())?;
            }
        }
        if self.inner.want(at) == Want::Skip { Ok(()) } else { self.inner.visit(at, rows, tensor) }
    }
}

impl Put<'_> {
    fn is_at(&self, at: Site, block: Block) -> bool {
        at.block == block && self.fault.is_in(block) && self.fault.taps.contains(&at.tap)
    }
}

struct FaultyLayer<'a> {
    path: &'a Faulty<'a>,
    l: u16,
    inner: Box<dyn Layer + 'a>,
    donors: Vec<Option<Box<dyn Layer + 'a>>>,
}

impl Layer for FaultyLayer<'_> {
    fn run(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        let layers = Layers { own: Some(&*self.inner), donors: &self.donors };
        let run = |lanes: &mut [Lane<'_>]| self.inner.run(lanes).map(|()| Vec::new());
        self.path.lanes(Block::Layer(self.l), layers, lanes, run).map(|_| ())
    }

    fn has_op(&self, op: Op) -> bool {
        self.inner.has_op(op)
    }
}

impl Path for Faulty<'_> {
    fn name(&self) -> String {
        let ids: Vec<&str> = self.faults.iter().map(|put| put.fault.id).collect();
        format!("{} in {}", ids.join(" and "), self.inner.name())
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
        let needed = |put: &Put<'_>| put.fault.is_in(Block::Layer(l));
        let donors = self.faults.iter().map(|put| match put.donor {
            Some(donor) if needed(put) => donor.layer(l).map(Some),
            _ => Ok(None),
        });
        let donors = donors.collect::<Result<Vec<_>>>()?;
        Ok(Box::new(FaultyLayer { path: self, l, inner: self.inner.layer(l)?, donors }))
    }

    fn head(&self, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        let layers = Layers { own: None, donors: &[] };
        self.lanes(Block::Head, layers, lanes, |lanes| self.inner.head(lanes))
    }
}
