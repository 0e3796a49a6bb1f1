//! Routed experts: a few decoded at a time, side by side, each once for the rows of all lanes and segments that chose it.

use karat_seam::{Error, Phase, Result};
use rayon::prelude::*;

use super::Resident;
use crate::arith::round_rows;
use crate::kernels::{Chosen, Kernels, Routed};
use crate::linear::Linear;
use crate::ops::experts::activate;
use crate::plan::{Numerics, RouteWeight};

/// Rows of one lane and segment on their way through the experts.
pub(crate) struct Batch<'a> {
    pub rules: &'a Numerics,
    /// `[S,D]`.
    pub x: Vec<f32>,
    /// `[S*K]`.
    pub idx: Vec<u32>,
    /// `[S*K]`.
    pub wt: Vec<f32>,
    /// `[S,K,I]`, filled by `up`: with the routing weight where it comes before the down projection.
    pub act: Vec<f32>,
    /// `[S,D]`, filled by `down`: sums over experts in ascending expert order, f32.
    pub routed: Vec<f32>,
    /// The layer whose kernel computes them, and the phase; none: the contract does.
    pub by: Option<(&'a Resident<'a>, Phase)>,
}

impl Batch<'_> {
    /// What a kernel makes of the rows; `None`: the contract computes them.
    fn by_kernel(
        &self,
        run: impl FnOnce(&dyn Kernels, Routed<'_>) -> karat_model::Result<Vec<f32>>,
    ) -> Result<Option<Vec<f32>>> {
        let Some((layer, phase)) = self.by else { return Ok(None) };
        let Some((kernels, Chosen { experts: Some(grouped), .. })) = layer.by_kernel(phase) else { return Ok(None) };
        let prefix = format!("{}.ffn.experts", super::name_of(layer.config(), layer.l));
        let it = Routed {
            x: &self.x,
            idx: &self.idx,
            wt: &self.wt,
            k: layer.config().num_experts_per_tok,
            checkpoint: &layer.path.checkpoint,
            prefix: &prefix,
            held: &layer.w.experts,
            grouped: *grouped,
        };
        run(kernels, it).map(Some).map_err(Error::source)
    }

    /// What each slot's activations still lack of the routing weight with its scaling, `late` of it in the sum over the
    /// experts: a tap shows them with all of it, whatever the place of the factors.
    pub(crate) fn lacking(&self, late: f32) -> Vec<f32> {
        match self.rules.route_weight {
            RouteWeight::BeforeDown => vec![late; self.wt.len()],
            RouteWeight::AfterDown => self.wt.iter().map(|w| w * late).collect(),
        }
    }

    /// Slots (row * K + k) that chose an expert.
    fn slots(&self, e: usize) -> Vec<usize> {
        self.idx.iter().enumerate().filter(|(_, i)| **i as usize == e).map(|(slot, _)| slot).collect()
    }
}

/// Experts that are decoded at a time: one a thread.
fn at_once() -> usize {
    rayon::current_num_threads().max(1)
}

