//! Routed experts: each band of a weight is decoded once, for the rows of all lanes and segments that chose its expert; those
//! that round alike are rows of one product. No more than a band a thread is held of any weight.

use karat_seam::{Error, Phase, Result};
use rayon::prelude::*;

use super::Resident;
use crate::arith::round_rows;
use crate::kernels::{Chosen, Kernels, Routed};
use crate::linear::{Bands, Linear, Operand};
use crate::ops::experts::gated;
use crate::plan::{ACT_BLOCK, Numerics, Product, RouteWeight};

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
}

/// Tasks for each thread that are made of experts and bands at a time.
const TASKS: usize = 4;

/// Batches whose experts are computed alike: their rows go through a weight side by side, and no row depends on another.
struct Alike<'a> {
    rules: &'a Numerics,
    /// By expert the slots (batch, row * K + k) that chose it.
    slots: Vec<Vec<(usize, usize)>>,
}

/// True where two plans' rules make the same of an expert's rows.
fn is_alike(a: &Numerics, b: &Numerics) -> bool {
    let of = |n: &Numerics| (n.experts, n.store, n.swiglu, n.route_weight, n.reduce, n.act_floor.to_bits());
    of(a) == of(b)
}

/// An expert's rows of one group, gathered from its batches.
struct Rows {
    /// Which group.
    group: usize,
    /// What the product reads, one for each rank.
    operands: Vec<Operand>,
    /// Of the same rows a second weight's operand; none where there is no second weight.
    second: Option<Operand>,
    /// The rows' routing weights.
    wt: Vec<f32>,
}

/// One expert with the weights that are opened of it, first bands decoded.
struct Open<'a, const N: usize> {
    e: usize,
    weights: [Bands<'a>; N],
    first: [Linear; N],
    rows: Vec<Rows>,
}

impl<const N: usize> Open<'_, N> {
    /// A band of each weight.
    fn band(&self, layer: &Resident<'_>, band: usize, products: &[Product]) -> Result<Option<[Linear; N]>> {
        if band == 0 { Ok(None) } else { layer.band(&self.weights, band, products).map(Some) }
    }
}

