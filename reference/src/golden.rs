//! The golden path: a cold run of every sequence, each one prefill.

use std::ops::Range;
use std::sync::Arc;

use karat_model::checkpoint::Pages;
use karat_model::config::LayerKind;
use karat_model::{Checkpoint, Config, Error as ModelError};
use karat_seam::{
    Block, Blocks, Error, Kv, Lane, Layer, LayerOut, Path, Requests, Result, Routing, RowId, Streams, Tap, Tensor,
    Visitor,
};
use sha2::{Digest, Sha256};

use crate::backend::{Backend, Slot};
use crate::block::Part;
use crate::eye::Eye;
use crate::layer::{GoldenLayer, ids_of, sequences, streams_of, visitors};
use crate::linalg::{Isa, NUMERICS_VERSION, Pool, Real};
use crate::made::{Made, Shown};
use crate::ops::head::{HeadTable, HeadWeights, head_collapse, head_logits};
use crate::ops::rope::Rope;
use crate::ops::{Ctx, embed, mtp_input::mtp_input};
use crate::state::LayerState;
use crate::weights::{BlockWeights, Loader};

/// Which numbers the golden path computes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The golden reference.
    F32,
    /// The same formulas in f64, to measure the floor. Decisions are the caller's to force.
    F64,
}

/// The golden forward pass over one checkpoint and one set of requests (spec 2).
pub struct Golden {
    checkpoint: Arc<Checkpoint>,
    requests: Requests,
    mode: Mode,
    pool: Pool,
    plain: Rope,
    yarn: Rope,
    identity: [u8; 32],
    /// Computes the ops in our place.
    backend: Option<Slot>,
}

impl Golden {
    /// Checks the requests against the vocabulary and starts `threads` threads (at least one). Weights are read later.
    ///
    /// # Errors
    /// An empty sequence, or an id at or past the vocabulary (input errors).
    pub fn new(
        checkpoint: Arc<Checkpoint>,
        requests: Requests,
        mode: Mode,
        threads: usize,
    ) -> karat_model::Result<Self> {
        let config = checkpoint.config();
        for sequence in &requests.seqs {
            if sequence.ids.is_empty() {
                return Err(ModelError::input("a sequence has no ids").at(format!("sequence `{}`", sequence.id)));
            }
            check_ids(config, &sequence.ids, 0).map_err(|e| e.at(format!("sequence `{}`", sequence.id)))?;
        }
        let (plain, yarn) = (Rope::plain(config), Rope::yarn(config));
        let pool = Pool::new(threads)?;
        let identity = identity(&checkpoint, &requests, mode);
        Ok(Self { checkpoint, requests, mode, pool, plain, yarn, identity, backend: None })
    }

    /// The same on another instruction set, if this machine has it: for measurements, since no bit depends on it.
    #[must_use]
    pub fn on(mut self, isa: Isa) -> Self {
        self.pool.take(isa);
        self
    }

    /// The same with its ops on a backend (f32 mode only: nothing else leaves this processor). Another identity: equal bits
    /// are what a backend promises, not what is known of it.
    #[must_use]
    pub fn computed_by(mut self, backend: Option<Arc<dyn Backend>>) -> Self {
        if let Some(backend) = backend.filter(|_| self.mode == Mode::F32) {
            let mut hash = Sha256::new();
            hash.update(self.identity);
            hash.update(backend.identity());
            self.identity = hash.finalize().into();
            self.backend = Some(Slot::new(backend));
        }
        self
    }

    /// What the ops left, unless the backend failed.
    pub(crate) fn checked<R>(&self, done: Result<R>) -> Result<R> {
        match &self.backend {
            Some(slot) => slot.check().map_err(Error::source).and(done),
            None => done,
        }
    }

    /// The model's config.
    pub fn config(&self) -> &Config {
        self.checkpoint.config()
    }

    /// Which numbers it computes in.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn ctx(&self) -> Ctx<'_> {
        Ctx { backend: self.backend.as_ref(), ..Ctx::new(self.checkpoint.config(), self.pool.isa()) }
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn rope(&self, kind: LayerKind) -> &Rope {
        if kind == LayerKind::Sliding { &self.plain } else { &self.yarn }
    }