impl Resident<'_> {
    /// Matrices of some routed experts, in the forms that the batches need, decoded side by side.
    fn decoded<const N: usize>(
        &self,
        experts: &[usize],
        which: [&str; N],
        batches: &[Batch<'_>],
    ) -> Result<Vec<[Linear; N]>> {
        let mut products = Vec::new();
        for batch in batches.iter().filter(|b| b.by.is_none()) {
            if !products.contains(&batch.rules.experts) {
                products.push(batch.rules.experts);
            }
        }
        let prefix = format!("{}.ffn.experts", super::name_of(self.config(), self.l));
        let one = |e: &usize| -> Result<[Linear; N]> {
            let mut made = Vec::with_capacity(N);
            for which in which {
                self.path.shared.loads.count();
                made.push(Linear::load(&self.path.checkpoint, &format!("{prefix}.{e}.{which}"), &products));
            }
            let made = made.into_iter().collect::<karat_model::Result<Vec<Linear>>>().map_err(Error::source)?;
            // One a name.
            made.try_into().map_err(|_| Error::Request(format!("{prefix}.{e}: not every matrix was decoded")))
        };
        self.path.shared.loads.timed(|| experts.par_iter().map(one).collect())
    }

    fn used(&self, batches: &[Batch<'_>]) -> Vec<usize> {
        let experts = 0..self.config().n_routed_experts;
        experts.filter(|e| batches.iter().any(|b| b.by.is_none() && b.idx.contains(&(*e as u32)))).collect()
    }

    /// Expert activations after the routing weight.
    pub(crate) fn experts_up(&self, batches: &mut [Batch<'_>]) -> Result<()> {
        let config = self.config();
        let (d, inner, k) = (config.hidden_size, config.moe_intermediate_size, config.num_experts_per_tok);
        let limit = Some(config.swiglu_limit as f32);
        for batch in &mut *batches {
            batch.act = match batch.by_kernel(|kernels, it| kernels.experts_up(it))? {
                Some(act) => act,
                None => vec![0.0; batch.idx.len() * inner],
            };
        }
        for some in self.used(batches).chunks(at_once()) {
            for (e, [w1, w3]) in some.iter().zip(self.decoded(some, ["w1", "w3"], batches)?) {
                for batch in batches.iter_mut().filter(|b| b.by.is_none()) {
                    let slots = batch.slots(*e);
                    if slots.is_empty() {
                        continue;
                    }
                    let mut x = Vec::with_capacity(slots.len() * d);
                    slots.iter().for_each(|s| x.extend_from_slice(&batch.x[s / k * d..(s / k + 1) * d]));
                    let wt: Vec<f32> = slots.iter().map(|s| batch.wt[*s]).collect();
                    let wt = (batch.rules.route_weight == RouteWeight::BeforeDown).then_some(wt.as_slice());
                    let a = activate(batch.rules, batch.rules.experts, limit, &w1, &w3, &x, wt);
                    for (slot, a) in slots.iter().zip(a.chunks_exact(inner)) {
                        batch.act[slot * inner..(slot + 1) * inner].copy_from_slice(a);
                    }
                }
            }
        }
        Ok(())
    }

    /// Sum over the routed experts.
    pub(crate) fn experts_down(&self, batches: &mut [Batch<'_>]) -> Result<()> {
        let config = self.config();
        let (d, inner, k) = (config.hidden_size, config.moe_intermediate_size, config.num_experts_per_tok);
        // One sum over the experts for each rank that holds a part of their columns.
        let mut sums: Vec<Vec<Vec<f32>>> =
            batches.iter().map(|b| vec![vec![0.0; b.idx.len() / k * d]; b.rules.reduce.count]).collect();
        for some in self.used(batches).chunks(at_once()) {
            for (e, [w2]) in some.iter().zip(self.decoded(some, ["w2"], batches)?) {
                for (batch, sums) in batches.iter().zip(&mut sums) {
                    let slots = batch.slots(*e);
                    if slots.is_empty() || batch.by.is_some() {
                        continue;
                    }
                    let mut a = Vec::with_capacity(slots.len() * inner);
                    slots.iter().for_each(|s| a.extend_from_slice(&batch.act[s * inner..(s + 1) * inner]));
                    let parts = w2.partial_sums(batch.rules.experts, batch.rules, &a, 0..d, batch.rules.reduce.count);
                    for (sum, mut out) in sums.iter_mut().zip(parts) {
                        if batch.rules.route_weight == RouteWeight::AfterDown {
                            for (slot, out) in slots.iter().zip(out.chunks_exact_mut(d)) {
                                out.iter_mut().for_each(|o| *o *= batch.wt[*slot]);
                            }
                        }
                        round_rows(batch.rules.store.rounds(), &mut out);
                        for (slot, out) in slots.iter().zip(out.chunks_exact(d)) {
                            let row = &mut sum[slot / k * d..(slot / k + 1) * d];
                            row.iter_mut().zip(out).for_each(|(y, o)| *y += o);
                        }
                    }
                }
            }
        }
        for (batch, sums) in batches.iter_mut().zip(sums) {
            batch.routed = match batch.by_kernel(|kernels, it| kernels.experts_down(it, &batch.act))? {
                Some(sum) => sum,
                None => self.path.adder.add(batch.rules.reduce, sums),
            };
            if batch.rules.scaling.combine {
                let factor = config.routed_scaling_factor as f32;
                batch.routed.iter_mut().for_each(|y| *y *= factor);
            }
        }
        Ok(())
    }
}
