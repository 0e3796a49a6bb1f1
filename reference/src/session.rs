//! One sequence with carried state: chunked prefill and decode by the same layer code, with the same bits as a cold run.

use karat_model::Config;
use karat_seam::{Block, Error, Result, RowId, Site, Tensor, TensorMut, Visitor, Want};

use crate::block::{Part, Resident};
use crate::golden::{Golden, HeadLane, Mode, check_ids};
use crate::linalg::Real;
use crate::made::Made;
use crate::ops::embed;
use crate::ops::head::{HeadTable, HeadWeights};
use crate::state::LayerState;
use crate::weights::BlockWeights;

/// A conversation that grows. Weights stay resident (in f32, experts as they are used), so a session is for models that
/// fit in memory; a cold run streams.
pub struct Session<'g> {
    golden: &'g Golden,
    typed: Typed<'g>,
    n: usize,
}

enum Typed<'g> {
    F32(Model<'g, f32>),
    F64(Model<'g, f64>),
}

struct Model<'g, T> {
    blocks: Vec<BlockWeights<'g, T>>,
    head: HeadWeights<T>,
    table: HeadTable<'g, T>,
    states: Vec<LayerState<T>>,
}

impl<'g> Session<'g> {
    /// An empty sequence. The golden path's own requests play no part.
    pub fn new(golden: &'g Golden) -> Result<Self> {
        let typed = match golden.mode() {
            Mode::F32 => Typed::F32(Model::load(golden)?),
            Mode::F64 => Typed::F64(Model::load(golden)?),
        };
        Ok(Self { golden, typed, n: 0 })
    }

    /// Tokens so far.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Forgets the sequence and keeps the decoded weights.
    pub fn clear(&mut self) {
        match &mut self.typed {
            Typed::F32(model) => model.states.fill_with(LayerState::default),
            Typed::F64(model) => model.states.fill_with(LayerState::default),
        }
        self.n = 0;
    }

    /// True before the first token.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Appends ids and returns their logits `[n,V]`. Taps are shown as sequence 0, one piece a call.
    ///
    /// # Errors
    /// An id at or past the vocabulary; what the visitor returns. After an error from a visitor or a checkpoint the
    /// session is not usable any more.
    pub fn extend(&mut self, ids: &[u32], see: &mut dyn Visitor) -> Result<Tensor> {
        check_ids(self.golden.config(), ids, self.n).map_err(Error::source)?;
        let (golden, first) = (self.golden, self.n);
        let logits = golden.pool().install(|| match &mut self.typed {
            Typed::F32(model) => model.extend(golden, first, ids, see),
            Typed::F64(model) => model.extend(golden, first, ids, see),
        });
        let logits = golden.checked(logits)?;
        self.n += ids.len();
        Ok(logits)
    }

    /// KV content after the last token, in site order.
    pub fn state(&self) -> Result<Vec<(Site, Tensor)>> {
        let mut kept = Keep(Vec::new());
        let rows = [RowId::new(0, (self.n as u32).saturating_sub(1))];
        let config = self.golden.config();
        match &self.typed {
            Typed::F32(model) => show_all(&model.states, &mut kept, &rows, config)?,
            Typed::F64(model) => show_all(&model.states, &mut kept, &rows, config)?,
        }
        Ok(kept.0)
    }
}

fn show_all<T: Real>(states: &[LayerState<T>], see: &mut Keep, rows: &[RowId], config: &Config) -> Result<()> {
    for (l, state) in states.iter().enumerate() {
        state.show(see, Block::Layer(l as u16), rows, config)?;
    }
    Ok(())
}

/// Keeps every tensor it sees.
struct Keep(Vec<(Site, Tensor)>);

impl Visitor for Keep {
    fn want(&self, _: Site) -> Want {
        Want::Read
    }

    fn visit(&mut self, at: Site, _: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
        self.0.push((at, tensor.to_tensor()));
        Ok(())
    }
}

impl<'g, T: Real> Model<'g, T> {
    fn load(golden: &'g Golden) -> Result<Self> {
        let layers = golden.config().num_hidden_layers();
        let blocks = (0..layers).map(|l| golden.block(l, true)).collect::<Result<Vec<_>>>()?;
        let head = golden.loader("").head().map_err(Error::source)?;
        let hold = || golden.head_table()?.hold(golden.pool().isa()).map_err(Error::source);
        let table = golden.pool().install(hold)?;
        Ok(Self { blocks, head, table, states: vec![LayerState::default(); layers] })
    }

    fn extend(&mut self, golden: &Golden, first: usize, ids: &[u32], see: &mut dyn Visitor) -> Result<Tensor> {
        let (ctx, c) = (golden.ctx(), golden.config());
        if ids.is_empty() {
            return Ok(T::tensor(vec![0, c.vocab_size], Vec::new()));
        }
        let rows: Vec<RowId> = (first..first + ids.len()).map(|pos| RowId::new(0, pos as u32)).collect();
        let x: Vec<T> = golden.embed_rows(Block::Embed, &rows, ids, see)?;
        let mut h = embed::expand(&x, c.hidden_size, c.hc_mult);
        for (l, (weights, state)) in self.blocks.iter().zip(&mut self.states).enumerate() {
            let resident = Resident { ctx, rope: golden.rope(weights.kind), block: Block::Layer(l as u16), weights };
            let state_now = std::mem::take(state);
            let part = Part { lane: 0, rows: &rows, ids, given: None, forced: None, h, state: state_now };
            let mut parts = [part];
            resident.run(&mut [&mut *see], &mut parts)?;
            let [part] = parts;
            (h, *state) = (part.h, part.state);
        }
        let lane = HeadLane { rows: &rows, ranges: std::iter::once(0..rows.len()).collect(), h: &h };
        let mut logits = golden.head_lanes(Block::Head, &self.head, &self.table, &mut [see], &[lane])?;
        Ok(T::tensor(vec![ids.len(), c.vocab_size], logits.pop().map(Made::into_vec).unwrap_or_default()))
    }
}
