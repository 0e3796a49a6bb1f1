//! What a tap may differ by, and the verdict of one row.
//!
//! A **provisional** tolerance is 1e-5 of the tap's largest value for a path that claims f32, else four times the typical
//! error of one rounding of the coarsest kind on the way to the tap. A **derived** one is 1.5 times the error that the
//! roundings of the path's numeric plan must cost, measured on golden's own values ([`quantise`]). A derived tolerance
//! tightens a provisional one ([`Tolerance::tightened`]). It loosens one only for sums that cancel, where the plan must cost more on
//! golden's own values than the four roundings allow ([`Tolerance::raised`]), never by what a candidate shows.

mod claims;
pub mod noise;
pub mod quantise;
#[cfg(test)]
mod tests;

use karat_seam::Tap;

pub use claims::Claims;

use crate::metrics::Metrics;
use crate::storage::Rounding;

/// A tolerance must be this many floors, or the test could not have seen it.
pub const FLOORS: f64 = 10.0;
/// Share of the tap's largest value that a path which claims f32 may be off by.
pub const F32_MAX_OVER_MAX: f64 = 1e-5;
/// Factor on the table of one-rounding errors.
pub const ROUNDINGS: f64 = 4.0;
/// Factor on a derived error.
pub const DERIVED: f64 = 1.5;
/// A path that claims to round and errs by less than this share of a derived error does not round.
pub const INACTIVE: f64 = 0.3;

/// Factor by which two errors of one size may differ by chance, when n rows carry the error (the square of the sum
/// of d² over the sum of d⁴, of rows): each has a relative standard deviation of 1/(2√n), as the root of a sum X of squares with 2n
/// degrees of freedom has. Of two such, for every 0 < t < 1,
///
/// ```text
/// P(X > f Y) <= E exp(t (X - f Y) / 2) = ((1 - t) (1 + t f))^-n
/// ```
///
/// which at its best t is cosh(u)^-2n with f = exp(2u). The factor is exp(u) where that is exp(-8), the bound's value at four standard
/// deviations of a normal variable: exp(4/√(2n)) for many rows, and more for a few, of which one alone may be off by any factor.
pub fn chance(effective_rows: f64) -> f64 {
    let c = (4.0 / effective_rows.max(f64::MIN_POSITIVE)).exp();
    c + (c * c - 1.0).sqrt()
}

/// n for [`chance`] of rows that carry an error, each of which has so many values that are free to err: with one alone it is
/// half a row, since the root of n squares has a relative standard deviation of 1/√(2n).
pub fn effective_rows(rows: f64, free: usize) -> f64 {
    if free == 1 { rows / 2.0 } else { rows }
}

/// rel-L2 of a sum of `k` products of zero mean with an f32 accumulator that rounds to nearest: partial sums grow as √k,
/// so r² = (0.41·u)²·k/2 with u = 2^-24.
pub fn accumulator(k: usize) -> f64 {
    0.41 * 2f64.powi(-24) * (k as f64 / 2.0).sqrt()
}

/// Independent errors add up in squares.
pub fn root_sum(costs: impl IntoIterator<Item = f64>) -> f64 {
    costs.into_iter().map(|c| c * c).sum::<f64>().sqrt()
}

/// Which number a tolerance bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Measure {
    /// max |d| over max |x|.
    MaxOverMax,
    /// ‖d‖/‖x‖.
    RelL2,
}

impl Measure {
    /// This number of a tensor's metrics.
    pub fn of(self, metrics: &Metrics) -> f64 {
        match self {
            Self::MaxOverMax => metrics.max_over_max,
            Self::RelL2 => metrics.rel_l2,
        }
    }

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::MaxOverMax => "max_over_max",
            Self::RelL2 => "rel_l2",
        }
    }
}

/// What one tap may differ by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// What it bounds.
    pub measure: Measure,
    /// The bound.
    pub value: f64,
    /// Error that the claimed format predicts, in the same measure.
    pub predicted: f64,
    /// Kind of rounding that it stems from.
    pub rounding: Rounding,
    /// True until the tolerance is derived from measured roundings.
    pub provisional: bool,
}

