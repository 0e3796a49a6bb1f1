//! Sums, extremes and counts of a run of element pairs.

/// Coordinate of an element: row and column (flat over the axes after the first).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// Index along axis 0.
    pub row: u64,
    /// Flat index within the row.
    pub column: u64,
}

/// What adds up over element pairs (golden x, candidate y, d = y - x).
///
/// Sums and extremes cover the *finite* pairs: both values finite. Every other pair is counted, so nothing that is not
/// a number can vanish: [`Sums::nonfinite`] says how many there are and [`crate::Metrics::of`] then has no numbers.
/// The one exception is a pair of two `-inf` (a masked score on both sides), which is counted as `masked`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sums {
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
    /// Candidate values at the storage format's largest magnitude.
    pub saturated: u64,
    /// Candidate exactly zero where golden is not.
    pub zero_lost: u64,
    /// Golden exactly zero where the candidate is not.
    pub zero_gained: u64,
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
    /// Σxd: the gain without the cancellation of Σxy - Σx².
    pub xd: f64,
    /// Σ|d|.
    pub abs_d: f64,
    /// Σd.
    pub d: f64,
    /// Σd².
    pub dd: f64,
    /// Σ d·sign(x): negative when the candidate's values are too small in magnitude (truncation).
    pub outward_d: f64,
    /// max |d|.
    pub max_abs: f64,
    /// Where: the first place of that size. `None` while every d is zero.
    pub max_abs_at: Option<At>,
    /// max |x|.
    pub max_x: f64,
    /// max |y|.
    pub max_y: f64,
}

impl Sums {
    /// Pairs in which a value is not finite, masked pairs apart.
    pub fn nonfinite(&self) -> u64 {
        self.n - self.finite - self.masked
    }

    /// Adds the sums of elements that come after these.
    pub fn merge(&mut self, later: &Self) {
        self.n += later.n;
        self.finite += later.finite;
        self.masked += later.masked;
        self.nan_x += later.nan_x;
        self.nan_y += later.nan_y;
        self.inf_x += later.inf_x;
        self.inf_y += later.inf_y;
        self.first_nonfinite_at = self.first_nonfinite_at.or(later.first_nonfinite_at);
        self.saturated += later.saturated;
        self.zero_lost += later.zero_lost;
        self.zero_gained += later.zero_gained;
        self.x += later.x;
        self.y += later.y;
        self.xx += later.xx;
        self.yy += later.yy;
        self.xy += later.xy;
        self.xd += later.xd;
        self.abs_d += later.abs_d;
        self.d += later.d;
        self.dd += later.dd;
        self.outward_d += later.outward_d;
        if later.max_abs > self.max_abs {
            self.max_abs = later.max_abs;
            self.max_abs_at = later.max_abs_at;
        }
        self.max_x = self.max_x.max(later.max_x);
        self.max_y = self.max_y.max(later.max_y);
    }

    /// The same sums with row numbers moved up by `first`: for a tensor that was measured in pieces.
    pub fn at_row(mut self, first: u64) -> Self {
        for at in [&mut self.max_abs_at, &mut self.first_nonfinite_at].into_iter().flatten() {
            at.row += first;
        }
        self
    }
}
