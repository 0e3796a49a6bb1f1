//! A trace as a path: `run` replays what is stored. It computes nothing.

mod replay;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use karat_seam::{
    Block, Blocks, Error, Lane, Layer, LayerOut, Op, Path, Phase, Requests, Result, RowId, Site, Streams, Tap, Tensor,
    Visitor,
};

use crate::{Trace, key::Key};

/// Replays a trace layer by layer.
///
/// A trace may hold any subset of taps, layers and rows. What it lacks is never guessed: [`TracePath::missing`] lists
/// what a full inherited/injected split needs, [`TracePath::stream_in`] is `None` where nothing is stored, a lane's
/// `out` stays `None` when the layer's `out` is not held for all of the lane's rows, and ops are unsupported.
pub struct TracePath {
    trace: Arc<Trace>,
    blocks: Blocks,
    hc: usize,
    identity: OnceLock<[u8; 32]>,
}

impl TracePath {
    /// A path over a trace of a model of this geometry.
    ///
    /// Errors (input): a layer or MTP block that such a model doesn't have; streams of another width.
    pub fn new(trace: Arc<Trace>, blocks: Blocks, hc: usize, hidden: usize) -> karat_model::Result<Self> {
        for (at, seq, pass) in trace.held() {
            let fail = |what: &str| {
                let id = &trace.requests().seqs[seq as usize].id;
                karat_model::Error::input(what).at(Key::tap(id, at, pass)).at(trace.label())
            };
            match at.block {
                Block::Layer(l) if l >= blocks.layers => {
                    return Err(fail("trace is of another model")
                        .expected(format!("layers 0 to {}", blocks.layers.saturating_sub(1)))
                        .found(format!("layer {l}")));
                }
                Block::Mtp(i) if i >= blocks.mtp => {
                    return Err(fail("trace is of another model").expected(format!("{} MTP blocks", blocks.mtp)));
                }
                _ => {}
            }
            let expected: &[usize] = match at.tap {
                tap if tap.is_streams() => &[hc, hidden],
                Tap::Embed => &[hidden],
                _ => continue,
            };
            let shape = trace.shape(at, seq, pass).unwrap_or_default();
            if shape.get(1..) != Some(expected) {
                return Err(fail("trace is of another model")
                    .expected(format!("rows of shape {expected:?}"))
                    .found(format!("{:?}", shape.get(1..).unwrap_or_default())));
            }
        }
        Ok(Self { trace, blocks, hc, identity: OnceLock::new() })
    }

    /// The trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Every row that is held, by sequence, pass and position.
    pub fn rows(&self) -> Vec<RowId> {
        let rows = |(seq, pass)| -> Vec<RowId> {
            self.trace.positions(seq, pass).iter().map(|&pos| RowId { seq, pos, pass }).collect()
        };
        self.trace.passes().flat_map(rows).collect()
    }

    /// The streams that entered layer `l` (`l` = number of layers: the head), with the rows of every sequence and pass
    /// that holds them. For layer 0 these are the `embed` tap's rows, copied into each stream (spec 2.1). `None` when
    /// no sequence has any: then golden's own embedding is the input of layer 0, and a later layer can't be split.
    pub fn stream_in(&self, l: u16) -> Result<Option<Streams>> {
        let sources: Vec<Site> = if l == 0 {
            vec![Site { block: Block::Embed, tap: Tap::Embed }]
        } else if l == self.blocks.layers {
            vec![Site { block: Block::Head, tap: Tap::HFinal }, Site::layer(l - 1, Tap::Out)]
        } else {
            vec![Site::layer(l - 1, Tap::Out)]
        };
        let mut rows = Vec::new();
        let mut pieces = Vec::new();
        for (seq, pass) in self.trace.passes() {
            let Some(&site) = sources.iter().find(|site| self.trace.holds(**site, seq, pass)) else { continue };
            rows.extend(self.trace.row_ids(site, seq, pass).map_err(Error::source)?);
            pieces.push(self.trace.tensor(site, seq, pass).map_err(Error::source)?);
        }
        if pieces.is_empty() {
            return Ok(None);
        }
        let mut data = replay::join(sources[0], pieces)?;
        if l == 0 {
            data = replay::copy_to_streams(&data, self.hc);
        }
        Ok(Some(Streams { rows: rows.into(), data }))
    }

    /// Keys that a full inherited/injected split of every held sequence needs and the trace lacks: the `out` of each
    /// layer, and `logits`.
    pub fn missing(&self) -> Vec<String> {
        let mut out = Vec::new();
        let head = Site { block: Block::Head, tap: Tap::Logits };
        let needed: Vec<Site> = (0..self.blocks.layers).map(|l| Site::layer(l, Tap::Out)).chain([head]).collect();
        for (seq, s) in self.trace.requests().seqs.iter().enumerate() {
            let seq = seq as u32;
            let mut passes: Vec<u32> = self.trace.passes().filter(|p| p.0 == seq).map(|p| p.1).collect();
            if passes.is_empty() {
                passes.push(0);
            }
            for pass in passes {
                let lacks = needed.iter().filter(|site| !self.trace.holds(**site, seq, pass));
                out.extend(lacks.map(|site| Key::tap(&s.id, *site, pass).to_string()));
            }
        }
        out
    }

