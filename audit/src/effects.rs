//! Effect probes of an audit: what each patch really does in the path that is audited.

use std::collections::BTreeMap;

use karat_model::Checkpoint;
use karat_optimized::{Effect, History, Open, Optimized, Plan, Probe, probes};
use karat_seam::Path;

use crate::cache::{Kind, Reader, Writer};
use crate::job::Job;
use crate::{Cache, Result, Subject};

/// What the probes found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Effects {
    /// The word of `patches.csv` by patch; none for a patch that only cuts prompts, which the run's own steps show.
    pub(crate) states: BTreeMap<String, String>,
    /// A sentence for each patch that is not simply active.
    pub(crate) notes: Vec<String>,
}

impl Effects {
    /// Probes the subject's patches together, as the deployment has them.
    pub(crate) fn of(job: &Job<'_>, subject: &Subject) -> Result<Self> {
        let plan = Plan { stock: subject.stock, patches: subject.patches.clone(), history: History::Cold };
        // What an earlier run left is no second run.
        let cache = job.cache.filter(|_| !job.rerun);
        Self::kept(cache, &job.checkpoint, &plan, || {
            Self::seen(job, &plan, &|requests| {
                let path = Optimized::new(job.checkpoint.clone(), requests, plan.clone(), job.threads)?;
                Ok(Box::new(path) as Box<dyn Path>)
            })
        })
    }

    /// What an earlier run found in this model under this plan, or `probe` does now: its inputs follow from both alone.
    fn kept(
        cache: Option<&Cache>,
        checkpoint: &Checkpoint,
        plan: &Plan,
        probe: impl FnOnce() -> Result<Self>,
    ) -> Result<Self> {
        let Some(cache) = cache else { return probe() };
        let key = cache.key("effects").part("config", &checkpoint.config_sha256());
        let key = key.part("weights", &checkpoint.weights_sha256()).shown("plan", plan).finish();
        if let Some(known) = cache.get(Kind::Other, &key, Self::read) {
            return Ok(known);
        }
        let found = probe()?;
        cache.put(&key, &found.write());
        Ok(found)
    }

    fn write(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.u64(self.states.len() as u64);
        for (patch, state) in &self.states {
            to.text(patch);
            to.text(state);
        }
        to.u64(self.notes.len() as u64);
        self.notes.iter().for_each(|note| to.text(note));
        to.0
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        let states = (0..from.count(16)?).map(|_| Some((from.text()?.to_string(), from.text()?.to_string())));
        let states = states.collect::<Option<_>>()?;
        let notes = (0..from.count(8)?).map(|_| Some(from.text()?.to_string())).collect::<Option<_>>()?;
        from.is_done().then_some(Self { states, notes })
    }

    /// The same in a path behind the seam.
    pub(crate) fn seen(job: &Job<'_>, plan: &Plan, open: &Open<'_>) -> Result<Self> {
        let mut out = Self::default();
        for probe in probes(&job.checkpoint, plan, job.threads, open)? {
            if probe.effect != Effect::Schedule {
                out.states.insert(probe.patch.to_string(), probe.effect.state());
            }
            out.notes.extend(sentence(&probe));
        }
        Ok(out)
    }
}

fn sentence(probe: &Probe) -> Option<String> {
    let place = probe.place.map_or(String::new(), |(site, phase)| format!(" at {site} in {}", phase.name()));
    let patch = probe.patch;
    match probe.effect {
        Effect::Applied(1) | Effect::Schedule => None,
        Effect::Inert => Some(format!("effect probe: patch {patch} changes nothing{place}")),
        Effect::Applied(n) => Some(format!("effect probe: patch {patch} is applied {n} times{place}")),
        Effect::Elsewhere(v) if v.is_finite() => {
            Some(format!("effect probe: patch {patch} is {v:.2} of the way from off to on{place}"))
        }
        Effect::Elsewhere(_) => Some(format!("effect probe: patch {patch} is neither off nor on{place}")),
    }
}

#[cfg(test)]
mod tests;
