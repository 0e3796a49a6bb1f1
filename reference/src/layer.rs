//! A resident layer of the golden path.

use std::ops::Range;
use std::sync::Arc;

use karat_model::Config;
use karat_model::checkpoint::Pages;
use karat_seam::{
    Block, Error, Kv, Lane, Layer, LayerOut, Op, Requests, Result, RowId, Streams, Tap, Tensor, Visitor, copied, extend,
};

use crate::block::{Part, Resident};
use crate::golden::Golden;
use crate::layer_op;
use crate::linalg::Real;
use crate::weights::BlockWeights;

/// Weights of one layer, resident until dropped.
pub(crate) struct GoldenLayer<'a, T> {
    pub(crate) golden: &'a Golden,
    pub(crate) l: u16,
    pub(crate) weights: BlockWeights<'a, T>,
    /// What was read of the file is given back with the layer.
    _pages: Pages<'a>,
}

impl<'a, T: Real> GoldenLayer<'a, T> {
    pub(crate) fn load(golden: &'a Golden, l: u16) -> Result<Self> {
        let pages = golden.pages(usize::from(l));
        Ok(Self { golden, l, weights: golden.block(usize::from(l), false)?, _pages: pages })
    }

    /// A lane with given KV may begin behind position 0: its rows go on from what the view holds.
    fn run_lanes(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        let ctx = self.golden.ctx();
        let block = match self.l.checked_sub(ctx.config.layers.len() as u16) {
            None => Block::Layer(self.l),
            Some(i) => Block::Mtp(i),
        };
        let stride = ctx.config.hc_mult * ctx.config.hidden_size;
        let inputs: Vec<&Streams> = lanes.iter().map(|lane| lane.x).collect();
        let mut parts = Vec::new();
        for (i, lane) in lanes.iter().enumerate() {
            let h = self.golden.streams::<T>(inputs[i])?;
            for range in sequences(&inputs[i].rows, matches!(lane.kv, Kv::Given(_)))? {
                let rows = &inputs[i].rows[range.clone()];
                let h = copied(&h[range.start * stride..range.end * stride]);
                parts.push(Part::new(i, rows, self.golden.ids(rows)?, (lane.kv, lane.routing), self.l, h));
            }
        }
        let mut sees = visitors(lanes);
        let rope = self.golden.rope(self.weights.kind);
        Resident { ctx, rope, block, weights: &self.weights }.run(&mut sees, &mut parts)?;
        let mut out = vec![Vec::new(); sees.len()];
        for part in parts {
            if part.rows[0].pos == 0 {
                part.state.show(&mut *sees[part.lane], block, part.rows, ctx.config)?;
            }
            let out = &mut out[part.lane];
            if out.is_empty() {
                // Most lanes have one sequence, and streams are the largest tensors of all.
                *out = part.h;
            } else {
                extend(out, &part.h);
            }
        }
        for (lane, h) in lanes.iter_mut().zip(out) {
            lane.out = Some(LayerOut { streams: streams_of(lane.x.rows.clone(), ctx.config, h) });
        }
        Ok(())
    }
}

impl<T: Real> Layer for GoldenLayer<'_, T> {
    fn run(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        self.golden.checked(self.golden.pool().install(|| self.run_lanes(lanes)))
    }

    fn op(&self, op: Op, operands: &[(Tap, Tensor)], rows: &[RowId]) -> Result<Vec<(Tap, Tensor)>> {
        self.golden.checked(self.golden.pool().install(|| layer_op::run(self, op, operands, rows)))
    }

    fn has_op(&self, op: Op) -> bool {
        layer_op::has(self.weights.kind, op)
    }
}

/// The lanes' visitors.
pub(crate) fn visitors<'l>(lanes: &'l mut [Lane<'_>]) -> Vec<&'l mut (dyn Visitor + 'l)> {
    let mut sees: Vec<&mut dyn Visitor> = Vec::with_capacity(lanes.len());
    for lane in lanes {
        sees.push(&mut *lane.see);
    }
    sees
}

/// Streams `[rows,hc,D]`.
pub(crate) fn streams_of<T: Real>(rows: Arc<[RowId]>, config: &Config, h: Vec<T>) -> Streams {
    Streams { data: T::tensor(vec![rows.len(), config.hc_mult, config.hidden_size], h), rows }
}

/// Ranges of rows by sequence. Every sequence comes once, from position 0 (any, where the lane goes on from given KV),
/// without gaps.
pub(crate) fn sequences(rows: &[RowId], goes_on: bool) -> Result<Vec<Range<usize>>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let last = i.checked_sub(1).map(|before| rows[before]);
        let seq = row.seq;
        if let (Some(last), Some(range)) = (last.filter(|last| last.seq == seq), ranges.last_mut()) {
            if row.pos != last.pos + 1 {
                let (from, to) = (last.pos, row.pos);
                return Err(Error::Request(format!("rows out of order: position {to} after {from} in sequence {seq}")));
            }
            range.end = i + 1;
            continue;
        }
        if row.pos != 0 && !goes_on {
            return Err(Error::Request(format!("rows of sequence {seq} start at position {}, not 0", row.pos)));
        }
        if ranges.iter().any(|range| rows[range.start].seq == seq) {
            return Err(Error::Request(format!("rows out of order: sequence {seq} comes twice")));
        }
        ranges.push(i..i + 1);
    }
    Ok(ranges)
}

/// Input ids of rows of one sequence.
pub(crate) fn ids_of<'r>(requests: &'r Requests, rows: &[RowId]) -> Result<&'r [u32]> {
    let (first, last) = (rows[0], rows[rows.len() - 1]);
    let sequence = requests.seqs.get(first.seq as usize);
    let ids = sequence.and_then(|s| s.ids.get(first.pos as usize..=last.pos as usize));
    ids.ok_or_else(|| Error::Request(format!("the requests have no position {} in sequence {}", last.pos, first.seq)))
}

#[cfg(test)]
mod tests;
