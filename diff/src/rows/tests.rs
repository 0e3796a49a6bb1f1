use super::*;
use crate::Isa;

/// Rows with masked, missing and equal values among them.
fn pair(rows: usize, width: usize) -> (Vec<f32>, Vec<f32>) {
    let golden: Vec<f32> = (0..rows * width)
        .map(|i| match i % 41 {
            3 => f32::NEG_INFINITY,
            9 => 0.0,
            _ => ((i as f32 * 0.618).fract() - 0.3) * 3.0,
        })
        .collect();
    let theirs = golden.iter().enumerate().map(|(i, v)| v * (1.0 + (i % 7) as f32 * 1e-3)).collect();
    (golden, theirs)
}

#[test]
fn rows_together_have_the_bits_of_their_formula() {
    let (golden, theirs) = pair(23, 19);
    for rows in [vec![0], vec![1, 2, 5], (3..19).collect::<Vec<_>>(), (0..23).collect()] {
        let (mut error, mut size, mut fourth, mut worst) = (0.0, 0.0, 0.0, (-1.0, 0));
        for &r in &rows {
            let (mut off, mut of_row) = (0.0, 0.0);
            for (g, t) in golden[r * 19..(r + 1) * 19].iter().zip(&theirs[r * 19..(r + 1) * 19]) {
                if g.is_finite() {
                    off += (f64::from(*t) - f64::from(*g)).powi(2);
                    of_row += f64::from(*g).powi(2);
                }
            }
            (error, size, fourth) = (error + off, size + of_row, fourth + of_row * of_row);
            worst = if off > worst.0 { (off, r) } else { worst };
        }
        let want = Distance { error: (error / size).sqrt(), worst: worst.1, carry: size * size / fourth };
        for isa in [Isa::Plain, Isa::best()] {
            isa.hold_to();
            assert_eq!(distance(&golden, &theirs, 19, &rows), Some(want), "{isa:?} {rows:?}");
        }
        Isa::best().hold_to();
    }
}

#[test]
fn the_last_places_are_those_of_all_sorted() {
    for (rows, width) in [(1, 1), (1, 100), (7, 33), (40, 19)] {
        let (mut golden, theirs) = pair(rows, width);
        // What is masked on both sides is infinitely far off here: such taps are not asked.
        golden.iter_mut().filter(|g| g.is_infinite()).for_each(|g| *g = 2.0);
        let theirs: Vec<f32> = theirs.iter().map(|t| if t.is_finite() { *t } else { 2.01 }).collect();
        let (mut all, mut worst) = (Vec::new(), (-1.0, 0));
        for r in 0..rows {
            let (g, t) = (&golden[r * width..(r + 1) * width], &theirs[r * width..(r + 1) * width]);
            let rms = (g.iter().fold(0.0, |sum, g| sum + f64::from(*g).powi(2)) / width as f64).sqrt();
            for (g, t) in g.iter().zip(t).map(|(g, t)| (f64::from(*g), f64::from(*t))) {
                let exponent = if g == 0.0 { -126 } else { (g.abs().log2().floor() as i32).max(-126) };
                let units = ((t - g).abs() - rms / 1_048_576.0).max(0.0) / 2f64.powi(exponent - 7);
                worst = if units > worst.0 { (units, r) } else { worst };
                all.push(units);
            }
        }
        all.sort_by(f64::total_cmp);
        let want = all[((all.len() as f64 * 0.99).ceil() as usize).clamp(1, all.len()) - 1];
        let every: Vec<usize> = (0..rows).collect();
        for isa in [Isa::Plain, Isa::best()] {
            isa.hold_to();
            assert_eq!(last_places(&golden, &theirs, width, &every), Some((want, worst.1)), "{isa:?} {rows} {width}");
        }
        Isa::best().hold_to();
    }
}

#[test]
fn a_last_place_is_a_power_of_two_below_its_value() {
    for (x, want) in [(1.0, -7), (1.99, -7), (2.0, -6), (-0.75, -8), (0.0, -133), (1e-39, -133)] {
        assert_eq!(unit(x), 2f64.powi(want), "{x}");
    }
}
