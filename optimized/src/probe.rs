//! Effect probes: what each patch of a plan really does in a path, on an input made for the purpose.
//!
//! A patch can be asked for and still do nothing: its rule may stand in the stock profile already, another patch may take
//! it over, or the engine may ignore it. A probe runs a few tokens through one layer of each kind three times: as the
//! path does it, and as the contracts with and without the patch. At the first tap where the two contracts differ, in
//! each layer and phase, the path lies on the line through them: 0 is off, 1 is on, 2 is on twice. The routed scaling
//! factor, which a right patch moves without changing the result, is counted by what it multiplies.

use std::collections::BTreeMap;
use std::sync::Arc;

use karat_model::config::LayerKind;
use karat_model::{Checkpoint, Error, Result};
use karat_seam::{
    Block, Data, Lane, NoTaps, Path, Phase, Recorded, Recorder, Requests, Sequence, Site, Span, SpanKind, Tap, Turn,
};

use crate::plan::{Plan, Scaling};
use crate::{History, Optimized};

/// What a patch does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Effect {
    /// It is applied that often: 1 is right.
    Applied(u32),
    /// It changes nothing.
    Inert,
    /// Neither on nor off nor a multiple: the path lies here on the line from off (0) to on (1), or beside it.
    Elsewhere(f64),
    /// It changes no value, only the steps: the run's own schedule shows whether it did.
    Schedule,
}

impl Effect {
    /// The word in the tables: active, inert, applied N times, or unknown.
    pub fn state(self) -> String {
        match self {
            Self::Applied(1) => "active".to_string(),
            Self::Applied(n) => format!("applied {n} times"),
            Self::Inert => "inert".to_string(),
            Self::Elsewhere(_) | Self::Schedule => "unknown".to_string(),
        }
    }
}

/// A patch of a plan with its effect.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probe {
    /// Name of the patch.
    pub patch: &'static str,
    /// What it does; of several places the first at which it is not right.
    pub effect: Effect,
    /// Where that was seen.
    pub place: Option<(Site, Phase)>,
}

/// Opens the path that is probed on the probe's requests.
pub type Open<'a> = dyn Fn(Requests) -> Result<Box<dyn Path + 'a>> + 'a;

/// Tokens of the probe: a prompt, and what is decoded after it.
const PROMPT: u32 = 24;
const DECODED: u32 = 8;
/// How far from a whole number of times a path may lie.
const SLACK: f64 = 0.2;

/// The effect of each patch of a plan beside the others, in registry order, in the path that `open` gives.
///
/// # Errors
/// As [`Optimized::new`], and what the path answers.
pub fn probes(checkpoint: &Arc<Checkpoint>, plan: &Plan, threads: usize, open: &Open<'_>) -> Result<Vec<Probe>> {
    let contract = |patches: &[String]| {
        let plan = Plan { patches: patches.to_vec(), history: History::Cold, ..plan.clone() };
        Optimized::new(Arc::clone(checkpoint), requests(checkpoint), plan, threads)
    };
    let whole = contract(&plan.patches)?;
    if whole.resolved.patches.is_empty() {
        return Ok(Vec::new());
    }
    let layers = layers(&whole);
    let on = Seen::of(&whole, &layers)?;
    let path = open(requests(checkpoint))?;
    let seen = Seen::of(&*path, &layers)?;
    let mut out = Vec::new();
    for patch in &whole.resolved.patches {
        if patch.exact {
            out.push(Probe { patch: patch.name, effect: Effect::Schedule, place: None });
            continue;
        }
        let others = plan.patches.iter().filter(|asked| asked.split(':').next().map(str::trim) != Some(patch.name));
        let without = contract(&others.cloned().collect::<Vec<String>>())?;
        let scales = without.resolved.distinct(|r| r.scaling) != whole.resolved.distinct(|r| r.scaling);
        let found = if scales {
            let mut bare = contract(&plan.patches)?;
            bare.resolved.set_scaling(Scaling { topk: false, hash_topk: false, combine: false });
            let factor = whole.config().routed_scaling_factor;
            seen.factors(&Seen::of(&bare, &layers)?, &layers, factor)
        } else {
            seen.shares(&on, &Seen::of(&without, &layers)?)
        };
        out.push(judge(patch.name, &found, scales));
    }
    Ok(out)
}

/// The probe's tokens, spread over the vocabulary.
fn requests(checkpoint: &Checkpoint) -> Requests {
    let vocab = checkpoint.config().vocab_size as u32;
    let ids: Vec<u32> = (0..PROMPT + DECODED).map(|i| (i * 7919 + 3) % vocab).collect();
    let span = |kind, start, end| Span { kind, start, end };
    let spans = vec![span(SpanKind::Prompt, 0, PROMPT), span(SpanKind::Generated, PROMPT, PROMPT + DECODED)];
    Requests {
        seqs: vec![Sequence { id: "probe".into(), ids: ids.into(), turns: vec![Turn { spans, interrupted: false }] }],
    }
}

/// The first layer of each kind of attention and of routing, with its compression ratio.
fn layers(path: &Optimized) -> Vec<(u16, Option<u32>)> {
    let config = path.config();
    let mut kinds = Vec::new();
    let mut out = Vec::new();
    for (l, kind) in config.layers.iter().enumerate() {
        let attention = match kind {
            LayerKind::Sliding => 0,
            LayerKind::Csa { .. } => 1,
            LayerKind::Hca { .. } => 2,
        };
        let key = (attention, config.is_hash_layer(l));
        if !kinds.contains(&key) {
            kinds.push(key);
            out.push((l as u16, kind.ratio().map(|r| r as u32)));
        }
    }
    out
}

