//! The trait that golden, contracts, kernels and imported traces implement.

use crate::{Error, Op};
use crate::{Lane, LayerOut, OpSpec, Phase, Requests, Result, RowId, Streams, Tap, Tensor, Visitor};

/// How many blocks a path has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Transformer layers.
    pub layers: u16,
    /// Multi-token-prediction blocks.
    pub mtp: u16,
}

/// One way to compute the forward pass of a fixed set of requests.
pub trait Path: Sync {
    /// A name for messages: `golden`, `optimized`, `trace DIR`.
    fn name(&self) -> String;

    /// Hash of weights, requests, variant, numeric mode and numerics version: the cache key.
    fn identity(&self) -> [u8; 32];

    /// Hash of everything that what layer `l` makes of given streams follows from; the whole identity unless the path
    /// knows better. Paths that differ in other layers only may share it.
    fn layer_identity(&self, _l: u16) -> [u8; 32] {
        self.identity()
    }

    /// How far its products may be from exact, in parts of the sum of their terms' sizes, where the path states it: its floor is
    /// never under that. 0: only a run in f64 says how far it is.
    fn floor(&self) -> f64 {
        0.0
    }

    /// What the client did.
    fn requests(&self) -> &Requests;

    /// How many layers and MTP blocks there are.
    fn blocks(&self) -> Blocks;

    /// In which phase this path computes a row. A cold run is one prefill.
    fn phase_of(&self, _row: RowId) -> Phase {
        Phase::Prefill
    }

    /// Embeds every row of the path's schedule: streams `[rows, hc, D]`. Taps: `embed`.
    fn embed(&self, see: &mut dyn Visitor) -> Result<Streams>;

    /// Loads a layer; its weights stay resident until the returned value is dropped. MTP blocks follow the layers, as in
    /// [`crate::Choices`]: such a number is block `mtp.i` between its input and its head.
    fn layer(&self, l: u16) -> Result<Box<dyn Layer + '_>>;

    /// Final head: logits `[rows, V]` a lane. Taps: `h_final`, `head.collapsed`, `logits`.
    fn head(&self, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>>;

    /// The streams that enter MTP block `i`, out of those that enter the head; fills `lane.out`. `next` holds, for each
    /// row, the id at the next position (spec 2.14). Taps: `mtp.i.embed`, `mtp.i.in`.
    fn mtp_input(&self, i: u16, _lanes: &mut [Lane<'_>], _next: &[u32]) -> Result<()> {
        Err(Error::Unsupported { what: format!("mtp.{i}"), by: self.name() })
    }

    /// Head of MTP block `i` on the streams that leave its layer: logits `[rows, V]` a lane. Taps: `mtp.i.h_final`,
    /// `mtp.i.head.collapsed`, `mtp.i.logits`.
    fn mtp_head(&self, i: u16, _lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        Err(Error::Unsupported { what: format!("mtp.{i}"), by: self.name() })
    }

    /// MTP block `i` in one piece, on the streams that enter the head: its input, its layer, its head. Logits `[rows, V]`
    /// a lane. Taps: `mtp.i.*`.
    fn mtp(&self, i: u16, lanes: &mut [Lane<'_>], next: &[u32]) -> Result<Vec<Tensor>> {
        let left = |lane: Option<LayerOut>| match lane {
            Some(out) => Ok(out.streams),
            None => Err(Error::Request(format!("mtp.{i} gave no streams"))),
        };
        self.mtp_input(i, lanes, next)?;
        let entered: Vec<Streams> = lanes.iter_mut().map(|lane| left(lane.out.take())).collect::<Result<_>>()?;
        let mut inner: Vec<Lane<'_>> = lanes
            .iter_mut()
            .zip(&entered)
            .map(|(lane, x)| Lane { kv: lane.kv, routing: lane.routing, ..Lane::new(x, &mut *lane.see) })
            .collect();
        self.layer(self.blocks().layers + i)?.run(&mut inner)?;
        let outs: Vec<Streams> = inner.into_iter().map(|lane| left(lane.out)).collect::<Result<_>>()?;
        let mut ends: Vec<Lane<'_>> =
            lanes.iter_mut().zip(&outs).map(|(lane, x)| Lane::new(x, &mut *lane.see)).collect();
        self.mtp_head(i, &mut ends)
    }

    /// The block as data.
    fn graph(&self) -> &'static [OpSpec] {
        OpSpec::graph()
    }
}

/// Paths over one model that can be run side by side, so that each weight is loaded once for all of them.
pub trait Together: Sync {
    /// Runs `lanes[i]` through layer `l` of member `members[i]` in ONE weight pass, and fills `lane.out`. The result of
    /// each lane has the same bits as if its member had run alone.
    fn layer(&self, l: u16, members: &[usize], lanes: &mut [Lane<'_>]) -> Result<()>;

    /// As [`Together::layer`], the final head.
    fn head(&self, members: &[usize], lanes: &mut [Lane<'_>]) -> Result<()>;

    /// As [`Together::layer`], the input of MTP block `i`: see [`Path::mtp_input`]. All lanes have the same rows.
    fn mtp_input(&self, i: u16, _members: &[usize], _lanes: &mut [Lane<'_>], _next: &[u32]) -> Result<()> {
        Err(Error::Unsupported { what: format!("mtp.{i}"), by: "these paths together".into() })
    }

    /// As [`Together::layer`], the head of MTP block `i`: see [`Path::mtp_head`].
    fn mtp_head(&self, i: u16, _members: &[usize], _lanes: &mut [Lane<'_>]) -> Result<()> {
        Err(Error::Unsupported { what: format!("mtp.{i}"), by: "these paths together".into() })
    }
}

/// A resident layer.
pub trait Layer: Sync {
    /// Runs all lanes through ONE weight pass and fills `lane.out`.
    fn run(&self, lanes: &mut [Lane<'_>]) -> Result<()>;

    /// Runs one op on given operands: `R` on the candidate's operands. `rows` are the rows of ONE sequence, a whole
    /// cold run of it from position 0 for ops that read entries. Operands and results are in graph order.
    fn op(&self, op: Op, _operands: &[(Tap, Tensor)], _rows: &[RowId]) -> Result<Vec<(Tap, Tensor)>> {
        Err(Error::Unsupported { what: format!("op {}", op.spec().name), by: "this path".into() })
    }

    /// Whether this layer has the op (a sliding layer has no compressor, an HCA layer no indexer).
    fn has_op(&self, op: Op) -> bool;
}
