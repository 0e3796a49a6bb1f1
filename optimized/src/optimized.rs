//! The candidate path behind the seam.

use std::sync::Arc;

use karat_model::config::LayerKind;
use karat_model::{Checkpoint, Config, Error, Result};
use karat_seam::{
    AllReduce, Block, Blocks, Lane, Layer, Op, Path, Phase, Requests, RowId, Streams, Tap, Tensor, Visitor,
};

use crate::kernels::ByKernel;
use crate::layer::{Loads, Resident, Taps, vector};
use crate::linear::{Adder, Linear};
use crate::mtp::{head_lanes, input_lanes};
use crate::ops::hc::HcWeights;
use crate::ops::head;
use crate::ops::rope::Rope;
use crate::plan::{Numerics, Plan, Product, Resolved, distinct};
use crate::serving::{Counters, Coverage, History, Paged, Schedule, Segment};

/// What paths that run together have in common.
pub(crate) struct Shared {
    pool: rayon::ThreadPool,
    pub(crate) loads: Loads,
}

impl Shared {
    pub(crate) fn new(threads: usize) -> Result<Arc<Self>> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .build()
            .map_err(|e| Error::usage(format!("cannot start {threads} threads: {e}")))?;
        Ok(Arc::new(Self { pool, loads: Loads::default() }))
    }
}

/// The optimized path on one checkpoint, one set of requests and one plan.
pub struct Optimized {
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) requests: Requests,
    pub(crate) resolved: Resolved,
    pub(crate) schedule: Schedule,
    /// What the schedule does with pages; `None` in the plain form.
    pub(crate) program: Option<Paged>,
    pub(crate) counters: Counters,
    pub(crate) shared: Arc<Shared>,
    pub(crate) plan: Plan,
    /// What computes ops of its patches, where their contracts don't.
    pub(crate) by_kernel: Option<ByKernel>,
    /// Adds partial sums of ranks.
    pub(crate) adder: Arc<Adder>,
    /// Of sliding and of compressed layers.
    ropes: [Rope; 2],
}

impl Optimized {
    /// Checks the plan against the model and makes the schedule.
    ///
    /// # Errors
    /// Usage: unknown or conflicting patches, a model that the profile or a patch can't run. Input: ids past the
    /// vocabulary, an empty sequence, spans that don't cover the ids.
    pub fn new(checkpoint: Arc<Checkpoint>, requests: Requests, plan: Plan, threads: usize) -> Result<Self> {
        Self::sharing(checkpoint, requests, plan, Shared::new(threads)?)
    }

    /// As [`Optimized::new`], with what other paths on the checkpoint have too.
    pub(crate) fn sharing(
        checkpoint: Arc<Checkpoint>,
        requests: Requests,
        plan: Plan,
        shared: Arc<Shared>,
    ) -> Result<Self> {
        let chunk = Resolved::new(&plan)?.chunk;
        let schedule = Schedule::new(&requests, plan.history, chunk)?;
        Self::with_schedule(checkpoint, requests, plan, schedule, shared)
    }

