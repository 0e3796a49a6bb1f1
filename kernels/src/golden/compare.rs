//! Golden by a backend against golden on this processor, bit by bit: whole runs, every op on the same operands, and a session
//! that is fed in chunks and token by token.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use karat_model::{Checkpoint, Result};
use karat_reference::backend::Backend;
use karat_reference::{Golden, Mode, Session};
use karat_seam::{
    Block, Choices, Data, Lane, LayerChoices, NoTaps, OpSpec, Part, Path, Recorder, Requests, Routing, RowId, Sequence,
    Site, Streams, Tap, Tensor,
};
use karat_trace::told;
use serde::{Deserialize, Serialize};

/// How far one kind of result is from golden's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpBits {
    /// `run`: a tap of a whole run; `lanes`: what leaves a layer that two lanes go through together, one with forced experts; `op`: a
    /// result on the same operands; `session`: logits and state in chunks and token by token; `decode`: a stored weight. Behind a
    /// comma: the model, where it is not the first.
    pub what: String,
    /// Op or tap.
    pub name: String,
    /// Values that were compared.
    pub values: u64,
    /// Those whose bits differ, or that are missing.
    pub differing: u64,
    /// Largest distance of two of them, in steps of f32; 0 for decisions.
    pub worst_ulp: u64,
}

/// All of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// One row a kind of result, in the order of the model.
    pub rows: Vec<OpBits>,
    /// Seconds by what was run.
    pub seconds: BTreeMap<String, f64>,
}

impl Compared {
    /// True when something was compared and no bit differs.
    pub fn equal(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.differing == 0 && row.values > 0)
    }

    /// Counts the values of one tensor. One without values (a window that is empty) has no row.
    pub(super) fn add(&mut self, what: &str, name: &str, here: &Tensor, there: Option<&Tensor>) {
        if here.data.is_empty() && there.is_some_and(|there| there.shape == here.shape) {
            return;
        }
        let i = self.rows.iter().position(|row| row.what == what && row.name == name).unwrap_or_else(|| {
            self.rows.push(OpBits { what: what.to_string(), name: name.to_string(), ..OpBits::default() });
            self.rows.len() - 1
        });
        let row = &mut self.rows[i];
        let n = here.data.len() as u64;
        row.values += n;
        match there {
            Some(there) if there.shape == here.shape => {
                let (differing, worst) = differing(&here.data, &there.data);
                row.differing += differing;
                row.worst_ulp = row.worst_ulp.max(worst);
            }
            _ => row.differing += n.max(1),
        }
    }
}

/// Values that differ, and the largest distance.
fn differing(here: &Data, there: &Data) -> (u64, u64) {
    let count = |n: usize| (n as u64, 0);
    match (here, there) {
        (Data::F32(a), Data::F32(b)) => {
            let apart = a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits());
            apart.fold((0, 0), |(n, worst), (a, b)| (n + 1, worst.max(order(*a).abs_diff(order(*b)))))
        }
        (Data::I64(a), Data::I64(b)) => count(a.iter().zip(b).filter(|(a, b)| a != b).count()),
        (Data::U8(a), Data::U8(b)) => count(a.iter().zip(b).filter(|(a, b)| a != b).count()),
        _ => count(here.len().max(1)),
    }
}

/// Position of a value among all f32: neighbours are one apart.
fn order(v: f32) -> i64 {
    let bits = i64::from(v.to_bits());
    if bits >> 31 == 0 { bits } else { (1 << 31) - 1 - bits }
}

/// What a run over all blocks shows.
pub(super) struct Seen {
    pub(super) taps: BTreeMap<(Site, u32), Tensor>,
    /// Streams that enter each layer, and the head.
    inputs: Vec<Streams>,
}

pub(super) fn run(path: &Golden, next: &[u32]) -> karat_seam::Result<Seen> {
    let mut see = Recorder::all();
    let mut x = path.embed(&mut see)?;
    let mut inputs = Vec::new();
    for l in 0..path.blocks().layers {
        let mut lanes = [Lane::new(&x, &mut see)];
        path.layer(l)?.run(&mut lanes)?;
        let [lane] = lanes;
        let out = lane.out.map(|out| out.streams);
        let out = out.ok_or_else(|| karat_seam::Error::Request(format!("layer {l} left no streams")))?;
        inputs.push(std::mem::replace(&mut x, out));
    }
    path.head(&mut [Lane::new(&x, &mut see)])?;
    for i in 0..path.blocks().mtp {
        path.mtp(i, &mut [Lane::new(&x, &mut see)], next)?;
    }
    inputs.push(x);
    Ok(Seen { taps: see.taps.into_iter().map(|(at, recorded)| (at, recorded.tensor)).collect(), inputs })
}

