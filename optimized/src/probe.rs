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
    Block, Data, Lane, NoTaps, Path, Phase, Recorded, Recorder, Requests, Sequence, Site, Span, SpanKind, Streams, Tap,
    Together, Turn,
};

use crate::plan::{Plan, Resolved, Scaling};
use crate::{History, Optimized, PatchSets};

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
/// Patches whose contracts are probed in one pass over the weights: what each shows of every tap is held.
const AT_ONCE: usize = 8;

/// The effect of each patch of a plan beside the others, in registry order, in the path that `open` gives.
///
/// # Errors
/// As [`Optimized::new`], and what the path answers.
pub fn probes(checkpoint: &Arc<Checkpoint>, plan: &Plan, threads: usize, open: &Open<'_>) -> Result<Vec<Probe>> {
    let requests = requests(checkpoint);
    let contract = |patches: &[String]| Plan { patches: patches.to_vec(), history: History::Cold, ..plan.clone() };
    let contracts = |plans: Vec<Plan>| PatchSets::new(checkpoint, &requests, plans, threads);
    let whole = contracts(vec![contract(&plan.patches)])?;
    let resolved = whole.sets()[0].resolved.clone();
    if resolved.patches.is_empty() {
        return Ok(Vec::new());
    }
    let layers = layers(&whole.sets()[0]);
    let path = open(requests.clone())?;
    let seen = Seen::of(&*path, &layers)?;
    drop(path);
    let acting: Vec<_> = resolved.patches.iter().filter(|patch| !patch.exact).collect();
    let mut found: BTreeMap<&str, Probe> = BTreeMap::new();
    let mut on = None;
    for some in acting.chunks(AT_ONCE) {
        // The first is the plan itself; after it each patch's contract, the plan without it or, of one that moves the scaling
        // factor, without any factor.
        let mut plans = vec![contract(&plan.patches)];
        for patch in some {
            let others = plan.patches.iter().filter(|asked| asked.split(':').next().map(str::trim) != Some(patch.name));
            plans.push(contract(&others.cloned().collect::<Vec<String>>()));
        }
        let mut sets = contracts(plans)?;
        let scaling = |r: &Resolved| r.distinct(|r| r.scaling);
        let scales: Vec<bool> =
            sets.sets()[1..].iter().map(|without| scaling(&without.resolved) != scaling(&resolved)).collect();
        for (set, _) in sets.sets_mut()[1..].iter_mut().zip(&scales).filter(|(_, scales)| **scales) {
            set.resolved = resolved.clone();
            set.resolved.set_scaling(Scaling { topk: false, hash_topk: false, combine: false });
        }
        let factor = checkpoint.config().routed_scaling_factor;
        let mut shown = Seen::of_all(&sets, &layers)?.into_iter();
        let whole = shown.next();
        let on = on.get_or_insert_with(|| whole.expect("the plan itself is the first set"));
        for ((patch, scales), other) in some.iter().zip(scales).zip(shown) {
            let places = if scales { seen.factors(&other, &layers, factor) } else { seen.shares(on, &other) };
            found.insert(patch.name, judge(patch.name, &places, scales));
        }
    }
    let schedule = |name| Probe { patch: name, effect: Effect::Schedule, place: None };
    let of = |name| found.get(name).copied().unwrap_or_else(|| schedule(name));
    Ok(resolved.patches.iter().map(|patch| of(patch.name)).collect())
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
        let mut taps = Recorder::new(|site| !site.tap.is_state());
        let x = path.embed(&mut NoTaps).map_err(|e| wrong(&e))?;
        for (l, _) in layers {
            let layer = path.layer(*l).map_err(|e| wrong(&e))?;
            layer.run(&mut [Lane::new(&x, &mut taps)]).map_err(|e| wrong(&e))?;
        }
        path.head(&mut [Lane::new(&x, &mut taps)]).map_err(|e| wrong(&e))?;
        Ok(Self::new(taps, layers))
    }

    /// The same of contracts on one model, each weight decoded once for all of them.
    fn of_all(sets: &PatchSets, layers: &[(u16, Option<u32>)]) -> Result<Vec<Self>> {
        let members: Vec<usize> = (0..sets.sets().len()).collect();
        let embed = |path: &Optimized| path.embed(&mut NoTaps).map_err(|e| wrong(&e));
        let x: Vec<Streams> = sets.sets().iter().map(embed).collect::<Result<_>>()?;
        let mut taps: Vec<Recorder> = members.iter().map(|_| Recorder::new(|site| !site.tap.is_state())).collect();
        for (l, _) in layers {
            sets.layer(*l, &members, &mut lanes(&x, &mut taps)).map_err(|e| wrong(&e))?;
        }
        sets.head(&members, &mut lanes(&x, &mut taps)).map_err(|e| wrong(&e))?;
        Ok(taps.into_iter().map(|taps| Self::new(taps, layers)).collect())
    }

    fn new(taps: Recorder, layers: &[(u16, Option<u32>)]) -> Self {
        Self { taps, ratios: layers.iter().filter_map(|(l, ratio)| Some((*l, (*ratio)?))).collect() }
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

fn lanes<'a>(x: &'a [Streams], taps: &'a mut [Recorder]) -> Vec<Lane<'a>> {
    x.iter().zip(taps).map(|(x, see)| Lane::new(x, see)).collect()
}

fn wrong(e: &karat_seam::Error) -> Error {
    Error::usage(format!("an effect probe failed: {e}"))
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
