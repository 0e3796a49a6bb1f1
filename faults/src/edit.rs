//! One tap in the hands of a fault, with everything that was computed before it.

use karat_model::formats::bf16;
use karat_model::{Checkpoint, Config};
use karat_optimized::Rope;
use karat_seam::{
    Block, Data, DataMut, Error, Layer, Op, OpSpec, Phase, Recorder, Result, RowId, Site, Streams, Tap, Tensor,
};

use crate::Fault;
use crate::size::mixed;

/// A piece of one tap: some rows of one sequence, in the block that the fault is in.
pub struct Edit<'e> {
    /// Which tap.
    pub tap: Tap,
    pub(crate) fault: &'e Fault,
    pub(crate) block: Block,
    pub(crate) rows: &'e [RowId],
    pub(crate) tensor: Tensor,
    /// All that went before in this block, this tap's earlier pieces included.
    pub(crate) seen: &'e Recorder,
    /// Streams that enter the block.
    pub(crate) x: &'e Streams,
    pub(crate) own: Option<&'e dyn Layer>,
    pub(crate) donor: Option<&'e dyn Layer>,
    pub(crate) checkpoint: &'e Checkpoint,
    pub(crate) phase_of: &'e dyn Fn(RowId) -> Phase,
    pub(crate) hadamard: [bool; 2],
}