    pub(crate) fn loader(&self, prefix: impl Into<String>) -> Loader<'_> {
        Loader::new(&self.checkpoint, prefix, self.pool.isa())
    }

    /// A layer's weights; MTP blocks follow the layers. `keep` holds every expert once decoded.
    pub(crate) fn block<T: Real>(&self, l: usize, keep: bool) -> Result<BlockWeights<'_, T>> {
        let (layers, mtp) = (&self.config().layers, &self.config().mtp);
        let kind = layers.iter().chain(mtp).nth(l).ok_or_else(|| self.missing(format!("layer {l}")))?;
        let hash = l < layers.len() && self.config().is_hash_layer(l);
        let load = || self.loader(self.prefix(l)).block(*kind, hash, keep);
        self.pool.install(load).map_err(Error::source)
    }

    /// Prefix of a block's tensors.
    fn prefix(&self, l: usize) -> String {
        match l.checked_sub(self.config().layers.len()) {
            None => format!("layers.{l}"),
            Some(i) => format!("mtp.{i}"),
        }
    }

    /// Marks a block as in use; the block after it is read ahead.
    pub(crate) fn pages(&self, l: usize) -> Pages<'_> {
        self.checkpoint.fetch(&self.prefix(l + 1));
        self.checkpoint.pages(&self.prefix(l))
    }

    fn missing(&self, what: String) -> Error {
        Error::Unsupported { what, by: self.name() }
    }

    /// The table of the head, still encoded: `[V,D]`.
    pub(crate) fn head_table<T: Real>(&self) -> Result<HeadTable<'_, T>> {
        let c = self.config();
        self.loader("").decoder("head", c.vocab_size, c.hidden_size).map(HeadTable::Stored).map_err(Error::source)
    }

    /// Token embeddings `[S,D]` before the streams, shown to the visitor.
    pub(crate) fn embed_rows<T: Real>(
        &self,
        block: Block,
        rows: &[RowId],
        ids: &[u32],
        see: &mut dyn Visitor,
    ) -> Result<Vec<T>> {
        let c = self.config();
        let table = self.loader("").decoder("embed", c.vocab_size, c.hidden_size).map_err(Error::source)?;
        let mut x = embed::lookup(&table, ids).map_err(Error::source)?;
        Eye { see, block, rows }.tap(Tap::Embed, &[c.hidden_size], &mut x)?;
        Ok(x)
    }

    fn embed_all<T: Real>(&self, see: &mut dyn Visitor) -> Result<Streams> {
        let c = self.config();
        let rows = self.requests.rows();
        let mut h = Vec::new();
        for range in sequences(&rows, false)? {
            let rows = &rows[range];
            let ids = &self.requests.seqs[rows[0].seq as usize].ids;
            let x: Vec<T> = self.embed_rows(Block::Embed, rows, ids, see)?;
            h.extend(embed::expand(&x, c.hidden_size, c.hc_mult));
        }
        Ok(streams_of(rows.into(), c, h))
    }

    /// The embedding of some rows of the requests, in runs of consecutive positions, shown run by run.
    ///
    /// # Errors
    /// A position that the requests don't have; what the visitor returns.
    pub fn embed_at(&self, rows: &Arc<[RowId]>, see: &mut dyn Visitor) -> Result<Streams> {
        let done = self.pool.install(|| match self.mode {
            Mode::F32 => self.embed_some::<f32>(rows, see),
            Mode::F64 => self.embed_some::<f64>(rows, see),
        });
        self.checked(done)
    }

    fn embed_some<T: Real>(&self, rows: &Arc<[RowId]>, see: &mut dyn Visitor) -> Result<Streams> {
        let c = self.config();
        let mut h = Vec::new();
        for run in rows.chunk_by(|a, b| a.seq == b.seq && a.pos + 1 == b.pos) {
            let x: Vec<T> = self.embed_rows(Block::Embed, run, self.ids(run)?, see)?;
            h.extend(embed::expand(&x, c.hidden_size, c.hc_mult));
        }
        Ok(streams_of(rows.clone(), c, h))
    }

    /// Head of all lanes, one pass over the table: streams `[rows,hc,D]` to logits `[rows,V]`.
    pub(crate) fn head_lanes<T: Real>(
        &self,
        block: Block,
        w: &HeadWeights<T>,
        table: &HeadTable<'_, T>,
        sees: &mut [&mut dyn Visitor],
        lanes: &[HeadLane<'_, T>],
    ) -> Result<Vec<Made<T>>> {
        let (ctx, c) = (self.ctx(), self.config());
        let (d, v) = (c.hidden_size, c.vocab_size);
        let mut collapsed = Vec::new();
        for (lane, see) in lanes.iter().zip(sees.iter_mut()) {
            let mut h = Made::from(lane.h.to_vec());
            lane.show(&mut **see, block, Tap::HFinal, &[c.hc_mult, d], &mut h)?;
            let mut x = head_collapse(ctx, w, &h);
            lane.show(&mut **see, block, Tap::HeadCollapsed, &[d], &mut x)?;
            collapsed.push(x);
        }
        let inputs: Vec<&[T]> = collapsed.iter().map(|x: &Made<T>| &**x).collect();
        let mut logits = head_logits(ctx, w, table, &inputs).map_err(Error::source)?;
        for ((logits, lane), see) in logits.iter_mut().zip(lanes).zip(sees.iter_mut()) {
            lane.show(&mut **see, block, Tap::Logits, &[v], logits)?;
        }
        Ok(logits)
    }

    fn model_head<T: Real>(&self, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        self.head_typed(Block::Head, &self.loader("").head::<T>().map_err(Error::source)?, lanes)
    }

    fn head_typed<T: Real>(&self, block: Block, w: &HeadWeights<T>, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        let mut inputs = Vec::new();
        for lane in lanes.iter() {
            let rows = &*lane.x.rows;
            // Rows don't meet in the head: they may begin anywhere.
            inputs.push(HeadLane { rows, ranges: sequences(rows, true)?, h: self.streams(lane.x)? });
        }
        let logits = self.head_lanes(block, w, &self.head_table()?, &mut visitors(lanes), &inputs)?;
        Ok(self.logits(logits))
    }

    /// A lane's streams, checked.
    pub(crate) fn streams<'s, T: Real>(&self, x: &'s Streams) -> Result<&'s [T]> {
        let c = self.config();
        let expected = vec![x.rows.len(), c.hc_mult, c.hidden_size];
        if x.data.shape != expected {
            return Err(Error::Shape { at: "streams".into(), expected, found: x.data.shape.clone() });
        }
        T::values(&x.data, "streams")
    }

    fn mtp_input_typed<T: Real>(&self, i: u16, lanes: &mut [Lane<'_>], next: &[u32]) -> Result<()> {
        let (ctx, c) = (self.ctx(), self.config());
        if usize::from(i) >= c.mtp.len() {
            return Err(self.missing(format!("mtp.{i}")));
        }
        check_ids(c, next, 0).map_err(|e| Error::source(e.at("next ids")))?;
        let input = self.loader(format!("mtp.{i}")).mtp::<T>().map_err(Error::source)?;
        let block = Block::Mtp(i);
        let stride = c.hc_mult * c.hidden_size;
        for lane in lanes {
            if next.len() != lane.x.rows.len() {
                let (found, expected) = (vec![next.len()], vec![lane.x.rows.len()]);
                return Err(Error::Shape { at: format!("mtp.{i}: next ids"), expected, found });
            }
            let h = self.streams::<T>(lane.x)?;
            let mut out = Vec::with_capacity(h.len());
            for range in sequences(&lane.x.rows, false)? {
                let rows = &lane.x.rows[range.clone()];
                let e: Vec<T> = self.embed_rows(block, rows, &next[range.clone()], &mut *lane.see)?;
                let mut x = mtp_input(ctx, &input, &e, &h[range.start * stride..range.end * stride]);
                Eye { see: &mut *lane.see, block, rows }.tap(Tap::In, &[c.hc_mult, c.hidden_size], &mut x)?;
                out.extend_from_slice(&x);
            }
            lane.out = Some(LayerOut { streams: streams_of(lane.x.rows.clone(), c, out) });
        }
        Ok(())
    }

    fn mtp_head_typed<T: Real>(&self, i: u16, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        if usize::from(i) >= self.config().mtp.len() {
            return Err(self.missing(format!("mtp.{i}")));
        }
        let w = self.loader(format!("mtp.{i}")).head::<T>().map_err(Error::source)?;
        self.head_typed(Block::Mtp(i), &w, lanes)
    }

    fn logits<T: Real>(&self, lanes: Vec<Made<T>>) -> Vec<Tensor> {
        let v = self.config().vocab_size;
        lanes.into_iter().map(|logits| T::tensor(vec![logits.len() / v, v], logits.into_vec())).collect()
    }
}

