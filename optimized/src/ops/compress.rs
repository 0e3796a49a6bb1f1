//! Compressor (spec 2.7): projections, and the pooling of one complete window.

use super::norm::inverse_rms;
use super::rope::Rope;
use crate::arith::{bf16, exp, round_rows};
use crate::linear::Linear;
use crate::plan::Numerics;

/// Parameters of one compressor, main or indexer.
pub(crate) struct CompressorWeights {
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

    /// kvp and gate score (without ape): `[S, c*hd]` each. f32 product, no storage rounding.
    pub(crate) fn project(&self, rules: &Numerics, x: &[f32]) -> (Vec<f32>, Vec<f32>) {
        (self.wkv.apply(rules.compress, rules, x), self.wgate.apply(rules.compress, rules, x))
    }

    /// Softmax over the slots, separately for each channel: rows are (kvp, z), z with ape. `[hd]`, unrounded.
    pub(crate) fn pool(&self, slots: &[(&[f32], &[f32])]) -> Vec<f32> {
        (0..self.head_dim())
            .map(|d| {
                let max = slots.iter().fold(f32::NEG_INFINITY, |m, (_, z)| m.max(z[d]));
                let (mut den, mut num) = (0.0f32, 0.0f32);
                for (kvp, z) in slots {
                    let e = exp(z[d] - max);
                    den += e;
                    num = e.mul_add(kvp[d], num);
                }
                num / den
            })
            .collect()
    }

    /// entry = rope(RMSNorm(B(pooled))) at the position of the window's first token.
    pub(crate) fn finish(
        &self,
        rules: &Numerics,
        eps: f32,
        rope: &Rope,
        mut entry: Vec<f32>,
        window: usize,
    ) -> Vec<f32> {
        let rounds = rules.store.rounds();
        round_rows(rounds, &mut entry);
        let r = inverse_rms(&entry, eps);
        for (v, w) in entry.iter_mut().zip(&self.norm) {
            let y = w * (*v * r);
            *v = if rounds { bf16(y) } else { y };
        }
        rope.at((window * self.ratio) as u32).apply(rules.store, &mut entry, false);
        entry
    }
}