impl<'p> Resident<'p> {
    /// Products that the batches ask of an expert's weights.
    fn products(batches: &[Batch<'_>]) -> Vec<Product> {
        let mut products = Vec::new();
        for batch in batches.iter().filter(|b| b.by.is_none()) {
            if !products.contains(&batch.rules.experts) {
                products.push(batch.rules.experts);
            }
        }
        products
    }

    /// Batches that no kernel computes, by what is computed of them.
    fn alike<'a>(&self, batches: &[Batch<'a>]) -> Vec<Alike<'a>> {
        let mut groups: Vec<Alike<'a>> = Vec::new();
        for (b, batch) in batches.iter().enumerate().filter(|(_, b)| b.by.is_none()) {
            let at = groups.iter().position(|group| is_alike(group.rules, batch.rules)).unwrap_or_else(|| {
                groups.push(Alike { rules: batch.rules, slots: vec![Vec::new(); self.config().n_routed_experts] });
                groups.len() - 1
            });
            for (slot, e) in batch.idx.iter().enumerate() {
                groups[at].slots[*e as usize].push((b, slot));
            }
        }
        groups
    }

    /// One band of some weights, in the forms for `products`.
    fn band<const N: usize>(&self, weights: &[Bands<'_>; N], band: usize, products: &[Product]) -> Result<[Linear; N]> {
        let made = self.path.shared.loads.timed_beside(|| {
            weights.iter().map(|weight| weight.load(band, products)).collect::<karat_model::Result<Vec<Linear>>>()
        });
        // One a weight.
        let wrong = |_| Error::Request("a weight of an expert was not decoded".to_string());
        made.map_err(Error::source)?.try_into().map_err(wrong)
    }

    /// Some experts' weights, and what of the batches goes through them; `gather` copies the row of a slot.
    fn open<const N: usize>(
        &self,
        experts: &[usize],
        which: [&str; N],
        groups: &[Alike<'_>],
        batches: &[Batch<'_>],
        products: &[Product],
        gather: impl Fn(&Batch<'_>, usize, &mut Vec<f32>) + Sync,
    ) -> Result<Vec<Open<'p, N>>> {
        let prefix = format!("{}.ffn.experts", super::name_of(self.config(), self.l));
        let one = |&e: &usize| -> Result<Open<'p, N>> {
            let mut weights = Vec::with_capacity(N);
            for which in which {
                self.path.shared.loads.count();
                weights
                    .push(Bands::open(&self.path.checkpoint, &format!("{prefix}.{e}.{which}")).map_err(Error::source)?);
            }
            let wrong = |_| Error::Request(format!("{prefix}.{e}: not every matrix was found"));
            let weights: [Bands<'p>; N] = weights.try_into().map_err(wrong)?;
            let first = self.band(&weights, 0, products)?;
            let mut rows = Vec::new();
            for (group, alike) in groups.iter().enumerate().filter(|(_, alike)| !alike.slots[e].is_empty()) {
                let (rules, slots) = (alike.rules, &alike.slots[e]);
                let mut x = Vec::with_capacity(slots.len() * weights[0].cols());
                slots.iter().for_each(|(b, slot)| gather(&batches[*b], *slot, &mut x));
                let wt = slots.iter().map(|(b, slot)| batches[*b].wt[*slot]).collect();
                // Only w2's sums are parted.
                let ranks = if N == 1 { rules.reduce.count } else { 1 };
                let second = first.get(1).map(|second| second.operand(rules.experts, rules, &x));
                let operands = first[0].operand(rules.experts, rules, &x).parts(weights[0].cols(), ranks);
                rows.push(Rows { group, operands, second, wt });
            }
            Ok(Open { e, weights, first, rows })
        };
        experts.par_iter().map(one).collect()
    }

    /// Experts that some row chose, in ascending order, as many at a time as there are bands for all threads.
    fn chosen(&self, groups: &[Alike<'_>], rows: usize) -> Vec<Vec<usize>> {
        let experts = 0..self.config().n_routed_experts;
        let used: Vec<usize> = experts.filter(|e| groups.iter().any(|group| !group.slots[*e].is_empty())).collect();
        let at_once = (TASKS * rayon::current_num_threads()).div_ceil(rows.div_ceil(ACT_BLOCK).max(1));
        used.chunks(at_once.max(1)).map(<[usize]>::to_vec).collect()
    }

    /// `run` for each band of each expert, side by side.
    fn each_band<const N: usize, R: Send>(
        &self,
        open: &[Open<'_, N>],
        products: &[Product],
        run: impl Fn(&Open<'_, N>, &[Linear; N]) -> Vec<R> + Sync,
    ) -> Result<Vec<(usize, usize, Vec<R>)>> {
        let tasks: Vec<(usize, usize)> =
            open.iter().enumerate().flat_map(|(i, of)| (0..of.weights[0].count()).map(move |band| (i, band))).collect();
        let one = |&(i, band): &(usize, usize)| {
            let of = &open[i];
            let loaded = of.band(self, band, products)?;
            Ok((i, of.weights[0].first(band), run(of, loaded.as_ref().unwrap_or(&of.first))))
        };
        tasks.par_iter().with_max_len(1).map(one).collect()
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
        let (groups, products) = (self.alike(batches), Self::products(batches));
        for some in self.chosen(&groups, inner) {
            let x = |batch: &Batch<'_>, slot: usize, to: &mut Vec<f32>| {
                to.extend_from_slice(&batch.x[slot / k * d..(slot / k + 1) * d]);
            };
            let open = self.open(&some, ["w1", "w3"], &groups, batches, &products, x)?;
            let done = self.each_band(&open, &products, |of, [w1, w3]| {
                let act = |rows: &Rows| {
                    let (rules, x) = (groups[rows.group].rules, &rows.operands[0]);
                    let g = w1.product(rules.experts, x, 0..w1.rows);
                    let u = w3.product(rules.experts, rows.second.as_ref().unwrap_or(x), 0..w3.rows);
                    let wt = (rules.route_weight == RouteWeight::BeforeDown).then_some(rows.wt.as_slice());
                    gated(rules, limit, w1.rows, g, u, wt)
                };
                of.rows.iter().map(act).collect()
            })?;
            for (i, first, acts) in done {
                for (rows, act) in open[i].rows.iter().zip(acts) {
                    let slots = &groups[rows.group].slots[open[i].e];
                    let n = act.len() / slots.len();
                    for ((b, slot), a) in slots.iter().zip(act.chunks_exact(n)) {
                        batches[*b].act[slot * inner + first..][..n].copy_from_slice(a);
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
        let (groups, products) = (self.alike(batches), Self::products(batches));
        for some in self.chosen(&groups, d) {
            let act = |batch: &Batch<'_>, slot: usize, to: &mut Vec<f32>| {
                to.extend_from_slice(&batch.act[slot * inner..(slot + 1) * inner]);
            };
            let open = self.open(&some, ["w2"], &groups, batches, &products, act)?;
            let done = self.each_band(&open, &products, |of, [w2]| {
                let outs = |rows: &Rows| {
                    let rules = groups[rows.group].rules;
                    let out = |x: &Operand| {
                        let mut out = w2.product(rules.experts, x, 0..w2.rows);
                        if rules.route_weight == RouteWeight::AfterDown {
                            for (out, wt) in out.chunks_exact_mut(w2.rows).zip(&rows.wt) {
                                out.iter_mut().for_each(|o| *o *= wt);
                            }
                        }
                        round_rows(rules.store.rounds(), &mut out);
                        out
                    };
                    rows.operands.iter().map(out).collect::<Vec<Vec<f32>>>()
                };
                of.rows.iter().map(outs).collect()
            })?;
            // In ascending order of the experts.
            for (i, first, outs) in done {
                for (rows, parts) in open[i].rows.iter().zip(outs) {
                    let slots = &groups[rows.group].slots[open[i].e];
                    for (part, out) in parts.iter().enumerate() {
                        let n = out.len() / slots.len();
                        for ((b, slot), out) in slots.iter().zip(out.chunks_exact(n)) {
                            let row = &mut sums[*b][part][slot / k * d + first..][..n];
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
