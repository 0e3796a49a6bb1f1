//! Multi-token-prediction blocks (spec 2.14): an input out of streams and the next token, one ordinary sliding block with
//! a window of its own, and a head of its own over the shared table.

use karat_model::{Checkpoint, Result};
use karat_seam::{Block, Error, Lane, LayerOut, Streams, Tap, Tensor};

use crate::Optimized;
use crate::arith::round_rows;
use crate::layer::vector;
use crate::linear::Linear;
use crate::ops::norm::rms_norm;
use crate::optimized::HeadWeights;
use crate::plan::{Numerics, Resolved, distinct};

/// Weights of the input.
struct InputWeights {
    e_proj: Linear,
    h_proj: Linear,
    enorm: Vec<f32>,
    hnorm: Vec<f32>,
}

impl InputWeights {
    fn load(checkpoint: &Checkpoint, plans: &[&Resolved], i: u16) -> Result<Self> {
        let d = checkpoint.config().hidden_size;
        let linear = |name: &str| Linear::load(checkpoint, &format!("mtp.{i}.{name}"), &distinct(plans, |r| r.dense));
        let norm = |name: &str| vector(checkpoint, &format!("mtp.{i}.{name}.weight"), d);
        Ok(Self { e_proj: linear("e_proj")?, h_proj: linear("h_proj")?, enorm: norm("enorm")?, hnorm: norm("hnorm")? })
    }

    /// `x[t,j] = B(B(e e_proj^T) + B(g[j] h_proj^T))`: streams `[S,hc,D]` from embeddings `[S,D]` of the next ids and the
    /// streams `h [S,hc,D]` that enter the head.
    fn apply(&self, rules: &Numerics, (d, hc, eps): (usize, usize, f32), mut e: Vec<f32>, h: &[f32]) -> Vec<f32> {
        let projected = |linear: &Linear, x: &[f32]| {
            let mut out = linear.apply(rules.dense, rules, x);
            round_rows(rules.store.rounds(), &mut out);
            out
        };
        rms_norm(rules, &mut e, &self.enorm, eps);
        let e = projected(&self.e_proj, &e);
        let mut g = h.to_vec();
        rms_norm(rules, &mut g, &self.hnorm, eps);
        let mut x = projected(&self.h_proj, &g);
        for (streams, e) in x.chunks_exact_mut(hc * d).zip(e.chunks_exact(d)) {
            streams.chunks_exact_mut(d).for_each(|stream| stream.iter_mut().zip(e).for_each(|(x, e)| *x += e));
        }
        round_rows(rules.store.rounds(), &mut x);
        x
    }
}

/// The input of block `i` of paths that share its weights, `paths[n]` on `lanes[n]`: the streams that enter the head, and
/// the id at the position after each row. Fills `lane.out`.
pub(crate) fn input_lanes(
    paths: &[&Optimized],
    i: u16,
    lanes: &mut [Lane<'_>],
    next: &[u32],
) -> karat_seam::Result<()> {
    let Some(first) = paths.first() else { return Ok(()) };
    let config = first.config();
    first.check_mtp(i)?;
    if let Some(path) = paths.iter().find(|path| next.len() != path.schedule.rows.len()) {
        let (expected, found) = (vec![path.schedule.rows.len()], vec![next.len()]);
        return Err(Error::Shape { at: format!("mtp.{i}: next ids"), expected, found });
    }
    if let Some(id) = next.iter().find(|id| **id as usize >= config.vocab_size) {
        return Err(Error::Request(format!("mtp.{i}: next id {id} is past the vocabulary")));
    }
    let plans: Vec<&Resolved> = paths.iter().map(|path| &path.resolved).collect();
    let weights = InputWeights::load(&first.checkpoint, &plans, i).map_err(Error::source)?;
    for (path, lane) in paths.iter().zip(lanes) {
        let streams = path.mtp_streams(&weights, Block::Mtp(i), lane, next)?;
        lane.out = Some(LayerOut { streams });
    }
    Ok(())
}

/// The head of block `i` of paths that share its weights, on the streams that leave its layer. Logits `[rows,V]` a lane.
pub(crate) fn head_lanes(paths: &[&Optimized], i: u16, lanes: &mut [Lane<'_>]) -> karat_seam::Result<Vec<Tensor>> {
    let Some(first) = paths.first() else { return Ok(Vec::new()) };
    first.check_mtp(i)?;
    let plans: Vec<&Resolved> = paths.iter().map(|path| &path.resolved).collect();
    let head = HeadWeights::load(&first.checkpoint, &plans, &format!("mtp.{i}.")).map_err(Error::source)?;
    let of = paths.iter().zip(lanes);
    of.map(|(path, lane)| path.head_rows(&head, Block::Mtp(i), lane.x, &mut *lane.see)).collect()
}

impl Optimized {
    fn check_mtp(&self, i: u16) -> karat_seam::Result<()> {
        let missing = || Error::Unsupported { what: format!("mtp.{i}"), by: karat_seam::Path::name(self) };
        self.config().mtp.get(usize::from(i)).map(|_| ()).ok_or_else(missing)
    }

    fn mtp_streams(
        &self,
        w: &InputWeights,
        block: Block,
        lane: &mut Lane<'_>,
        next: &[u32],
    ) -> karat_seam::Result<Streams> {
        self.check_streams(lane.x)?;
        let config = self.config();
        let (d, hc) = (config.hidden_size, config.hc_mult);
        let table = vector(&self.checkpoint, "embed.weight", config.vocab_size * d).map_err(Error::source)?;
        let h = lane.x.data.as_f32("streams")?;
        let mut out = Vec::with_capacity(h.len());
        for segment in &self.schedule.segments {
            let rules = self.resolved.rules(segment.phase);
            let ids = &next[segment.rows.clone()];
            let mut e: Vec<f32> =
                ids.iter().flat_map(|id| table[*id as usize * d..(*id as usize + 1) * d].iter().copied()).collect();
            round_rows(rules.store.rounds(), &mut e);
            self.taps(&mut *lane.see, block, segment).show(Tap::Embed, &mut e)?;
            let h = &h[segment.rows.start * hc * d..segment.rows.end * hc * d];
            let mut x = w.apply(rules, (d, hc, config.rms_norm_eps as f32), e, h);
            self.taps(&mut *lane.see, block, segment).show(Tap::In, &mut x)?;
            out.extend(x);
        }
        Ok(Streams { data: Tensor::f32(lane.x.data.shape.clone(), out), rows: lane.x.rows.clone() })
    }
}
