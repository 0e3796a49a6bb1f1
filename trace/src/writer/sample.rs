//! A sampled trace: some positions of each sequence, and the KV pages that they read.

use std::collections::{BTreeMap, BTreeSet};

use karat_seam::{Block, Data, Requests, Result, RowId, Site, Tap, Tensor, TensorMut, Visitor, Want};

use super::TraceWriter;

/// Thins out what a path shows, for a query-sampled audit: rows of sampled positions, and as `state/` taps the entries, the
/// index keys, and every window row that a sampled position sees.
pub struct Sample<'w> {
    writer: &'w mut TraceWriter,
    /// By sequence, ascending.
    positions: Vec<Vec<u32>>,
    /// Positions of window rows that they see, themselves included.
    seen: Vec<BTreeSet<u32>>,
    /// Window rows so far, by layer and sequence: positions and values.
    window: BTreeMap<(Site, u32), (Vec<i64>, Option<Tensor>)>,
}

impl<'w> Sample<'w> {
    /// `count` positions of each sequence at equal distances, the last one among them (all of a shorter one). A query
    /// sees `window` rows, itself included.
    pub fn evenly(writer: &'w mut TraceWriter, requests: &Requests, count: usize, window: usize) -> Self {
        let pick = |len: usize| -> Vec<u32> {
            let n = count.clamp(1, len.max(1));
            (1..=n).filter(|_| len > 0).map(|i| (i * len / n - 1) as u32).collect()
        };
        Self::at(writer, requests.seqs.iter().map(|s| pick(s.ids.len())).collect(), window)
    }

    /// These positions of each sequence, ascending.
    pub fn at(writer: &'w mut TraceWriter, positions: Vec<Vec<u32>>, window: usize) -> Self {
        let reach = |of: &Vec<u32>| of.iter().flat_map(|p| p.saturating_sub(window as u32 - 1)..=*p).collect();
        Self { writer, seen: positions.iter().map(reach).collect(), positions, window: BTreeMap::new() }
    }
}

/// Some rows of a tensor.
fn pick(tensor: &TensorMut<'_>, places: &[usize]) -> Tensor {
    fn rows<T: Copy>(v: &[T], width: usize, places: &[usize]) -> Vec<T> {
        places.iter().flat_map(|p| &v[p * width..(p + 1) * width]).copied().collect()
    }
    let whole = tensor.to_tensor();
    let width = whole.width();
    let data = match &whole.data {
        Data::F32(v) => Data::F32(rows(v, width, places)),
        Data::F64(v) => Data::F64(rows(v, width, places)),
        Data::I64(v) => Data::I64(rows(v, width, places)),
        Data::U8(v) => Data::U8(rows(v, width, places)),
    };
    let mut shape = whole.shape;
    shape[0] = places.len();
    Tensor::new(shape, data)
}

impl Visitor for Sample<'_> {
    fn want(&self, at: Site) -> Want {
        let state = |tap| Site { tap, ..at };
        match at.tap {
            // Entries and keys come whole, as pages.
            tap if tap.is_per_entry() => Want::Skip,
            Tap::AttnKv if self.writer.want(state(Tap::StateWin)) != Want::Skip => Want::Read,
            tap if tap.is_state() && !matches!(tap, Tap::StateWin | Tap::StateCkv | Tap::StateIndexK) => Want::Skip,
            _ => self.writer.want(at),
        }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
        let Some(first) = rows.first().copied() else { return Ok(()) };
        let seq = first.seq as usize;
        let key = (Site { tap: Tap::StateWin, ..at }, first.seq);
        if at.tap == Tap::StateWin {
            let Some((positions, Some(mut values))) = self.window.remove(&key) else {
                return self.writer.visit(at, rows, tensor);
            };
            let mut positions = Tensor::i64([positions.len()], positions);
            self.writer.visit(at, rows, values.as_mut())?;
            return self.writer.visit(Site { tap: Tap::StateWinPos, ..at }, rows, positions.as_mut());
        }
        if at.tap.is_state() {
            return self.writer.visit(at, rows, tensor);
        }
        let places = |held: &dyn Fn(u32) -> bool| -> Vec<usize> {
            rows.iter().enumerate().filter(|(_, row)| held(row.pos)).map(|(i, _)| i).collect()
        };
        if at.tap == Tap::AttnKv && matches!(at.block, Block::Layer(_)) {
            let seen = places(&|pos| self.seen.get(seq).is_some_and(|s| s.contains(&pos)));
            let piece = pick(&tensor, &seen);
            let (positions, values) = self.window.entry(key).or_default();
            positions.extend(seen.iter().map(|i| i64::from(rows[*i].pos)));
            match values {
                None => *values = Some(piece),
                Some(values) => {
                    if let (Data::F32(to), Data::F32(from)) = (&mut values.data, piece.data) {
                        to.extend(from);
                        values.shape[0] += seen.len();
                    }
                }
            }
        }
        if self.writer.want(at) == Want::Skip {
            return Ok(());
        }
        let own = places(&|pos| self.positions.get(seq).is_some_and(|p| p.binary_search(&pos).is_ok()));
        if own.len() == rows.len() {
            return self.writer.visit(at, rows, tensor);
        }
        let picked: Vec<RowId> = own.iter().map(|i| rows[*i]).collect();
        let mut piece = pick(&tensor, &own);
        self.writer.visit(at, &picked, piece.as_mut())
    }
}