    /// A path that runs a program: its keys and values live in pages, and its rows are the program's, in time order,
    /// those of other requests and of earlier passes included. The plan's history is not looked at.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn serve(
        checkpoint: Arc<Checkpoint>,
        requests: Requests,
        plan: Plan,
        served: Paged,
        threads: usize,
    ) -> Result<Self> {
        // The requests must be sound whatever the program makes of them.
        Schedule::new(&requests, History::Cold, None)?;
        let schedule = Schedule::served(&served.program);
        let path = Self::with_schedule(checkpoint, requests, plan, schedule, Shared::new(threads)?)?;
        Ok(Self { program: Some(served), ..path })
    }

    fn with_schedule(
        checkpoint: Arc<Checkpoint>,
        requests: Requests,
        plan: Plan,
        schedule: Schedule,
        shared: Arc<Shared>,
    ) -> Result<Self> {
        let resolved = Resolved::new(&plan)?;
        resolved.check_shapes(plan.stock, checkpoint.config())?;
        let vocab = checkpoint.config().vocab_size;
        for sequence in &requests.seqs {
            if let Some(at) = sequence.ids.iter().position(|id| *id as usize >= vocab) {
                return Err(Error::input("token id past the vocabulary")
                    .at(format!("sequence {}, position {at}", sequence.id))
                    .expected(format!("under {vocab}"))
                    .found(sequence.ids[at]));
            }
        }
        let counters = Counters::new(&resolved);
        let positions = schedule.rows.iter().map(|r| r.pos as usize + 1).max().unwrap_or(0);
        let rope = |kind| Rope::of(checkpoint.config(), kind).with_table(positions);
        let ropes = [rope(LayerKind::Sliding), rope(LayerKind::Csa { ratio: 4 })];
        let adder = Arc::default();
        Ok(Self {
            checkpoint,
            requests,
            resolved,
            schedule,
            program: None,
            counters,
            shared,
            plan,
            by_kernel: None,
            adder,
            ropes,
        })
    }

    /// The same with the partial sums of ranks added by a real all-reduce, where a plan spreads products over as many ranks.
    /// Another identity: its sums may not be the contract's.
    #[must_use]
    pub fn reduced_by(self, real: Option<Arc<dyn AllReduce>>) -> Self {
        Self { adder: real.map_or(self.adder, |real| Arc::new(Adder::new(real))), ..self }
    }

    /// The plan that it runs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Rules of a phase: the stock profile's with the patches applied.
    pub fn numerics(&self, phase: Phase) -> &Numerics {
        self.resolved.rules(phase)
    }

    /// What was executed so far.
    pub fn coverage(&self) -> Coverage {
        let steps = |phase| {
            let of_phase = self.schedule.segments.iter().filter(|s| s.phase == phase);
            of_phase.map(|s| s.steps.len()).sum()
        };
        Coverage {
            prefill_steps: steps(Phase::Prefill),
            decode_steps: steps(Phase::Decode),
            largest_prefill: self.schedule.largest_prefill(),
            patches: self.counters.patches(),
        }
    }

    pub(crate) fn pool(&self) -> &rayon::ThreadPool {
        &self.shared.pool
    }

    pub(crate) fn config(&self) -> &Config {
        self.checkpoint.config()
    }

    /// The rotation of a kind of layer.
    pub(crate) fn rope(&self, kind: LayerKind) -> &Rope {
        &self.ropes[usize::from(kind != LayerKind::Sliding)]
    }

    /// The input id of a row.
    pub(crate) fn id_of(&self, row: RowId) -> karat_seam::Result<u32> {
        if let Some(token) = self.schedule.token_of(row) {
            return Ok(token);
        }
        let id = self.requests.seqs.get(row.seq as usize).and_then(|s| s.ids.get(row.pos as usize));
        let missing = || karat_seam::Error::Request(format!("no id at sequence {}, position {}", row.seq, row.pos));
        id.copied().ok_or_else(missing)
    }

    /// Refuses streams that are not the schedule's rows.
    pub(crate) fn check_streams(&self, x: &Streams) -> karat_seam::Result<()> {
        let config = self.config();
        if *x.rows != *self.schedule.rows {
            return Err(karat_seam::Error::Request(format!(
                "{}: a lane must hold every row of the schedule ({} rows), in order",
                self.name(),
                self.schedule.rows.len()
            )));
        }
        let expected = vec![x.rows.len(), config.hc_mult, config.hidden_size];
        if x.data.shape != expected {
            return Err(karat_seam::Error::Shape { at: "streams".into(), expected, found: x.data.shape.clone() });
        }
        x.data.as_f32("streams").map(|_| ())
    }

    pub(crate) fn taps<'a>(&'a self, see: &'a mut dyn Visitor, block: Block, segment: &Segment) -> Taps<'a> {
        let rows = &self.schedule.rows[segment.rows.clone()];
        Taps { see, block, config: self.config(), kind: LayerKind::Sliding, rows }
    }

    fn embed_rows(&self, see: &mut dyn Visitor) -> karat_seam::Result<Streams> {
        let config = self.config();
        let (d, hc) = (config.hidden_size, config.hc_mult);
        let table =
            vector(&self.checkpoint, "embed.weight", config.vocab_size * d).map_err(karat_seam::Error::source)?;
        let mut out = Vec::with_capacity(self.schedule.rows.len() * hc * d);
        for segment in &self.schedule.segments {
            let mut x = Vec::with_capacity(segment.rows.len() * d);
            for row in &self.schedule.rows[segment.rows.clone()] {
                let id = self.id_of(*row)? as usize;
                x.extend_from_slice(&table[id * d..(id + 1) * d]);
            }
            crate::arith::round_rows(self.resolved.rules(segment.phase).store.rounds(), &mut x);
            self.taps(see, Block::Embed, segment).show(Tap::Embed, &mut x)?;
            for row in x.chunks_exact(d) {
                (0..hc).for_each(|_| out.extend_from_slice(row));
            }
        }
        let rows: Arc<[RowId]> = self.schedule.rows.clone().into();
        Ok(Streams { data: Tensor::f32([rows.len(), hc, d], out), rows })
    }

    /// Refuses a layer past the last; MTP blocks follow the layers.
    pub(crate) fn check_layer(&self, l: u16) -> karat_seam::Result<()> {
        let blocks = self.blocks();
        if l < blocks.layers + blocks.mtp {
            return Ok(());
        }
        Err(karat_seam::Error::Request(format!("layer {l} of {}", blocks.layers)))
    }

    pub(crate) fn head_lane(&self, w: &HeadWeights, lane: &mut Lane<'_>) -> karat_seam::Result<Tensor> {
        self.head_rows(w, Block::Head, lane.x, &mut *lane.see)
    }

    /// Logits `[rows,V]` of streams, as the head of the model or of an MTP block.
    pub(crate) fn head_rows(
        &self,
        w: &HeadWeights,
        block: Block,
        streams: &Streams,
        see: &mut dyn Visitor,
    ) -> karat_seam::Result<Tensor> {
        self.check_streams(streams)?;
        let config = self.config();
        let width = config.hc_mult * config.hidden_size;
        let x = streams.data.as_f32("streams")?;
        let mut out = Vec::with_capacity(streams.rows.len() * config.vocab_size);
        for segment in &self.schedule.segments {
            let rules = self.resolved.rules(segment.phase);
            let mut taps = self.taps(&mut *see, block, segment);
            let mut h = x[segment.rows.start * width..segment.rows.end * width].to_vec();
            taps.show(Tap::HFinal, &mut h)?;
            let mut collapsed = head::head_collapse(rules, config, &w.hc, &h);
            taps.show(Tap::HeadCollapsed, &mut collapsed)?;
            let mut logits = head::logits(rules, config, &w.norm, &w.head, &collapsed);
            taps.show(Tap::Logits, &mut logits)?;
            self.counters.ran(&self.resolved, Op::HeadLogits, segment);
            out.extend(logits);
        }
        Ok(Tensor::f32([streams.rows.len(), config.vocab_size], out))
    }
}

