//! Effect probes: what each patch of a plan really does, on an input made for the purpose.
//!
//! A patch can be asked for and still do nothing: its rule may stand in the stock profile already, another patch may take
//! it over, or the backend may ignore it. A probe runs a few tokens through one layer of each kind with and without the
//! patch and looks for the first tap that changes; the routed scaling factor is counted by what it multiplies.

use std::sync::Arc;

use karat_model::config::LayerKind;
use karat_model::{Checkpoint, Error, Result};
use karat_seam::{Block, Lane, NoTaps, Path, Recorder, Requests, Sequence, Site, Span, SpanKind, Tap, Turn};

use crate::plan::{Plan, Resolved, Scaling};
use crate::{History, Optimized};

/// What a patch does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It changes this tap first.
    Active(Site),
    /// It cuts the probe's prompt into more steps, and changes no bit.
    Schedule,
    /// It changes nothing.
    Inert,
    /// It moves the routed scaling factor, which reaches the routed sum this often: in layers that route by score, and
    /// in layers that route by token id. Once is right.
    Applied {
        /// Score routing; `None` without such a layer.
        scored: Option<i32>,
        /// Token-id routing; `None` without such a layer.
        hash: Option<i32>,
    },
}

/// A patch of a plan with its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Name of the patch.
    pub patch: &'static str,
    /// What it does.
    pub effect: Effect,
}

/// Tokens of the probe: a prompt, and what is decoded after it.
const PROMPT: u32 = 24;
const DECODED: u32 = 8;

/// The effect of each patch of a plan beside the others, in registry order.
///
/// # Errors
/// As [`Optimized::new`].
pub fn probes(checkpoint: &Arc<Checkpoint>, plan: &Plan, threads: usize) -> Result<Vec<Probe>> {
    let open = |patches: &[String]| {
        let plan = Plan { patches: patches.to_vec(), history: History::Cold, ..plan.clone() };
        Optimized::new(Arc::clone(checkpoint), requests(checkpoint), plan, threads)
    };
    let whole = open(&plan.patches)?;
    let seen = Seen::of(&whole)?;
    let mut out = Vec::new();
    for patch in &whole.resolved.patches {
        let named = |asked: &&String| asked.split(':').next().map(str::trim) != Some(patch.name);
        let without = open(&plan.patches.iter().filter(named).cloned().collect::<Vec<_>>())?;
        let effect = if scaling_differs(&whole.resolved, &without.resolved) {
            applied(checkpoint, plan, threads)?
        } else if let Some(site) = seen.first_difference(&Seen::of(&without)?) {
            Effect::Active(site)
        } else if whole.coverage().prefill_steps > without.coverage().prefill_steps {
            Effect::Schedule
        } else {
            Effect::Inert
        };
        out.push(Probe { patch: patch.name, effect });
    }
    Ok(out)
}

fn requests(checkpoint: &Checkpoint) -> Requests {
    let vocab = checkpoint.config().vocab_size as u32;
    let ids: Vec<u32> = (0..PROMPT + DECODED).map(|i| (i * 7919 + 3) % vocab).collect();
    let span = |kind, start, end| Span { kind, start, end };
    let spans = vec![span(SpanKind::Prompt, 0, PROMPT), span(SpanKind::Generated, PROMPT, PROMPT + DECODED)];
    Requests {
        seqs: vec![Sequence { id: "probe".into(), ids: ids.into(), turns: vec![Turn { spans, interrupted: false }] }],
    }
}

fn scaling_differs(a: &Resolved, b: &Resolved) -> bool {
    a.distinct(|r| r.scaling) != b.distinct(|r| r.scaling)
}

/// The first layer of each kind of attention and of routing.
fn layers(path: &Optimized) -> Vec<u16> {
    let config = path.config();
    let kind = |l: usize| {
        let attention = match config.layers[l] {
            LayerKind::Sliding => 0,
            LayerKind::Csa { .. } => 1,
            LayerKind::Hca { .. } => 2,
        };
        (attention, config.is_hash_layer(l))
    };
    let mut seen = Vec::new();
    let mut out = Vec::new();
    for l in 0..path.blocks().layers {
        if !seen.contains(&kind(usize::from(l))) {
            seen.push(kind(usize::from(l)));
            out.push(l);
        }
    }
    out
}

/// What a path shows of the probe: every tap of the chosen layers, each on the embedded input, and of the head.
struct Seen(Recorder);

impl Seen {
    fn of(path: &Optimized) -> Result<Self> {
        let wrong = |e: karat_seam::Error| Error::usage(format!("an effect probe failed: {e}"));
        let mut recorder = Recorder::all();
        let x = path.embed(&mut NoTaps).map_err(wrong)?;
        for l in layers(path) {
            let layer = path.layer(l).map_err(wrong)?;
            layer.run(&mut [Lane::new(&x, &mut recorder)]).map_err(wrong)?;
        }
        path.head(&mut [Lane::new(&x, &mut recorder)]).map_err(wrong)?;
        Ok(Self(recorder))
    }

    fn first_difference(&self, other: &Self) -> Option<Site> {
        let differs = |site: &Site, seq: u32| {
            let (a, b) = (self.0.get(*site, seq), other.0.get(*site, seq));
            a.map(|r| &r.tensor) != b.map(|r| &r.tensor)
        };
        self.0.taps.keys().find(|(site, seq)| differs(site, *seq)).map(|(site, _)| *site)
    }

    /// Norm of the routed sum of a layer.
    fn routed(&self, l: u16) -> f64 {
        let site = Site { block: Block::Layer(l), tap: Tap::FfnRouted };
        let values = self.0.get(site, 0).and_then(|r| r.tensor.as_f32("routed").ok().map(<[f32]>::to_vec));
        values.unwrap_or_default().iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
    }
}

/// How often the factor is in the routed sum: its size against that of a run without the factor.
fn applied(checkpoint: &Arc<Checkpoint>, plan: &Plan, threads: usize) -> Result<Effect> {
    let plan = Plan { history: History::Cold, ..plan.clone() };
    let mut path = Optimized::new(Arc::clone(checkpoint), requests(checkpoint), plan, threads)?;
    let scaled = Seen::of(&path)?;
    path.resolved.set_scaling(Scaling { topk: false, hash_topk: false, combine: false });
    let bare = Seen::of(&path)?;
    let factor = path.config().routed_scaling_factor;
    let times = |hash: bool| {
        let l = layers(&path).into_iter().find(|l| path.config().is_hash_layer(usize::from(*l)) == hash)?;
        Some(((scaled.routed(l) / bare.routed(l)).ln() / factor.ln()).round() as i32)
    };
    Ok(Effect::Applied { scored: times(false), hash: times(true) })
}

#[cfg(test)]
mod tests;