/// What goes into the head in one lane.
pub(crate) struct HeadLane<'a, T> {
    /// The rows.
    pub(crate) rows: &'a [RowId],
    /// The rows of each sequence.
    pub(crate) ranges: Vec<Range<usize>>,
    /// `[rows,hc,D]`
    pub(crate) h: &'a [T],
}

impl<T: Real> HeadLane<'_, T> {
    /// Shows a tensor `[rows, tail...]` sequence by sequence.
    fn show(&self, see: &mut dyn Visitor, block: Block, tap: Tap, tail: &[usize], made: &mut Made<T>) -> Result<()> {
        let width: usize = tail.iter().product();
        let Shown { values, there } = made.behind(0);
        for range in &self.ranges {
            let mut eye = Eye { see: &mut *see, block, rows: &self.rows[range.clone()] };
            let range = range.start * width..range.end * width;
            let there = there.as_ref().map(|there| there.part(range.clone()));
            eye.tap(tap, tail, Shown { values: &mut values[range], there })?;
        }
        Ok(())
    }
}

/// Refuses an id at or past the vocabulary; `first` is the position of the first id.
pub(crate) fn check_ids(config: &Config, ids: &[u32], first: usize) -> karat_model::Result<()> {
    match ids.iter().position(|&id| id as usize >= config.vocab_size) {
        None => Ok(()),
        Some(i) => Err(ModelError::input("an id is past the vocabulary")
            .at(format!("position {}", first + i))
            .expected(format!("ids below {}", config.vocab_size))
            .found(ids[i])
            .hint("are these ids from this model's tokenizer?")),
    }
}

