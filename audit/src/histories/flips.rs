//! Changes of the most likely id under a history, against those that stock's own formats make in a cold run.

use karat_diff::logits::Position;

use crate::decisions;

/// So many standard deviations may the changes differ from those of stock, as in an audit of one history.
const SIGMAS: f64 = 4.0;

/// Paired changes. Without an effect a position is as likely to be new as to be gone, so new - gone has variance
/// new + gone (McNemar).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Added {
    /// Positions that only the history changes.
    pub new: u64,
    /// Positions that only stock's cold run changes.
    pub gone: u64,
    /// Margin and position of a change that noise of stock's size cannot make (union bound over all logits).
    pub impossible: Option<(f64, usize)>,
}

impl Added {
    /// Changes of `own` against those of `stock`, position by position, out of `vocab` ids.
    pub(super) fn of(own: &[Position], stock: &[Position], vocab: usize) -> Self {
        let mut out = Self::default();
        let noise = stock.iter().map(|p| p.delta_logit_rms).fold(0.0, f64::max);
        let bound = decisions::sigmas(own.len() * vocab) * noise * std::f64::consts::SQRT_2;
        for (i, (a, b)) in own.iter().zip(stock).enumerate() {
            out.new += u64::from(a.is_flip() && !b.is_flip());
            out.gone += u64::from(!a.is_flip() && b.is_flip());
            // A margin that is no number is beyond any bound.
            let explained = a.flip_margin <= bound;
            if (a.is_flip() && !explained) || a.nonfinite > 0 {
                out.impossible.get_or_insert((a.flip_margin, i));
            }
        }
        out
    }

    /// new - gone; infinite when a change is impossible.
    pub fn value(&self) -> f64 {
        if self.impossible.is_some() { f64::INFINITY } else { self.new as f64 - self.gone as f64 }
    }

    /// The largest value that passes.
    pub fn tolerance(&self) -> f64 {
        SIGMAS * ((self.new + self.gone) as f64).sqrt()
    }
}
