//! Rotary position embedding (spec 2.6).
//!
//! Interleaved pairs on the LAST rd dims of a head: pair i = dims (2i, 2i+1) is rotated by `f32(pos) * inv_freq[i]`:
//! `even' = e*cos - o*sin`, `odd' = e*sin + o*cos`; the inverse turns the sign of sin. Angles are radians in f32 in both
//! modes. Sliding layers: `inv_freq[i] = base^(-2i/rd)`. Compressed layers: the other base with YaRN, for q, window kv,
//! entries, index queries and index keys alike; neither cos/sin nor the softmax scale takes a factor.
//! inv_freq is made in f32 steps, as spec 2.6 lists them; pow is libm's in f64, rounded to f32.

use std::sync::{Arc, PoisonError, RwLock};

use karat_model::Config;
use rayon::prelude::*;

use super::Ctx;
use crate::linalg::Real;
use crate::made::Made;

/// Inverse frequencies of one rope.
#[derive(Debug)]
pub struct Rope {
    /// `[rd/2]`, radians a position.
    pub inv_freq: Vec<f32>,
    /// `[n, rd/2]` (cos, sin) in f64 of positions 0..n: every layer asks for the same ones.
    known: RwLock<Arc<Vec<(f64, f64)>>>,
}

/// Positions whose turns are kept at most.
const KEPT: usize = 1 << 16;

impl Rope {
    /// The rope of sliding layers and MTP blocks.
    pub fn plain(config: &Config) -> Self {
        Self::of(frequencies(config.rope_theta, config.qk_rope_head_dim))
    }

    /// The rope of compressed layers: YaRN.
    pub fn yarn(config: &Config) -> Self {
        let (rd, yarn) = (config.qk_rope_head_dim, &config.yarn);
        let base = config.compress_rope_theta;
        let boundary = |rotations: f64| {
            let turns = yarn.original_max_position_embeddings / (2.0 * std::f64::consts::PI * rotations);
            rd as f64 * libm::log(turns) / (2.0 * libm::log(base))
        };
        let low = boundary(yarn.beta_fast).floor().max(0.0);
        let mut high = boundary(yarn.beta_slow).ceil().min(rd as f64 - 1.0);
        if low == high {
            high += 0.001;
        }
        let mut inv_freq = frequencies(base, rd);
        let factor = yarn.factor as f32;
        for (i, inv) in inv_freq.iter_mut().enumerate() {
            let ramp = ((i as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
            let g = 1.0 - ramp;
            *inv = *inv / factor * (1.0 - g) + *inv * g;
        }
        Self::of(inv_freq)
    }

    fn of(inv_freq: Vec<f32>) -> Self {
        Self { inv_freq, known: RwLock::default() }
    }

    /// (cos, sin) of each angle at a position.
    fn turns(&self, pos: usize) -> impl Iterator<Item = (f64, f64)> {
        self.inv_freq.iter().map(move |&inv| {
            let angle = f64::from(pos as u32 as f32 * inv);
            (libm::cos(angle), libm::sin(angle))
        })
    }

    /// The turns of positions 0..n at least, n at most KEPT.
    fn known(&self, n: usize) -> Arc<Vec<(f64, f64)>> {
        let half = self.inv_freq.len();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        if known.len() >= n * half {
            return known;
        }
        let (from, to) = (known.len() / half, n.next_power_of_two().min(KEPT));
        let mut turns = known.to_vec();
        let fresh: Vec<_> = (from..to).into_par_iter().with_min_len(64).flat_map_iter(|pos| self.turns(pos)).collect();
        turns.extend(fresh);
        let turns = Arc::new(turns);
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = turns.clone();
        turns
    }
}

fn frequencies(base: f64, rd: usize) -> Vec<f32> {
    let exponent = |i: usize| (2 * i) as f32 / rd as f32;
    (0..rd / 2).map(|i| 1.0 / libm::pow(base, f64::from(exponent(i))) as f32).collect()
}

/// Cosines and sines of some positions.
#[derive(Debug, Clone, Default)]
pub struct Angles<T> {
    half: usize,
    /// `[n, rd/2]` pairs (cos, sin).
    turns: Vec<(T, T)>,
}

impl<T: Real> Angles<T> {
    /// Of each position.
    pub fn at(rope: &Rope, positions: impl IntoIterator<Item = u32>) -> Self {
        let half = rope.inv_freq.len();
        let positions: Vec<usize> = positions.into_iter().map(|pos| pos as usize).collect();
        let most = positions.iter().filter(|&&pos| pos < KEPT).max();
        let known = rope.known(most.map_or(0, |pos| pos + 1));
        let mut turns = Vec::with_capacity(positions.len() * half);
        let round = |(cos, sin): (f64, f64)| (T::of(cos), T::of(sin));
        for pos in positions {
            match known.get(pos * half..(pos + 1) * half) {
                Some(row) => turns.extend(row.iter().copied().map(round)),
                None => turns.extend(rope.turns(pos).map(round)),
            }
        }
        Self { half, turns }
    }

    fn row(&self, i: usize) -> &[(T, T)] {
        &self.turns[i * self.half..(i + 1) * self.half]
    }

    /// Rotates the last rd dims of every head of all rows in place: x `[S, heads, width]`; `back` turns them back.
    pub(crate) fn rotate_rows(&self, ctx: Ctx<'_>, x: &mut Made<T>, (heads, width): (usize, usize), back: bool) {
        let turns = || -> Vec<T> { self.turns.iter().flat_map(|&(cos, sin)| [cos, sin]).collect() };
        if let Some(y) = ctx.values(|there| there.rotate(T::single(x), width, T::single(&turns()), self.half, back)) {
            *x = y;
            return;
        }
        let rows = x.par_chunks_exact_mut(heads * width).enumerate().with_min_len((64 / heads).max(16));
        rows.for_each(|(i, x)| self.turn(i, x, width, back));
    }

    /// Rotates the last rd dims of every head of row i in place: x `[heads, width]`.
    pub fn rotate(&self, i: usize, x: &mut [T], width: usize) {
        self.turn(i, x, width, false);
    }

    /// The inverse of [`Self::rotate`].
    pub fn rotate_back(&self, i: usize, x: &mut [T], width: usize) {
        self.turn(i, x, width, true);
    }

    fn turn(&self, i: usize, x: &mut [T], width: usize, back: bool) {
        let turns = self.row(i);
        for head in x.chunks_exact_mut(width) {
            let pairs = head[width - 2 * self.half..].as_chunks_mut::<2>().0;
            for ([e, o], &(cos, sin)) in pairs.iter_mut().zip(turns) {
                let sin = if back { -sin } else { sin };
                (*e, *o) = (*e * cos - *o * sin, *e * sin + *o * cos);
            }
        }
    }
}
