//! How much an index score must err in the claimed formats: per entry, from golden's own operands.

use karat_diff::tolerance::{Measure, ROUNDINGS};
use karat_seam::{Phase, Recorded, Recorder, Site, Tap};

use crate::compare::Context;
use crate::predict;

/// Golden's operands of one sequence's index scores in one layer: `q [S,Hi,di]`, `k [T,di]`, `w [S,Hi]`.
pub(crate) struct IndexNoise<'a> {
    q: &'a [f32],
    k: &'a [f32],
    w: &'a [f32],
    heads: usize,
    dim: usize,
}

impl<'a> IndexNoise<'a> {
    /// `None` where a tap is missing or is not f32 (a candidate that brings scores alone), or the keys are not all from the first
    /// on (sampled rows make some).
    pub(crate) fn of(on_x2: &'a Recorder, (l, seq): (u16, u32)) -> Option<Self> {
        let tap = |tap| on_x2.get(Site::layer(l, tap), seq);
        let (q, k, w) = (tap(Tap::AttnIndexQ)?, tap(Tap::AttnIndexK)?, tap(Tap::AttnIndexW)?);
        let values = |r: &'a Recorded| r.tensor.as_f32("index operands").ok();
        let [_, heads, dim] = q.tensor.shape[..] else { return None };
        if k.rows.iter().enumerate().any(|(entry, row)| row.pos as usize != entry) {
            return None;
        }
        Some(Self { q: values(q)?, k: values(k)?, w: values(w)?, heads, dim })
    }

    /// Standard deviation of the difference of two entries' scores for the query in row `row`, over √2, so that it
    /// stands for one score. `None` under a claim that is judged by the largest value (f32): there is no format noise.
    ///
    /// score(w) = Σ_h relu(q_h·k_w)·w_h. Rounding errors of relative size r spread evenly over the di dims (Hadamard
    /// makes them so; without it a block's scale does), therefore
    ///   var = r_k²·|k|²/di·|Σ_h a_h·w_h·q_h|² + r_q²·|k|²/di·Σ_h a_h·w_h²·|q_h|² + r_s²·Σ_h (a_h·w_h·q_h·k)²
    /// with a_h = 1 where the head is active. A key's error is common to all heads, a query's is not. r_s is the
    /// rounding of the stored weights and scores.
    pub(crate) fn of_pair(&self, at: &Context<'_>, phase: Phase, row: usize, entries: [Option<u32>; 2]) -> Option<f64> {
        let relative = |tap| {
            let t = predict::tolerance(at.candidate.claims, tap, phase, &at.candidate.patches, |_| None);
            (t.measure == Measure::RelL2).then_some(t.value / ROUNDINGS)
        };
        let (rq, rk, rs) = (relative(Tap::AttnIndexQ)?, relative(Tap::AttnIndexK)?, relative(Tap::AttnIndexW)?);
        let variance: f64 = entries.iter().flatten().filter_map(|e| self.variance(row, *e, rq, rk, rs)).sum();
        Some((variance / 2.0).sqrt())
    }

    fn variance(&self, row: usize, entry: u32, rq: f64, rk: f64, rs: f64) -> Option<f64> {
        let (heads, dim) = (self.heads, self.dim);
        let k = self.k.get(entry as usize * dim..(entry as usize + 1) * dim)?;
        let q = self.q.get(row * heads * dim..(row + 1) * heads * dim)?;
        let w = self.w.get(row * heads..(row + 1) * heads)?;
        let mut mixed = vec![0.0; dim];
        let (mut apart, mut stored) = (0.0, 0.0);
        for (q, w) in q.chunks_exact(dim).zip(w) {
            let dot: f64 = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
            if dot <= 0.0 {
                continue;
            }
            let w = f64::from(*w);
            apart += w * w * squares(q);
            stored += w * dot * (w * dot);
            mixed.iter_mut().zip(q).for_each(|(m, q)| *m += w * f64::from(*q));
        }
        let mixed: f64 = mixed.iter().map(|m| m * m).sum();
        Some(squares(k) / dim as f64 * (rk * rk * mixed + rq * rq * apart) + rs * rs * stored)
    }
}

fn squares(v: &[f32]) -> f64 {
    v.iter().map(|v| f64::from(*v) * f64::from(*v)).sum()
}
