//! Compressor (spec 2.7): projections, and the pooling of one complete window.

use super::norm::rms_norm_as;
use super::rope::Rope;
use crate::arith::{exp, round_rows, vectorised};
use crate::kernels::Held;
use crate::linear::Linear;
use crate::plan::{Numerics, Store};

/// Parameters of one compressor, main or indexer.
pub(crate) struct CompressorWeights {
    /// Prefix of its tensors' names.
    pub prefix: String,
    /// What a kernel keeps of wkv and wgate.
    pub held: Held,
    pub wkv: Linear,
    pub wgate: Linear,
    /// `[r, c*hd]`.
    pub ape: Vec<f32>,
    /// `[hd]`.
    pub norm: Vec<f32>,
    /// r.
    pub ratio: usize,
    /// CSA: two series, pooled over two windows.
    pub overlap: bool,
}

impl CompressorWeights {
    /// hd: dims of an entry.
    pub(crate) fn head_dim(&self) -> usize {
        self.norm.len()
    }

    /// c*hd: columns of a row.
    pub(crate) fn width(&self) -> usize {
        self.wkv.rows
    }

    /// kvp and gate score (without ape): `[S, c*hd]` each. f32 sums, stored as the rules say.
    pub(crate) fn project(&self, rules: &Numerics, x: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let project = |w: &Linear| {
            let mut rows = w.apply(rules.compress, rules, x);
            round_rows(rules.compress_store.rounds(), &mut rows);
            rows
        };
        (project(&self.wkv), project(&self.wgate))
    }

    /// Softmax over the slots, separately for each channel: rows are (kvp, z), z with ape. `[hd]`, unrounded.
    pub(crate) fn pool(&self, slots: &[(&[f32], &[f32])]) -> Vec<f32> {
        let mut out = vec![0.0f32; self.head_dim()];
        pool(slots, &mut out);
        out
    }

    /// entry = rope(RMSNorm(B(pooled))), the norm leaving `normed`, at the position of the window's first token.
    pub(crate) fn finish(
        &self,
        rules: &Numerics,
        normed: Store,
        eps: f32,
        rope: &Rope,
        mut entry: Vec<f32>,
        window: usize,
    ) -> Vec<f32> {
        round_rows(rules.store.rounds(), &mut entry);
        rms_norm_as(normed, &mut entry, &self.norm, eps);
        rope.at((window * self.ratio) as u32).apply(rules.store, &mut entry, false);
        entry
    }
}

vectorised! {
    /// Softmax over the slots, separately for each channel of `out`.
    fn pool(slots: &[(&[f32], &[f32])], out: &mut [f32]) {
        let mut max = vec![f32::NEG_INFINITY; out.len()];
        let mut den = vec![0.0f32; out.len()];
        for (_, z) in slots {
            for (m, z) in max.iter_mut().zip(*z) {
                *m = m.max(*z);
            }
        }
        for (kvp, z) in slots {
            for (((out, den), max), (kvp, z)) in out.iter_mut().zip(&mut den).zip(&max).zip(kvp.iter().zip(*z)) {
                let e = exp(z - max);
                *den += e;
                *out = e.mul_add(*kvp, *out);
            }
        }
        for (out, den) in out.iter_mut().zip(&den) {
            *out /= den;
        }
    }
}
