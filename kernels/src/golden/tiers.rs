//! Golden's two tiers beside each other over a whole run, and either beside golden in f64.

use std::collections::BTreeMap;
use std::sync::Arc;

use karat_model::{Checkpoint, Result};
use karat_reference::backend::Backend;
use karat_reference::{Golden, Mode};
use karat_seam::{Block, Data, Requests, Sequence, Site, Tap};
use karat_trace::told;
use serde::{Deserialize, Serialize};

use super::compare::{Seen, run};

/// How far a kind of tap is apart, each path on its own streams and decisions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapDistance {
    /// Tap.
    pub name: String,
    /// Values, or decisions.
    pub values: u64,
    /// rel-L2 of the exact-split tier against that of bits; of decisions, the share that differs.
    pub tiers: f64,
    /// The same of the tier of bits against f64.
    pub bits: f64,
    /// The same of the exact-split tier against f64.
    pub split: f64,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tiers {
    /// One row a kind of values, in the order of the model.
    pub taps: Vec<TapDistance>,
    /// One row a kind of decisions.
    pub decisions: Vec<TapDistance>,
    /// KL of the logits from the tier of bits to the exact-split one, nats: mean and largest over tokens.
    pub kl: [f64; 2],
    /// Tokens, and those whose most likely next one differs.
    pub flips: [u64; 2],
}

/// Sums over tensors: values, (distance, size) squared of each pair of paths.
#[derive(Default)]
struct Sums {
    values: u64,
    pairs: [[f64; 2]; 3],
    is_decision: bool,
}

/// Distances of golden by `split` from golden by `bits` (none: this processor), and of both from f64, on these ids.
///
/// # Errors
/// The ids don't fit the model; a device failed.
pub fn tiers(
    checkpoint: &Arc<Checkpoint>,
    ids: &[u32],
    bits: Option<Arc<dyn Backend>>,
    split: &Arc<dyn Backend>,
    threads: usize,
) -> Result<Tiers> {
    let requests = Requests { seqs: vec![Sequence::prompt("golden", ids.to_vec())] };
    let next: Vec<u32> = ids.iter().skip(1).chain(ids.first()).copied().collect();
    let seen = |mode: Mode, backend: Option<Arc<dyn Backend>>| -> Result<Seen> {
        let path = Golden::new(checkpoint.clone(), requests.clone(), mode, threads)?.computed_by(backend);
        run(&path, &next).map_err(told)
    };
    let bits = seen(Mode::F32, bits)?;
    let split = seen(Mode::F32, Some(split.clone()))?;
    let wide = seen(Mode::F64, None)?;
    let mut order: Vec<String> = Vec::new();
    let mut sums: BTreeMap<String, Sums> = BTreeMap::new();
    for ((site, seq), tensor) in &bits.taps {
        let name = if let Block::Mtp(_) = site.block { site.to_string() } else { site.tap.name().to_string() };
        let (Some(other), Some(exact)) = (split.taps.get(&(*site, *seq)), wide.taps.get(&(*site, *seq))) else {
            continue;
        };
        if !order.contains(&name) {
            order.push(name.clone());
        }
        let sum = sums.entry(name).or_default();
        sum.values += tensor.data.len() as u64;
        let pairs = [(&other.data, &tensor.data), (&tensor.data, &exact.data), (&other.data, &exact.data)];
        for (pair, (found, reference)) in sum.pairs.iter_mut().zip(pairs) {
            add(pair, found, reference);
        }
        sum.is_decision = matches!(tensor.data, Data::I64(_) | Data::U8(_));
    }
    let mut out = Tiers::default();
    for name in order {
        let Some(sum) = sums.get(&name).filter(|sum| sum.values > 0) else { continue };
        let apart = sum.pairs.map(|[distance, size]| {
            let share = if distance == 0.0 { 0.0 } else { distance / size };
            if sum.is_decision { share } else { share.sqrt() }
        });
        let row = TapDistance { name, values: sum.values, tiers: apart[0], bits: apart[1], split: apart[2] };
        if sum.is_decision { out.decisions.push(row) } else { out.taps.push(row) }
    }
    let logits = (Site { block: Block::Head, tap: Tap::Logits }, 0);
    if let (Some(a), Some(b)) = (bits.taps.get(&logits), split.taps.get(&logits)) {
        let (a_rows, b_rows) = (floats(&a.data), floats(&b.data));
        let width = a.width().max(1);
        let rows: Vec<(f64, bool)> = a_rows.chunks(width).zip(b_rows.chunks(width)).map(|(a, b)| token(a, b)).collect();
        let kl = rows.iter().map(|(kl, _)| *kl);
        out.kl = [kl.clone().sum::<f64>() / rows.len().max(1) as f64, kl.fold(0.0, f64::max)];
        out.flips = [rows.len() as u64, rows.iter().filter(|(_, flips)| *flips).count() as u64];
    }
    Ok(out)
}

fn floats(data: &Data) -> Vec<f64> {
    match data {
        Data::F32(v) => v.iter().map(|v| f64::from(*v)).collect(),
        Data::F64(v) => v.clone(),
        Data::I64(v) => v.iter().map(|v| *v as f64).collect(),
        Data::U8(v) => v.iter().map(|v| f64::from(*v)).collect(),
    }
}

/// Adds distance and size, squared; of decisions, how many differ and how many there are. Values that are no numbers must be the same.
fn add(sum: &mut [f64; 2], found: &Data, reference: &Data) {
    let is_decision = matches!(found, Data::I64(_) | Data::U8(_));
    let (found, reference) = (floats(found), floats(reference));
    if found.len() != reference.len() {
        sum[0] = f64::INFINITY;
    }
    for (f, r) in found.iter().zip(&reference) {
        if is_decision {
            sum[0] += f64::from(u8::from(f != r));
            sum[1] += 1.0;
        } else if r.is_finite() && f.is_finite() {
            sum[0] += (f - r) * (f - r);
            sum[1] += r * r;
        } else if f.to_bits() != r.to_bits() {
            sum[0] = f64::INFINITY;
        }
    }
}

/// KL of one token's logits, and whether the most likely id differs.
fn token(a: &[f64], b: &[f64]) -> (f64, bool) {
    let log_of = |v: &[f64]| {
        let top = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        top + v.iter().map(|v| (v - top).exp()).sum::<f64>().ln()
    };
    let best = |v: &[f64]| (0..v.len()).fold(0, |best, i| if v[i] > v[best] { i } else { best });
    let (la, lb) = (log_of(a), log_of(b));
    let kl: f64 = a.iter().zip(b).map(|(a, b)| (a - la).exp() * ((a - la) - (b - lb))).sum();
    (kl.max(0.0), best(a) != best(b))
}
