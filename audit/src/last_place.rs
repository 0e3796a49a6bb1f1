//! Errors in units of the last place, for an op whose only rounding is one of its result.
//!
//! Rounded once to nearest, a value is off by half a unit at most, whatever its size: no chance is in it. Rounded twice, cut
//! off, or rounded to another grid, it is off by more, even where the norm of the error is what noise would leave.

use karat_bundle::TapRow;
use karat_seam::{Data, Tensor};

/// Units of the last place that one rounding to nearest may cost.
const HALF: f64 = 0.5;
/// On that: f32 sums in another order move a value that lies between two bf16 numbers to the other side.
const SLACK: f64 = 1.1;
/// Share of a row's RMS that f32 sums in another order may differ by.
const ORDER: f64 = 1.0 / (1 << 20) as f64;

/// 99th percentile of |theirs - golden| in units of golden's last place in bf16, over some rows, and the row of the largest.
/// `None` for no values.
pub(crate) fn of(golden: &Tensor, theirs: &Tensor, rows: &[usize]) -> Option<(f64, usize)> {
    let (Data::F32(g), Data::F32(t)) = (&golden.data, &theirs.data) else { return None };
    let width = golden.width();
    let (mut all, mut worst) = (Vec::with_capacity(rows.len() * width), (f64::NEG_INFINITY, *rows.first()?));
    for &i in rows {
        let (g, t) = (&g[i * width..(i + 1) * width], &t[i * width..(i + 1) * width]);
        let rms = (g.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>() / width.max(1) as f64).sqrt();
        for (g, t) in g.iter().zip(t).map(|(g, t)| (f64::from(*g), f64::from(*t))) {
            let off = (t - g).abs() - ORDER * rms;
            let units = if off > 0.0 { off / unit(g) } else { 0.0 };
            // Neither a NaN nor an infinity vanishes.
            let units = if (t - g).is_finite() { units } else { f64::INFINITY };
            all.push(units);
            if units > worst.0 {
                worst = (units, i);
            }
        }
    }
    let at = ((all.len() as f64 * 0.99).ceil() as usize).clamp(1, all.len()) - 1;
    let (_, p99, _) = all.select_nth_unstable_by(at, f64::total_cmp);
    Some((*p99, worst.1))
}

/// The last place of a value in bf16: 7 mantissa bits, f32's exponents.
fn unit(x: f64) -> f64 {
    let exponent = if x == 0.0 { -126 } else { (x.to_bits() >> 52 & 0x7ff) as i32 - 1023 };
    2f64.powi(exponent.max(-126) - 7)
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
