//! The ops of a layer that a kernel may compute: by it where the plan says so, else by the contract.

use std::sync::Arc;

use karat_model::Checkpoint;
use karat_seam::{Error, Op, Phase, Result};

use super::{Attending, Chosen, Kernels, Mix, Projecting, Scoring, Standing, choose};
use crate::layer::Resident;
use crate::ops::compress::CompressorWeights;
use crate::ops::hc::{self, Coefficients, HcWeights};
use crate::ops::index::Vectors;
use crate::plan::IndexScore;
use crate::{Optimized, PatchSets};

/// A path's kernels, and which of its ops they compute.
pub(crate) struct ByKernel {
    pub(crate) kernels: Arc<dyn Kernels>,
    chosen: [Chosen; 2],
    standings: Vec<Standing>,
}

impl ByKernel {
    pub(crate) fn chosen(&self, phase: Phase) -> &Chosen {
        &self.chosen[usize::from(phase == Phase::Decode)]
    }

    /// True when any op runs as a kernel.
    pub(crate) fn any(&self) -> bool {
        self.chosen.iter().any(|c| *c != Chosen::default())
    }
}

impl Optimized {
    /// The same path with its patches' ops computed by kernels, as far as there are some; none: by their contracts.
    #[must_use]
    pub fn computed_by(mut self, kernels: Option<Arc<dyn Kernels>>) -> Self {
        self.by_kernel = kernels.map(|kernels| {
            let (chosen, standings) = choose(&self.resolved, &self.checkpoint, &*kernels);
            ByKernel { kernels, chosen, standings }
        });
        self
    }

    /// How each patch of the plan runs; empty where all run as contracts because nothing was given to compute them.
    pub fn standings(&self) -> &[Standing] {
        self.by_kernel.as_ref().map_or(&[], |by| &by.standings)
    }

    /// True when a kernel computes the op in the phase.
    pub fn runs_kernel(&self, op: Op, phase: Phase) -> bool {
        self.by_kernel.as_ref().is_some_and(|by| by.chosen(phase).runs(op))
    }
}

impl PatchSets {
    /// The same sets, as [`Optimized::computed_by`].
    #[must_use]
    pub fn computed_by(self, kernels: Option<&Arc<dyn Kernels>>) -> Self {
        self.map(|set| set.computed_by(kernels.cloned()))
    }
}

impl Resident<'_> {
    /// The kernels, and what they compute in a phase.
    pub(crate) fn by_kernel(&self, phase: Phase) -> Option<(&dyn Kernels, &Chosen)> {
        let by = self.path.by_kernel.as_ref()?;
        Some((&*by.kernels, by.chosen(phase)))
    }

    /// Coefficients of a mixing point from the streams `h [S, hc*D]`.
    pub(crate) fn coefficients(&self, phase: Phase, w: &HcWeights, h: &[f32]) -> Result<Coefficients> {
        let (config, rules) = (self.path.config(), self.path.resolved.rules(phase));
        let Some((kernels, Chosen { mix: Some(terms), .. })) = self.by_kernel(phase) else {
            return Ok(hc::coefficients(rules, config, w, h));
        };
        let hc = config.hc_mult;
        let it = Mix {
            x: h,
            weight: &w.values,
            base: &w.base,
            scale: &w.scale,
            terms: *terms,
            hc,
            iterations: config.hc_sinkhorn_iters,
        };
        let all = kernels.mix(it).map_err(Error::source)?;
        let part = |range: std::ops::Range<usize>| {
            all.chunks_exact((2 + hc) * hc).flat_map(|row| row[range.clone()].iter().copied()).collect()
        };
        Ok(Coefficients { pre: part(0..hc), post: part(hc..2 * hc), comb: part(2 * hc..(2 + hc) * hc) })
    }

    /// kvp and gate score of a compressor: `[S, c*hd]` each.
    pub(crate) fn project(&self, phase: Phase, w: &CompressorWeights, x: &[f32]) -> Result<(Vec<f32>, Vec<f32>)> {
        let rules = self.path.resolved.rules(phase);
        let Some((kernels, Chosen { project: Some(rows), .. })) = self.by_kernel(phase) else {
            return Ok(w.project(rules, x));
        };
        let (prefix, held, columns) = (w.prefix.as_str(), &w.held, w.width());
        let checkpoint: &Checkpoint = &self.path.checkpoint;
        kernels.project(Projecting { x, checkpoint, prefix, held, columns, rows: *rows }).map_err(Error::source)
    }

    /// Index scores `[S,T]` by the kernel; `None`: by the contract.
    pub(crate) fn kernel_scores(
        &self,
        phase: Phase,
        q: &Vectors,
        weights: &[f32],
        keys: &Vectors,
        visible: &[usize],
    ) -> Result<Option<Vec<f32>>> {
        let (config, rules) = (self.path.config(), self.path.resolved.rules(phase));
        let width = visible.last().copied().unwrap_or(0);
        let Some((kernels, Chosen { index: Some(bf16_product), .. })) = self.by_kernel(phase) else {
            return Ok(None);
        };
        if width == 0 {
            return Ok(Some(Vec::new()));
        }
        let page = if let IndexScore::Folded { page, .. } = rules.index.score { page } else { 0 };
        let it = Scoring {
            q: &q.values,
            q_scales: &q.scales,
            weights,
            keys: &keys.values[..width * config.index_head_dim],
            key_scales: &keys.scales[..width],
            visible,
            heads: config.index_n_heads,
            page,
            bf16_product: *bf16_product,
        };
        kernels.index_scores(it).map(Some).map_err(Error::source)
    }

    /// The best entries of each row of scores `[S,width]` by the kernel; `None`: by the contract.
    pub(crate) fn kernel_selection(
        &self,
        phase: Phase,
        scores: &[f32],
        visible: &[usize],
    ) -> Result<Option<Vec<Vec<u32>>>> {
        let Some((kernels, Chosen { index: Some(_), .. })) = self.by_kernel(phase) else { return Ok(None) };
        if visible.last().is_none_or(|n| *n == 0) {
            return Ok(Some(vec![Vec::new(); visible.len()]));
        }
        kernels.select(scores, visible, self.path.config().index_topk).map(Some).map_err(Error::source)
    }

    /// Attention of queries `q [S,H,hd]` over their keys, one after the other, by the kernel: output and log-sum-exp.
    pub(crate) fn kernel_attention(
        &self,
        phase: Phase,
        q: &[f32],
        keys: &[f32],
        from: &[usize],
    ) -> Result<Option<(Vec<f32>, Vec<f32>)>> {
        let Some((kernels, Chosen { attend: Some(rule), .. })) = self.by_kernel(phase) else { return Ok(None) };
        let it = Attending { q, keys, from, sink: &self.w.sink, width: self.path.config().head_dim, rule: *rule };
        kernels.attend(it).map(Some).map_err(Error::source)
    }

    /// True when a kernel computes the routed experts of a phase.
    pub(crate) fn experts_run_as_kernel(&self, phase: Phase) -> bool {
        self.by_kernel(phase).is_some_and(|(_, chosen)| chosen.experts.is_some())
    }
}