/// Compares golden by `backend` with golden here on these ids of `checkpoint`: the first `prefill` of them in one piece in the
/// session, then chunks, then token by token.
///
/// # Errors
/// The ids don't fit the model; the device failed.
pub fn compare(
    checkpoint: &Arc<Checkpoint>,
    ids: &[u32],
    prefill: usize,
    backend: &Arc<dyn Backend>,
    threads: usize,
) -> Result<Compared> {
    let requests = Requests { seqs: vec![Sequence::prompt("golden", ids.to_vec())] };
    let here = Golden::new(checkpoint.clone(), requests.clone(), Mode::F32, threads)?;
    let there = Golden::new(checkpoint.clone(), requests, Mode::F32, threads)?.computed_by(Some(backend.clone()));
    let mut out = Compared::default();
    let next: Vec<u32> = ids.iter().skip(1).chain(ids.first()).copied().collect();
    let mut timed = |what: &str, path: &Golden| {
        let start = Instant::now();
        let seen = run(path, &next).map_err(told);
        out.seconds.insert(what.to_string(), start.elapsed().as_secs_f64());
        seen
    };
    let (own, other) = (timed("run here", &here)?, timed("run there", &there)?);
    for ((site, seq), tensor) in &own.taps {
        let name = if let Block::Mtp(_) = site.block { site.to_string() } else { site.tap.name().to_string() };
        out.add("run", &name, tensor, other.taps.get(&(*site, *seq)));
    }
    let start = Instant::now();
    ops(&here, &there, &own, ids.len(), &mut out).map_err(told)?;
    out.seconds.insert("ops on both".to_string(), start.elapsed().as_secs_f64());
    let start = Instant::now();
    lanes(&here, &there, &own, &mut out).map_err(told)?;
    out.seconds.insert("lanes on both".to_string(), start.elapsed().as_secs_f64());
    let start = Instant::now();
    session(&here, &there, ids, prefill, &mut out).map_err(told)?;
    out.seconds.insert("session on both".to_string(), start.elapsed().as_secs_f64());
    Ok(out)
}

/// Every op of every layer on golden's own operands.
fn ops(here: &Golden, there: &Golden, own: &Seen, n: usize, out: &mut Compared) -> karat_seam::Result<()> {
    let rows: Vec<RowId> = (0..n as u32).map(|pos| RowId::new(0, pos)).collect();
    let layers = here.blocks().layers;
    for l in 0..layers {
        let (a, b) = (here.layer(l)?, there.layer(l)?);
        for spec in OpSpec::graph() {
            let is_head = spec.part == Part::Head;
            if !(a.has_op(spec.op) || is_head && l + 1 == layers) {
                continue;
            }
            let block = if is_head { Block::Head } else { Block::Layer(l) };
            let operand = |tap: &Tap| match tap {
                // `Out` stands for the streams that enter the block.
                Tap::Out => Some((Tap::Out, own.inputs[usize::from(l)].data.clone())),
                _ => own.taps.get(&(Site { block, tap: *tap }, 0)).map(|tensor| (*tap, tensor.clone())),
            };
            let operands: Vec<(Tap, Tensor)> = spec.reads.iter().filter_map(operand).collect();
            let (want, found) = (a.op(spec.op, &operands, &rows)?, b.op(spec.op, &operands, &rows)?);
            for (i, (_, tensor)) in want.iter().enumerate() {
                out.add("op", spec.name, tensor, found.get(i).map(|(_, tensor)| tensor));
            }
        }
    }
    Ok(())
}

/// Two lanes through each layer: its own input, and the next layer's with the experts of the first forced on it.
fn lanes(here: &Golden, there: &Golden, own: &Seen, out: &mut Compared) -> karat_seam::Result<()> {
    for (l, pair) in own.inputs.windows(2).enumerate() {
        let l = l as u16;
        let mut choices = Choices::default();
        if let Some(Data::I64(idx)) = own.taps.get(&(Site::layer(l, Tap::FfnIdx), 0)).map(|idx| &idx.data) {
            let experts = idx.iter().map(|&e| e as u32).collect();
            choices.by_layer.insert((l, 0), LayerChoices { experts, entries: Vec::new() });
        }
        let run = |path: &Golden| -> karat_seam::Result<Vec<Option<Tensor>>> {
            let (mut first, mut second) = (NoTaps, NoTaps);
            let forced = Lane { routing: Routing::Forced(&choices), ..Lane::new(&pair[1], &mut second) };
            let mut lanes = [Lane::new(&pair[0], &mut first), forced];
            path.layer(l)?.run(&mut lanes)?;
            Ok(lanes.into_iter().map(|lane| lane.out.map(|out| out.streams.data)).collect())
        };
        for (want, found) in run(here)?.into_iter().zip(run(there)?) {
            if let Some(want) = want {
                out.add("lanes", Tap::Out.name(), &want, found.as_ref());
            }
        }
    }
    Ok(())
}

/// Prefill in one piece, chunks of odd sizes, then token by token.
fn session(here: &Golden, there: &Golden, ids: &[u32], prefill: usize, out: &mut Compared) -> karat_seam::Result<()> {
    let (mut a, mut b) = (Session::new(here)?, Session::new(there)?);
    let mut at = 0;
    for size in [prefill, 1, 3, 16, 5].into_iter().chain(std::iter::repeat(1)) {
        let end = (at + size).min(ids.len());
        if at == end {
            break;
        }
        let name = if end - at == 1 { "logits, decode" } else { "logits, chunk" };
        let want = a.extend(&ids[at..end], &mut NoTaps)?;
        out.add("session", name, &want, Some(&b.extend(&ids[at..end], &mut NoTaps)?));
        at = end;
    }
    let states = b.state()?;
    for (i, (site, tensor)) in a.state()?.iter().enumerate() {
        let there = states.get(i).filter(|(other, _)| other == site).map(|(_, tensor)| tensor);
        out.add("session", site.tap.name(), tensor, there);
    }
    Ok(())
}