impl Edit<'_> {
    /// Rows of the piece: tokens, or entries for a tap of entries.
    pub fn rows(&self) -> &[RowId] {
        self.rows
    }

    /// Elements in one row.
    pub fn width(&self) -> usize {
        self.tensor.width()
    }

    /// The candidate's config.
    pub fn config(&self) -> &Config {
        self.checkpoint.config()
    }

    /// The routed scaling factor.
    pub fn factor(&self) -> f32 {
        self.config().routed_scaling_factor as f32
    }

    /// Tokens an entry stands for; 1 in a sliding layer.
    pub fn ratio(&self) -> u32 {
        let Block::Layer(l) = self.block else { return 1 };
        self.config().layers[usize::from(l)].ratio().unwrap_or(1) as u32
    }

    /// The rotation of the block's kind of layer.
    pub fn rope(&self) -> Rope {
        let Block::Layer(l) = self.block else { unreachable!("the head rotates nothing") };
        Rope::of(self.config(), self.config().layers[usize::from(l)])
    }

    /// Token position of row `i`: of an entry, its last token.
    pub fn position(&self, i: usize) -> u32 {
        let pos = self.rows[i].pos;
        if self.tap.is_per_entry() { (pos + 1) * self.ratio() - 1 } else { pos }
    }

    /// Phase in which row `i` is computed.
    pub fn phase(&self, i: usize) -> Phase {
        (self.phase_of)(RowId { pos: self.position(i), ..self.rows[i] })
    }

    /// Whether the indexer rotates by the Hadamard matrix for row `i`.
    pub fn hadamard(&self, i: usize) -> bool {
        self.hadamard[usize::from(self.phase(i) == Phase::Decode)]
    }

    /// Whether the fault changes row `i`.
    pub fn hits(&self, i: usize) -> bool {
        (self.fault.rows)(self.position(i), self.phase(i))
    }

    /// Row `i` of a tap of numbers.
    pub fn row(&mut self, i: usize) -> &mut [f32] {
        let width = self.tensor.width();
        match &mut self.tensor.data {
            Data::F32(v) => &mut v[i * width..(i + 1) * width],
            _ => &mut [],
        }
    }

    /// Row `i` of the chosen experts.
    pub fn experts(&mut self, i: usize) -> &mut [i64] {
        let width = self.tensor.width();
        match &mut self.tensor.data {
            Data::I64(v) => &mut v[i * width..(i + 1) * width],
            _ => &mut [],
        }
    }

    /// Row `i` of the mask of entries.
    pub fn mask(&mut self, i: usize) -> &mut [u8] {
        let width = self.tensor.width();
        match &mut self.tensor.data {
            Data::U8(v) => &mut v[i * width..(i + 1) * width],
            _ => &mut [],
        }
    }

    /// Changes each row that the fault is in.
    pub fn each_row(&mut self, change: impl Fn(u32, &mut [f32])) {
        for i in (0..self.rows.len()).filter(|i| self.hits(*i)).collect::<Vec<_>>() {
            let pos = self.rows[i].pos;
            change(pos, self.row(i));
        }
    }

    /// Multiplies each row that the fault is in.
    pub fn scale(&mut self, by: f32) {
        self.each_row(|_, row| row.iter_mut().for_each(|v| *v *= by));
    }

    /// A tap as far as it was shown in this sequence, from position (or entry) 0 on.
    pub fn seen(&self, tap: Tap) -> Result<&Tensor> {
        self.seen_of(tap, self.rows.first().map_or(0, |r| r.seq))
    }

    /// The same of another sequence, which ran before.
    pub fn seen_of(&self, tap: Tap, seq: u32) -> Result<&Tensor> {
        let seen = self.seen.get(Site { block: self.block, tap }, seq);
        let missing = || Error::Request(format!("{} was not shown before {}", tap.name(), self.tap.name()));
        seen.map(|r| &r.tensor).ok_or_else(missing)
    }

    /// Row `i` of another tap, for the same token.
    pub fn other(&self, tap: Tap, i: usize) -> Result<Vec<f32>> {
        let (tensor, pos) = (self.seen(tap)?, self.rows[i].pos as usize);
        let width = tensor.width();
        Ok(tensor.as_f32(tap.name())?[pos * width..(pos + 1) * width].to_vec())
    }

    /// Values of a parameter of the block that is stored in F32: `ffn.gate.bias`.
    pub fn parameter(&self, name: &str) -> Vec<f32> {
        let Block::Layer(l) = self.block else { return Vec::new() };
        let raw = self.checkpoint.tensor(&format!("layers.{l}.{name}")).map(|t| t.bytes).unwrap_or_default();
        raw.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    /// Natural log of attention's denominators `[rows, heads]` for the rows of this piece.
    pub fn attend_lse(&self) -> Result<Vec<f32>> {
        let own = self.own.ok_or_else(|| Error::Request("the head has no ops".into()))?;
        Ok(self.run(own, Op::Attend, Tap::AttnLse, &[])?.as_f32("attn.lse")?.to_vec())
    }

    /// Experts of row `i`.
    pub fn chosen(&self, i: usize) -> Result<Vec<usize>> {
        let (tensor, pos) = (self.seen(Tap::FfnIdx)?, self.rows[i].pos as usize);
        let width = tensor.width();
        Ok(tensor.as_i64("ffn.idx")?[pos * width..(pos + 1) * width].iter().map(|e| *e as usize).collect())
    }

    /// What `op` makes of what was shown so far with some operands replaced, for this tap and the rows of this piece.
    pub fn rerun(&self, op: Op, replaced: &[(Tap, Tensor)]) -> Result<Tensor> {
        let own = self.own.ok_or_else(|| Error::Request("the head has no ops".into()))?;
        self.run(own, op, self.tap, replaced)
    }

    /// As [`Self::rerun`], for a tap of another op that was shown before.
    pub fn rerun_for(&self, op: Op, tap: Tap, replaced: &[(Tap, Tensor)]) -> Result<Tensor> {
        let own = self.own.ok_or_else(|| Error::Request("the head has no ops".into()))?;
        self.run(own, op, tap, replaced)
    }

    /// As [`Self::rerun`], by the second path.
    pub fn rerun_donor(&self, op: Op) -> Result<Tensor> {
        let donor = self.donor.ok_or_else(|| Error::Request(format!("{} has no second path", self.fault.id)))?;
        self.run(donor, op, self.tap, &[])
    }

    fn run(&self, layer: &dyn Layer, op: Op, tap: Tap, replaced: &[(Tap, Tensor)]) -> Result<Tensor> {
        let seq = self.rows.first().map_or(0, |r| r.seq);
        let last = self.rows.last().map_or(0, |r| r.pos as usize);
        let first = self.rows.first().map_or(0, |r| r.pos as usize);
        // Entries are complete when the piece's last token is in.
        let n = if self.tap.is_per_entry() { self.seen(Tap::AttnIn)?.rows() } else { last + 1 };
        // The bits of a row don't depend on the rows beside it: where it reads no other, this piece is enough.
        let from = if reads_other_rows(op) { 0 } else { first };
        let rows: Vec<RowId> = (from as u32..n as u32).map(|pos| RowId::new(seq, pos)).collect();
        let mut operands = Vec::new();
        for operand in op.spec().reads {
            let cut = |t: &Tensor| if operand.is_per_entry() { t.clone() } else { part(t, from, n) };
            if let Some((_, given)) = replaced.iter().find(|(t, _)| t == operand) {
                operands.push((*operand, cut(given)));
            } else if *operand == Tap::Out {
                operands.push((*operand, part(&self.entering(seq, n)?, from, n)));
            } else if OpSpec::writer_of(*operand).is_some_and(|w| layer.has_op(w.op)) {
                operands.push((*operand, cut(self.seen(*operand)?)));
            }
        }
        let made = layer.op(op, &operands, &rows)?;
        let whole = made.into_iter().find(|(made, _)| *made == tap).map(|(_, tensor)| tensor);
        let whole = whole.ok_or_else(|| Error::Request(format!("{} doesn't write {}", op.spec().name, tap.name())))?;
        Ok(part(&whole, first - from, last + 1 - from))
    }

    fn entering(&self, seq: u32, n: usize) -> Result<Tensor> {
        let first = self.x.rows.iter().position(|r| r.seq == seq).unwrap_or(0);
        let width = self.x.data.width();
        let values = &self.x.data.as_f32("streams")?[first * width..(first + n) * width];
        let shape: Vec<usize> = std::iter::once(n).chain(self.x.data.shape[1..].iter().copied()).collect();
        Ok(Tensor::f32(shape, values.to_vec()))
    }

    /// Takes over the rows of `new` (of this piece) that the fault is in.
    pub fn put(&mut self, new: &Tensor) -> Result<()> {
        let new = new.as_f32(self.tap.name())?.to_vec();
        let width = self.tensor.width();
        for i in (0..self.rows.len()).filter(|i| self.hits(*i)).collect::<Vec<_>>() {
            self.row(i).copy_from_slice(&new[i * width..(i + 1) * width]);
        }
        Ok(())
    }

    /// Takes back what was changed in rows that stand for no token of `kept`.
    pub(crate) fn keep_rows(&mut self, right: &Tensor, kept: impl Fn(RowId) -> bool) {
        let width = self.tensor.width();
        let goes = |i: &usize| !kept(RowId { pos: self.position(*i), ..self.rows[*i] });
        for i in (0..self.rows.len()).filter(goes).collect::<Vec<_>>() {
            let at = i * width..(i + 1) * width;
            match (&mut self.tensor.data, &right.data) {
                (Data::F32(to), Data::F32(from)) => to[at.clone()].copy_from_slice(&from[at]),
                (Data::I64(to), Data::I64(from)) => to[at.clone()].copy_from_slice(&from[at]),
                (Data::U8(to), Data::U8(from)) => to[at.clone()].copy_from_slice(&from[at]),
                _ => {}
            }
        }
    }

    /// Takes back all but a share of what was changed in each number. Where bf16 values stood there, bf16 values do again:
    /// others would be seen by what they are stored as, not by how wrong they are.
    pub(crate) fn keep_share(&mut self, right: &Tensor, share: f32) {
        if let (Data::F32(wrong), Data::F32(right)) = (&mut self.tensor.data, &right.data) {
            let is_bf16 = right.iter().all(|r| r.to_bits().trailing_zeros() >= 16);
            for (w, r) in wrong.iter_mut().zip(right) {
                let new = mixed(*r, *w, share);
                *w = if is_bf16 && new.is_finite() { bf16::round(new) } else { new };
            }
        }
    }

    pub(crate) fn write(&self, to: &mut DataMut<'_>) {
        match (&self.tensor.data, to) {
            (Data::F32(from), DataMut::F32(to)) => to.copy_from_slice(from),
            (Data::F64(from), DataMut::F64(to)) => to.copy_from_slice(from),
            (Data::I64(from), DataMut::I64(to)) => to.copy_from_slice(from),
            (Data::U8(from), DataMut::U8(to)) => to.copy_from_slice(from),
            _ => unreachable!("the copy has the type of what was copied"),
        }
    }
}

/// Whether an op's result for one token depends on other tokens.
fn reads_other_rows(op: Op) -> bool {
    matches!(op, Op::CompressPool | Op::IndexPool | Op::IndexScore | Op::Select | Op::Attend)
}

/// Rows `first..end` of a tensor.
fn part(tensor: &Tensor, first: usize, end: usize) -> Tensor {
    let width = tensor.width();
    let range = first * width..end * width;
    let shape = std::iter::once(end - first).chain(tensor.shape[1..].iter().copied()).collect();
    let data = match &tensor.data {
        Data::F32(v) => Data::F32(v[range].to_vec()),
        Data::F64(v) => Data::F64(v[range].to_vec()),
        Data::I64(v) => Data::I64(v[range].to_vec()),
        Data::U8(v) => Data::U8(v[range].to_vec()),
    };
    Tensor::new(shape, data)
}
