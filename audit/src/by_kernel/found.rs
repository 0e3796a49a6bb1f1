//! How far one result is off another, summed row by row.

/// How far one result is off another.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) compared: u64,
    pub(super) differing: u64,
    error: f64,
    size: f64,
    pub(super) max_abs: f64,
    /// Position of the row with the largest difference.
    pub(super) worst: Option<u32>,
    pub(super) nonfinite: u64,
    /// In units of bf16's last place.
    pub(super) worst_ulps: f64,
}

impl Found {
    /// Adds a row; what both have as the same infinity (a masked score) is equal.
    pub(super) fn row(&mut self, pos: u32, right: &[f32], theirs: &[f32]) {
        right.iter().zip(theirs).for_each(|(r, t)| self.value(pos, *r, *t));
    }

    fn value(&mut self, pos: u32, right: f32, theirs: f32) {
        self.compared += 1;
        if right.to_bits() == theirs.to_bits() || (right == 0.0 && theirs == 0.0) {
            if right.is_finite() {
                self.size += f64::from(right) * f64::from(right);
            } else if right.is_nan() {
                self.nonfinite += 1;
            }
            return;
        }
        self.differing += 1;
        let d = f64::from(theirs) - f64::from(right);
        if !d.is_finite() {
            self.nonfinite += 1;
            self.worst = Some(pos);
            return;
        }
        self.error += d * d;
        self.size += f64::from(right) * f64::from(right);
        if d.abs() > self.max_abs {
            (self.max_abs, self.worst) = (d.abs(), Some(pos));
        }
        let unit = f64::exp2(f64::from(right.abs().max(f32::MIN_POSITIVE)).log2().floor() - 7.0);
        self.worst_ulps = self.worst_ulps.max(d.abs() / unit);
    }

    /// Adds a row of decisions.
    pub(super) fn discrete<T: PartialEq>(&mut self, pos: u32, right: &[T], theirs: &[T]) {
        let differing = right.iter().zip(theirs).filter(|(r, t)| r != t).count() as u64;
        self.compared += right.len() as u64;
        self.differing += differing;
        if differing > 0 {
            self.worst.get_or_insert(pos);
        }
    }

    /// Adds rows that come after these.
    pub(super) fn merge(&mut self, other: &Self) {
        self.compared += other.compared;
        self.differing += other.differing;
        self.error += other.error;
        self.size += other.size;
        if other.max_abs > self.max_abs || self.worst.is_none() {
            self.worst = other.worst.or(self.worst);
        }
        self.max_abs = self.max_abs.max(other.max_abs);
        self.nonfinite += other.nonfinite;
        self.worst_ulps = self.worst_ulps.max(other.worst_ulps);
    }

    pub(super) fn rel_l2(&self) -> Option<f64> {
        match (self.compared, self.error, self.size) {
            (0, ..) => None,
            (_, 0.0, _) => Some(0.0),
            (_, error, size) => Some((error / size).sqrt()),
        }
    }
}
