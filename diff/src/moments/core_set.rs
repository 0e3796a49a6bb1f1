//! The core set: what rel-L2, cosine, the largest error with its place, means, biases and the census of numbers that
//! are not finite need.

use std::collections::BTreeMap;

use super::{At, Cell, Sums};

/// [`Sums`] without what costs another look at the elements. The fields mean the same and have the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CoreSums {
    /// Pairs seen.
    pub n: u64,
    /// Pairs of two finite values.
    pub finite: u64,
    /// Pairs of two `-inf`.
    pub masked: u64,
    /// Golden values that are NaN.
    pub nan_x: u64,
    /// Candidate values that are NaN.
    pub nan_y: u64,
    /// Golden values that are infinite, masked pairs apart.
    pub inf_x: u64,
    /// Candidate values that are infinite, masked pairs apart.
    pub inf_y: u64,
    /// The first pair that is not finite, masked pairs apart.
    pub first_nonfinite_at: Option<At>,
    /// Σx.
    pub x: f64,
    /// Σy.
    pub y: f64,
    /// Σx².
    pub xx: f64,
    /// Σy².
    pub yy: f64,
    /// Σxy.
    pub xy: f64,
    /// Σ|d|.
    pub abs_d: f64,
    /// Σd.
    pub d: f64,
    /// Σd².
    pub dd: f64,
    /// max |d|.
    pub max_abs: f64,
    /// Where: the first place of that size. `None` while every d is zero.
    pub max_abs_at: Option<At>,
    /// max |x|.
    pub max_x: f64,
    /// max |y|.
    pub max_y: f64,
}

impl CoreSums {
    /// What the core set has of the full one.
    pub fn of(s: &Sums) -> Self {
        Self {
            n: s.n,
            finite: s.finite,
            masked: s.masked,
            nan_x: s.nan_x,
            nan_y: s.nan_y,
            inf_x: s.inf_x,
            inf_y: s.inf_y,
            first_nonfinite_at: s.first_nonfinite_at,
            x: s.x,
            y: s.y,
            xx: s.xx,
            yy: s.yy,
            xy: s.xy,
            abs_d: s.abs_d,
            d: s.d,
            dd: s.dd,
            max_abs: s.max_abs,
            max_abs_at: s.max_abs_at,
            max_x: s.max_x,
            max_y: s.max_y,
        }
    }

    /// Pairs in which a value is not finite, masked pairs apart.
    pub fn nonfinite(&self) -> u64 {
        self.n - self.finite - self.masked
    }

    /// Adds the sums of elements that come after these.
    pub fn merge(&mut self, later: &Self) {
        let mut all = self.as_sums();
        all.merge(&later.as_sums());
        *self = Self::of(&all);
    }

    fn as_sums(&self) -> Sums {
        Sums {
            n: self.n,
            finite: self.finite,
            masked: self.masked,
            nan_x: self.nan_x,
            nan_y: self.nan_y,
            inf_x: self.inf_x,
            inf_y: self.inf_y,
            first_nonfinite_at: self.first_nonfinite_at,
            x: self.x,
            y: self.y,
            xx: self.xx,
            yy: self.yy,
            xy: self.xy,
            abs_d: self.abs_d,
            d: self.d,
            dd: self.dd,
            max_abs: self.max_abs,
            max_abs_at: self.max_abs_at,
            max_x: self.max_x,
            max_y: self.max_y,
            ..Sums::default()
        }
    }
}

/// Result of [`super::measure_core`].
#[derive(Debug, Clone, PartialEq)]
pub struct CoreMeasured {
    /// Everything.
    pub total: CoreSums,
    /// By class of row and part of row, in order. Only cells that hold an element.
    pub cells: BTreeMap<Cell, CoreSums>,
}