/// Verdict of one compared row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Within tolerance.
    Pass,
    /// At or under the floor: golden itself can't tell the difference.
    PassAtFloor,
    /// Over tolerance, or not a number.
    Fail,
    /// The tolerance is under 10 floors, so the comparison could not have seen it.
    Unproven,
}

impl Verdict {
    /// As printed in tables and the `verdict` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::PassAtFloor => "<= floor",
            Self::Fail => "fail",
            Self::Unproven => "unproven",
        }
    }

    /// True for both kinds of pass.
    pub fn is_pass(self) -> bool {
        matches!(self, Self::Pass | Self::PassAtFloor)
    }
}

impl Tolerance {
    /// The provisional tolerance of a tap under the candidate's claims. `floor` is the distance f32 to f64 in the same
    /// measure, where it was measured; it raises the f32 tolerance to 10 floors.
    pub fn provisional(claims: Claims, tap: Tap, floor: Option<f64>) -> Self {
        let rounding = claims.rounding(tap);
        if rounding == Rounding::F32 {
            let floors = floor.filter(|f| f.is_finite()).map_or(0.0, |f| FLOORS * f);
            return Self {
                measure: Measure::MaxOverMax,
                value: F32_MAX_OVER_MAX.max(floors),
                predicted: rounding.rel_l2(),
                rounding,
                provisional: true,
            };
        }
        Self {
            measure: Measure::RelL2,
            value: ROUNDINGS * rounding.rel_l2(),
            predicted: rounding.rel_l2(),
            rounding,
            provisional: true,
        }
    }

    /// The tighter of this tolerance and 1.5 times an error that was derived for the row, times what chance may do to the
    /// rows that carry it. Arithmetic in f32 outside of
    /// products is in no derivation, so a derived tolerance is never under what a path that claims f32 may differ by.
    pub fn tightened(self, derived: f64, effective_rows: f64) -> Self {
        let value = (DERIVED * derived * chance(effective_rows)).max(F32_MAX_OVER_MAX);
        if self.measure != Measure::RelL2 || !derived.is_finite() || value >= self.value {
            return self;
        }
        Self { value, predicted: derived.max(F32_MAX_OVER_MAX / DERIVED), provisional: false, ..self }
    }

    /// This tolerance where the plan's roundings cost more on the row than the one rounding that it stands on: a sum whose
    /// terms cancel keeps their errors, not their size, so relative to what is left four roundings may be less than the plan
    /// itself must cost. Never more than the factor of four on what was derived, but for a value that is judged alone (less than one
    /// effective row): of that one draw of the noise tells little.
    pub fn raised(self, derived: f64, effective_rows: f64) -> Self {
        let most = if effective_rows < 1.0 { f64::INFINITY } else { ROUNDINGS * derived };
        let value = (DERIVED * derived * chance(effective_rows)).min(most);
        if self.measure != Measure::RelL2 || !derived.is_finite() || value <= self.value {
            return self;
        }
        Self { value, predicted: derived, provisional: false, ..self }
    }

    /// Verdict on an error in this tolerance's measure. A NaN fails. An error at or under the floor passes whatever
    /// the tolerance; one over both the tolerance and 10 floors fails; else a tolerance under 10 floors proves nothing.
    pub fn verdict(&self, error: f64, floor: Option<f64>) -> Verdict {
        let floor = floor.unwrap_or(0.0);
        if error.is_nan() || floor.is_nan() {
            return Verdict::Fail;
        }
        let blind = self.value < FLOORS * floor;
        if error == 0.0 || error <= floor {
            Verdict::PassAtFloor
        } else if error > self.value && (!blind || error > FLOORS * floor) {
            Verdict::Fail
        } else if blind {
            Verdict::Unproven
        } else {
            Verdict::Pass
        }
    }

    /// Verdict on a tensor's metrics: anything that is not finite fails.
    pub fn judge(&self, metrics: &Metrics, floor: Option<f64>) -> Verdict {
        if metrics.nonfinite > 0 { Verdict::Fail } else { self.verdict(self.measure.of(metrics), floor) }
    }
}
