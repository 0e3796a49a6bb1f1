//! Errors in units of the last place, for an op whose only rounding is one of its result.
//!
//! Rounded once to nearest, a value is off by half a unit at most, whatever its size: no chance is in it. Rounded twice, cut
//! off, or rounded to another grid, it is off by more, even where the norm of the error is what noise would leave.

use karat_bundle::TapRow;
use karat_diff::rows::last_places;
use karat_seam::{Data, Tensor};

/// Units of the last place that one rounding to nearest may cost.
const HALF: f64 = 0.5;
/// On that: f32 sums in another order move a value that lies between two bf16 numbers to the other side.
const SLACK: f64 = 1.1;
/// 99th percentile of |theirs - golden| in units of golden's last place in bf16, over some rows, and the row of the largest.
/// `None` for no values.
pub(crate) fn of(golden: &Tensor, theirs: &Tensor, rows: &[usize]) -> Option<(f64, usize)> {
    let (Data::F32(g), Data::F32(t)) = (&golden.data, &theirs.data) else { return None };
    last_places(g, t, golden.width(), rows)
}

/// Gates a row by it.
pub(crate) fn gate(row: &mut TapRow, p99: f64) {
    row.gate = "ulp_p99".to_string();
    row.value = Some(p99);
    row.predicted = Some(HALF);
    row.tolerance = Some(HALF * SLACK);
    row.ratio_to_predicted = Some(p99 / HALF);
    row.basis = "derived".to_string();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(values: &[f32]) -> Tensor {
        Tensor::f32([1, values.len()], values.to_vec())
    }

    /// Rounded to nearest with 8 significant bits, by hand.
    fn rounded(v: f32) -> f32 {
        let unit = 2f32.powi(v.abs().log2().floor() as i32 - 7);
        (v / unit).round_ties_even() * unit
    }

    #[test]
    fn once_rounded_is_half_a_unit_and_twice_is_more() {
        let golden: Vec<f32> = (0..2000).map(|i| 0.7 + (i as f32 * 0.618).fract() * 3.0).collect();
        let once: Vec<f32> = golden.iter().map(|v| rounded(*v)).collect();
        let (p99, _) = of(&tensor(&golden), &tensor(&once), &[0]).unwrap();
        assert!((0.45..=0.5).contains(&p99), "{p99}");
        let twice: Vec<f32> = golden.iter().map(|v| rounded(rounded(*v / 1.3) * 1.3)).collect();
        let (p99, _) = of(&tensor(&golden), &tensor(&twice), &[0]).unwrap();
        assert!(p99 > HALF * SLACK, "{p99}");
        let mut row = TapRow::default();
        gate(&mut row, p99);
        assert!(row.value > row.tolerance);
    }

    #[test]
    fn what_is_no_number_is_the_worst() {
        let golden = tensor(&[1.0; 40]);
        let mut values = vec![1.0f32; 40];
        values[7] = f32::NAN;
        assert_eq!(of(&golden, &tensor(&values), &[0]), Some((f64::INFINITY, 0)));
        assert_eq!(of(&golden, &golden, &[]), None);
        assert_eq!(of(&golden, &golden, &[0]), Some((0.0, 0)));
    }
}