/// Weights of the final head.
pub(crate) struct HeadWeights {
    hc: HcWeights,
    norm: Vec<f32>,
    head: Linear,
}

impl HeadWeights {
    /// The head of the model (no prefix) or of an MTP block (`mtp.0.`); the table is shared.
    pub(crate) fn load(checkpoint: &Checkpoint, plans: &[&Resolved], prefix: &str) -> Result<Self> {
        let vector = |name: &str, len| vector(checkpoint, &format!("{prefix}{name}"), len);
        let config = checkpoint.config();
        let (hc, width) = (config.hc_mult, config.hc_mult * config.hidden_size);
        let mix = vector("hc_head_fn", hc * width)?;
        let hc = HcWeights {
            values: Vec::new(),
            mix: Linear::dense(mix, width, &[Product::F32])?,
            base: vector("hc_head_base", hc)?,
            scale: vector("hc_head_scale", 1)?,
        };
        let norm = vector("norm.weight", config.hidden_size)?;
        let head = Linear::load(checkpoint, "head", &distinct(plans, |r| r.lm_head))?;
        Ok(Self { hc, norm, head })
    }
}

impl Path for Optimized {
    fn name(&self) -> String {
        let patches = if self.plan.patches.is_empty() { "no patches".into() } else { self.plan.patches.join(", ") };
        let history = match &self.program {
            None => self.plan.history.to_string(),
            Some(served) => served.name.clone(),
        };
        format!("optimized ({}, {patches}, {history})", self.plan.stock)
    }

    fn identity(&self) -> [u8; 32] {
        self.hash(|phase| *self.resolved.rules(phase))
    }

    fn layer_identity(&self, l: u16) -> [u8; 32] {
        self.identity_of_layer(l)
    }

    fn requests(&self) -> &Requests {
        &self.requests
    }

    fn blocks(&self) -> Blocks {
        Blocks { layers: self.config().num_hidden_layers() as u16, mtp: self.config().mtp.len() as u16 }
    }

    fn phase_of(&self, row: RowId) -> Phase {
        self.schedule.phase_of(row)
    }

    fn embed(&self, see: &mut dyn Visitor) -> karat_seam::Result<Streams> {
        self.embed_rows(see)
    }

    fn layer(&self, l: u16) -> karat_seam::Result<Box<dyn Layer + '_>> {
        self.check_layer(l)?;
        let layer = self.pool().install(|| Resident::load(self, l)).map_err(karat_seam::Error::source)?;
        Ok(Box::new(layer))
    }

    fn head(&self, lanes: &mut [Lane<'_>]) -> karat_seam::Result<Vec<Tensor>> {
        self.pool().install(|| {
            let w = HeadWeights::load(&self.checkpoint, &[&self.resolved], "").map_err(karat_seam::Error::source)?;
            lanes.iter_mut().map(|lane| self.head_lane(&w, lane)).collect()
        })
    }

    fn mtp_input(&self, i: u16, lanes: &mut [Lane<'_>], next: &[u32]) -> karat_seam::Result<()> {
        let paths = vec![self; lanes.len()];
        self.pool().install(|| input_lanes(&paths, i, lanes, next))
    }

    fn mtp_head(&self, i: u16, lanes: &mut [Lane<'_>]) -> karat_seam::Result<Vec<Tensor>> {
        let paths = vec![self; lanes.len()];
        self.pool().install(|| head_lanes(&paths, i, lanes))
    }
}
