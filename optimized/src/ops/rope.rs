//! Rotary embedding (spec 2.6): interleaved pairs on the last dims, f32 angles, two bases with YaRN on one.

use std::borrow::Cow;
use std::sync::Arc;

use karat_model::Config;
use karat_model::config::LayerKind;

use crate::arith::bf16;
use crate::plan::Store;

/// The rotation of one kind of layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    inv_freq: Vec<f32>,
    /// cos and sin of the first positions, worked out once.
    table: Arc<[(f32, f32)]>,
}

/// cos and sin of each pair at one position.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn<'a> {
    pairs: Cow<'a, [(f32, f32)]>,
}

impl Rope {
    /// Sliding layers: base rope_theta, plain. Compressed layers: base compress_rope_theta with YaRN.
    pub fn of(config: &Config, kind: LayerKind) -> Self {
        let rd = config.qk_rope_head_dim;
        let base = match kind {
            LayerKind::Sliding => config.rope_theta,
            LayerKind::Csa { .. } | LayerKind::Hca { .. } => config.compress_rope_theta,
        };
        let plain = (0..rd / 2).map(|i| {
            let e = (2 * i) as f32 / rd as f32;
            1.0 / (base.powf(f64::from(e)) as f32)
        });
        let inv_freq = if kind == LayerKind::Sliding { plain.collect() } else { Self::yarn(config, base, plain) };
        Self { inv_freq, table: Arc::new([]) }
    }

    fn yarn(config: &Config, base: f64, plain: impl Iterator<Item = f32>) -> Vec<f32> {
        let (yarn, rd) = (&config.yarn, config.qk_rope_head_dim as f64);
        let turns = |r: f64| {
            rd * (yarn.original_max_position_embeddings / (2.0 * std::f64::consts::PI * r)).ln() / (2.0 * base.ln())
        };
        let low = turns(yarn.beta_fast).floor().max(0.0) as f32;
        let mut high = turns(yarn.beta_slow).ceil().min(rd - 1.0) as f32;
        if low == high {
            high += 0.001;
        }
        let factor = yarn.factor as f32;
        plain
            .enumerate()
            .map(|(i, f)| {
                let g = 1.0 - ((i as f32 - low) / (high - low)).clamp(0.0, 1.0);
                f / factor * (1.0 - g) + f * g
            })
            .collect()
    }

    /// The same with the rotations of the positions under `positions` worked out, up to a bound on memory.
    pub(crate) fn with_table(mut self, positions: usize) -> Self {
        const MOST: usize = 1 << 14;
        self.table = (0..positions.min(MOST) as u32).flat_map(|p| self.turn(p)).collect();
        self
    }

    fn turn(&self, position: u32) -> impl Iterator<Item = (f32, f32)> {
        self.inv_freq.iter().map(move |f| {
            let angle = f64::from(position as f32 * f);
            (angle.cos() as f32, angle.sin() as f32)
        })
    }

    /// The rotation at a position; the angle is fp32(pos) * fp32(inv_freq) rounded to f32, as every engine has it.
    pub fn at(&self, position: u32) -> Turn<'_> {
        let at = position as usize * self.inv_freq.len();
        let pairs = match self.table.get(at..at + self.inv_freq.len()) {
            Some(pairs) => Cow::Borrowed(pairs),
            None => self.turn(position).collect(),
        };
        Turn { pairs }
    }

    /// Frequency of each pair, f32.
    pub fn inv_freq(&self) -> &[f32] {
        &self.inv_freq
    }
}

impl Turn<'_> {
    /// Rotates the last dims of one head in place, forward or inverse, and stores them: B().
    pub fn apply(&self, store: Store, head: &mut [f32], inverse: bool) {
        let rounds = store.rounds();
        let start = head.len() - 2 * self.pairs.len();
        for (pair, &(cos, sin)) in head[start..].chunks_exact_mut(2).zip(self.pairs.iter()) {
            let sin = if inverse { -sin } else { sin };
            let (even, odd) = (pair[0], pair[1]);
            let (a, b) = (even * cos - odd * sin, even * sin + odd * cos);
            (pair[0], pair[1]) = if rounds { (bf16(a), bf16(b)) } else { (a, b) };
        }
    }
}