    fn unsupported<T>(&self, what: String) -> Result<T> {
        Err(Error::Unsupported { what, by: self.name() })
    }
}

impl Path for TracePath {
    fn name(&self) -> String {
        format!("trace {}", self.trace.label())
    }

    fn identity(&self) -> [u8; 32] {
        *self.identity.get_or_init(|| self.trace.content_sha256())
    }

    fn requests(&self) -> &Requests {
        self.trace.requests()
    }

    fn blocks(&self) -> Blocks {
        self.blocks
    }

    fn phase_of(&self, row: RowId) -> Phase {
        self.trace.phase_of(row)
    }

    /// The rows of the `embed` tap; unsupported when no sequence has it.
    fn embed(&self, see: &mut dyn Visitor) -> Result<Streams> {
        let site = Site { block: Block::Embed, tap: Tap::Embed };
        for (seq, pass) in self.trace.passes().filter(|(seq, pass)| self.trace.holds(site, *seq, *pass)) {
            let rows = self.trace.row_ids(site, seq, pass).map_err(Error::source)?;
            replay::show(&self.trace, site, seq, pass, &rows, see)?;
        }
        self.stream_in(0)?.map_or_else(|| self.unsupported("embed: the trace doesn't hold it".into()), Ok)
    }

    fn layer(&self, l: u16) -> Result<Box<dyn Layer + '_>> {
        let Blocks { layers, mtp } = self.blocks;
        let block = match l.checked_sub(layers) {
            None => Block::Layer(l),
            Some(i) if i < mtp => Block::Mtp(i),
            Some(_) => return Err(Error::Request(format!("layer {l} of {layers}"))),
        };
        Ok(Box::new(StoredLayer { path: self, block }))
    }

    /// Stored logits; unsupported when a lane has a row without them.
    fn head(&self, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        self.replay_logits(Block::Head, Tap::is_of_head, lanes)
    }

    /// The stored input of the block; a lane's `out` stays `None` without `mtp.i.in` for all of its rows. Unsupported when
    /// nothing of the block is held.
    fn mtp_input(&self, i: u16, lanes: &mut [Lane<'_>], _next: &[u32]) -> Result<()> {
        let block = Block::Mtp(i);
        if !self.trace.held().any(|(site, ..)| site.block == block) {
            return self.unsupported(format!("mtp.{i}: the trace holds nothing of it"));
        }
        for lane in lanes {
            let out = replay::block(&self.trace, block, (Tap::is_of_input, Tap::In), lane)?;
            lane.out = out.map(|data| LayerOut { streams: Streams { rows: Arc::clone(&lane.x.rows), data } });
        }
        Ok(())
    }

    /// Stored `mtp.i.logits`; unsupported when a lane has a row without them.
    fn mtp_head(&self, i: u16, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        self.replay_logits(Block::Mtp(i), Tap::is_of_head, lanes)
    }

    /// The whole block, as far as it is stored, and its logits; unsupported when a lane has a row without them.
    fn mtp(&self, i: u16, lanes: &mut [Lane<'_>], _next: &[u32]) -> Result<Vec<Tensor>> {
        self.replay_logits(Block::Mtp(i), |_| true, lanes)
    }
}

impl TracePath {
    fn replay_logits(&self, block: Block, of: fn(Tap) -> bool, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        let site = Site { block, tap: Tap::Logits };
        let one = |lane: &mut Lane<'_>| -> Result<Tensor> {
            let logits = replay::block(&self.trace, block, (of, Tap::Logits), lane)?;
            logits.map_or_else(|| self.unsupported(format!("{site}: the trace doesn't hold it for all rows")), Ok)
        };
        lanes.iter_mut().map(one).collect()
    }
}

/// True for what a layer has.
fn is_of_layer(tap: Tap) -> bool {
    !tap.is_of_input() && !tap.is_of_head()
}

/// A layer of a trace, or that of an MTP block.
struct StoredLayer<'a> {
    path: &'a TracePath,
    block: Block,
}

impl Layer for StoredLayer<'_> {
    /// Visits stored taps of the lane's rows in op order; `x`, `kv` and `routing` of a lane have no effect.
    fn run(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        for lane in lanes {
            let out = replay::block(&self.path.trace, self.block, (is_of_layer, Tap::Out), lane)?;
            lane.out = out.map(|data| LayerOut { streams: Streams { rows: Arc::clone(&lane.x.rows), data } });
        }
        Ok(())
    }

    fn op(&self, op: Op, _operands: &[(Tap, Tensor)], _rows: &[RowId]) -> Result<Vec<(Tap, Tensor)>> {
        self.path.unsupported(format!("op {}", op.spec().name))
    }

    /// True when the trace holds something that the op writes in this layer.
    fn has_op(&self, op: Op) -> bool {
        let writes = op.spec().writes;
        let here = |site: Site| site.block == self.block && writes.contains(&site.tap);
        self.path.trace.held().any(|(site, ..)| here(site))
    }
}