fn identity(checkpoint: &Checkpoint, requests: &Requests, mode: Mode) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"karat golden");
    hash.update(NUMERICS_VERSION.to_le_bytes());
    hash.update(match mode {
        Mode::F32 => f32::MODE,
        Mode::F64 => f64::MODE,
    });
    hash.update(checkpoint.config_sha256());
    hash.update(checkpoint.weights_sha256());
    hash.update((requests.seqs.len() as u64).to_le_bytes());
    for sequence in &requests.seqs {
        hash.update((sequence.ids.len() as u64).to_le_bytes());
        for id in sequence.ids.iter() {
            hash.update(id.to_le_bytes());
        }
    }
    hash.finalize().into()
}

impl Path for Golden {
    fn name(&self) -> String {
        match (&self.backend, self.mode) {
            (Some(slot), _) => format!("golden on {}", slot.backend().name()),
            (None, Mode::F32) => "golden".into(),
            (None, Mode::F64) => "golden f64".into(),
        }
    }

    fn identity(&self) -> [u8; 32] {
        self.identity
    }

    fn floor(&self) -> f64 {
        self.backend.as_ref().map_or(0.0, |slot| slot.backend().floor())
    }

    fn requests(&self) -> &Requests {
        &self.requests
    }

    fn blocks(&self) -> Blocks {
        Blocks { layers: self.config().layers.len() as u16, mtp: self.config().mtp.len() as u16 }
    }

    fn embed(&self, see: &mut dyn Visitor) -> Result<Streams> {
        self.pool.install(|| match self.mode {
            Mode::F32 => self.embed_all::<f32>(see),
            Mode::F64 => self.embed_all::<f64>(see),
        })
    }

    fn layer(&self, l: u16) -> Result<Box<dyn Layer + '_>> {
        Ok(match self.mode {
            Mode::F32 => Box::new(GoldenLayer::<f32>::load(self, l)?),
            Mode::F64 => Box::new(GoldenLayer::<f64>::load(self, l)?),
        })
    }

    fn head(&self, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        let done = self.pool.install(|| match self.mode {
            Mode::F32 => self.model_head::<f32>(lanes),
            Mode::F64 => self.model_head::<f64>(lanes),
        });
        self.checked(done)
    }

    fn mtp_input(&self, i: u16, lanes: &mut [Lane<'_>], next: &[u32]) -> Result<()> {
        let done = self.pool.install(|| match self.mode {
            Mode::F32 => self.mtp_input_typed::<f32>(i, lanes, next),
            Mode::F64 => self.mtp_input_typed::<f64>(i, lanes, next),
        });
        self.checked(done)
    }

    fn mtp_head(&self, i: u16, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        let done = self.pool.install(|| match self.mode {
            Mode::F32 => self.mtp_head_typed::<f32>(i, lanes),
            Mode::F64 => self.mtp_head_typed::<f64>(i, lanes),
        });
        self.checked(done)
    }
}

impl<'a, T> Part<'a, T> {
    /// A sequence of a lane, from the empty state or from what its view holds before the first row.
    pub(crate) fn new(
        lane: usize,
        rows: &'a [RowId],
        ids: &'a [u32],
        (kv, routing): (Kv<'a>, Routing<'a>),
        index: u16,
        h: Vec<T>,
    ) -> Self {
        let given = match kv {
            Kv::Own => None,
            Kv::Given(view) => Some(view),
        };
        let forced = match routing {
            Routing::Free => None,
            Routing::Forced(choices) => choices.by_layer.get(&(index, rows[0].seq)),
        };
        let state = LayerState { n: rows[0].pos as usize, ..LayerState::default() };
        Self { lane, rows, ids, given, forced, h, state }
    }
}

impl Golden {
    /// Input ids of rows of one sequence.
    pub(crate) fn ids(&self, rows: &[RowId]) -> Result<&[u32]> {
        ids_of(&self.requests, rows)
    }
}