/// A place, and where on the line from off to on (or how many factors) the path lies there.
type Found = (Site, Phase, f64);

/// From places to an effect. Zero times the routed scaling factor is a wrong count; zero of another patch is inert.
fn judge(patch: &'static str, found: &[Found], counts: bool) -> Probe {
    let effect = |times: f64| match times.round() {
        n if !times.is_finite() || (times - n).abs() > SLACK => Effect::Elsewhere(times),
        n if n >= 1.0 => Effect::Applied(n as u32),
        n if counts && n == 0.0 => Effect::Applied(0),
        0.0 => Effect::Inert,
        _ => Effect::Elsewhere(times),
    };
    let wrong = found.iter().find(|f| effect(f.2) != Effect::Applied(1));
    let Some((site, phase, times)) = wrong.or(found.first()) else {
        return Probe { patch, effect: Effect::Inert, place: None };
    };
    Probe { patch, effect: effect(*times), place: Some((*site, *phase)) }
}

/// What a path shows of the probe: every tap of the chosen layers, each on the embedded input, and of the head.
struct Seen {
    taps: Recorder,
    /// Compression ratio by layer.
    ratios: BTreeMap<u16, u32>,
}

impl Seen {
    fn of(path: &dyn Path, layers: &[(u16, Option<u32>)]) -> Result<Self> {
        let wrong = |e: karat_seam::Error| Error::usage(format!("an effect probe failed: {e}"));
        let mut taps = Recorder::new(|site| !site.tap.is_state());
        let x = path.embed(&mut NoTaps).map_err(wrong)?;
        for (l, _) in layers {
            let layer = path.layer(*l).map_err(wrong)?;
            layer.run(&mut [Lane::new(&x, &mut taps)]).map_err(wrong)?;
        }
        path.head(&mut [Lane::new(&x, &mut taps)]).map_err(wrong)?;
        Ok(Self { taps, ratios: layers.iter().filter_map(|(l, ratio)| Some((*l, (*ratio)?))).collect() })
    }

    /// For each block and phase the first tap at which `on` and `off` differ, and where on the line between them this is.
    fn shares(&self, on: &Self, off: &Self) -> Vec<Found> {
        let mut out: Vec<Found> = Vec::new();
        for ((site, seq), a) in &on.taps.taps {
            for phase in [Phase::Prefill, Phase::Decode] {
                if out.iter().any(|f| (f.0.block, f.1) == (site.block, phase)) {
                    continue;
                }
                let rows = |r: &Recorded| self.values(*site, r, phase);
                let (a, b) = (rows(a), off.taps.get(*site, *seq).map(rows).unwrap_or_default());
                if a == b {
                    continue;
                }
                let seen = self.taps.get(*site, *seq).map(rows).unwrap_or_default();
                out.push((*site, phase, share(&seen, &a, &b)));
            }
        }
        out
    }

    /// How often the factor is in the routed sum of each layer: its gain against that of a run without the factor.
    fn factors(&self, bare: &Self, layers: &[(u16, Option<u32>)], factor: f64) -> Vec<Found> {
        let mut out = Vec::new();
        for (l, _) in layers {
            for phase in [Phase::Prefill, Phase::Decode] {
                let site = Site { block: Block::Layer(*l), tap: Tap::FfnRouted };
                let rows = |s: &Self| s.taps.get(site, 0).map(|r| self.values(site, r, phase)).unwrap_or_default();
                let (with, without) = (rows(self), rows(bare));
                let gain = dot(&with, &without) / dot(&without, &without);
                out.push((site, phase, gain.ln() / factor.ln()));
            }
        }
        out
    }

    /// Values of the rows of a phase. An entry belongs to the token that completes it.
    fn values(&self, site: Site, recorded: &Recorded, phase: Phase) -> Vec<f64> {
        let ratio = match site.block {
            Block::Layer(l) if site.tap.is_per_entry() => self.ratios.get(&l).copied().unwrap_or(1),
            _ => 1,
        };
        let width = recorded.tensor.width();
        let all: Vec<f64> = match &recorded.tensor.data {
            Data::F32(v) => v.iter().map(|v| f64::from(*v)).collect(),
            Data::F64(v) => v.clone(),
            Data::I64(v) => v.iter().map(|v| *v as f64).collect(),
            Data::U8(v) => v.iter().map(|v| f64::from(*v)).collect(),
        };
        let mut out = Vec::new();
        for (row, values) in recorded.rows.iter().zip(all.chunks_exact(width.max(1))) {
            let decoded = (row.pos + 1) * ratio > PROMPT;
            if decoded == (phase == Phase::Decode) {
                out.extend_from_slice(values);
            }
        }
        out
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).filter(|(a, b)| a.is_finite() && b.is_finite()).map(|(a, b)| a * b).sum()
}

/// Where `seen` lies between `off` (0) and `on` (1); not a number when it lies beside the line by more than its length.
fn share(seen: &[f64], on: &[f64], off: &[f64]) -> f64 {
    if seen.len() != on.len() || on.len() != off.len() {
        return f64::NAN;
    }
    let finite = |i: &usize| seen[*i].is_finite() && on[*i].is_finite() && off[*i].is_finite();
    let (mut along, mut length, mut away) = (0.0, 0.0, 0.0);
    for i in (0..seen.len()).filter(finite) {
        let (step, moved) = (on[i] - off[i], seen[i] - off[i]);
        along += step * moved;
        length += step * step;
        away += moved * moved;
    }
    let beside = (away - along * along / length).max(0.0);
    if beside > length { f64::NAN } else { along / length }
}

#[cfg(test)]
mod tests;
