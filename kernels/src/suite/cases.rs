//! Errors over many cases, the worst kept.

use crate::evidence::CorrectnessRow;

/// Collects the cases of one image and quantity.
pub(super) struct Cases(CorrectnessRow);

impl Cases {
    /// None yet; `worst` must stay within `bound`.
    pub(super) fn new(image: &str, quantity: &str, bound: f64) -> Self {
        Self(CorrectnessRow {
            image: image.to_string(),
            quantity: quantity.to_string(),
            cases: 0,
            cpu_cases: 0,
            worst: 0.0,
            naive: 0.0,
            bound,
            bad: 0,
            worst_case: String::new(),
        })
    }

    /// One case: what the kernel gave, what is right, what the naive f32 counterpart gave.
    pub(super) fn add(&mut self, found: &[f64], right: &[f64], naive: &[f64], what: &str) {
        self.0.cases += 1;
        self.0.bad += found.iter().filter(|v| !v.is_finite()).count() as u64;
        self.0.bad += found.len().abs_diff(right.len()) as u64;
        self.0.naive = self.0.naive.max(relative(naive, right));
        self.against(found, right, what);
    }

    /// The same case against f64 on the CPU.
    pub(super) fn add_cpu(&mut self, found: &[f64], right: &[f64], what: &str) {
        self.0.cpu_cases += 1;
        self.against(found, right, what);
    }

    fn against(&mut self, found: &[f64], right: &[f64], what: &str) {
        let error = relative(found, right);
        // A NaN is no error of a size: it counts as bad, and `relative` makes it infinite.
        if error > self.0.worst {
            self.0.worst = error.min(1e30);
            self.0.worst_case = what.to_string();
        }
    }

    /// The row.
    pub(super) fn row(self) -> CorrectnessRow {
        self.0
    }
}

/// Relative L2 error; infinite if anything isn't finite; absolute where everything should be zero.
fn relative(found: &[f64], right: &[f64]) -> f64 {
    if found.len() != right.len() {
        return f64::INFINITY;
    }
    let error: f64 = found.iter().zip(right).map(|(f, r)| (f - r) * (f - r)).sum();
    let size: f64 = right.iter().map(|r| r * r).sum();
    if !error.is_finite() {
        f64::INFINITY
    } else if size == 0.0 {
        error.sqrt()
    } else {
        (error / size).sqrt()
    }
}

/// f32 values as f64.
pub(super) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|v| f64::from(*v)).collect()
}
