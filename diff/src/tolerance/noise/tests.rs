use super::*;
use crate::Isa;

/// One row, as the formulas say it, element by element.
fn by_formula(spread: f64, own: f64, seed: u64, values: &mut [f32], golden: &[f32]) -> [f64; 2] {
    let finite: Vec<f64> = values.iter().filter(|v| v.is_finite()).map(|v| f64::from(*v)).collect();
    let squares = finite.iter().fold(0.0, |sum, v| sum + v * v);
    let spread = spread * (squares / finite.len().max(1) as f64).sqrt();
    for (i, v) in values.iter_mut().enumerate().filter(|(_, v)| v.is_finite()) {
        let bits = mix(seed.wrapping_add(i as u64));
        let noise = spread * uniform(bits as u32) + own * f64::from(*v) * uniform((bits >> 32) as u32);
        *v = (f64::from(*v) + noise) as f32;
    }
    let mut out = [0.0; 2];
    for (v, g) in values.iter().zip(golden).filter(|(v, g)| v.is_finite() && g.is_finite()) {
        out[0] += (f64::from(*v) - f64::from(*g)).powi(2);
        out[1] += f64::from(*g).powi(2);
    }
    out
}

#[test]
fn rows_together_have_the_bits_of_each_alone_with_every_instruction_set() {
    const WIDTH: usize = 37;
    for count in [1, 3, 4, 5, 11] {
        for (spread, own) in [(0.0, 1e-3), (2e-3, 0.0), (1e-2, 3e-3)] {
            let value = |i: usize| match i % 53 {
                7 => f32::NEG_INFINITY,
                20 => 0.0,
                21 => -0.0,
                _ => ((i as f32 * 0.618).fract() - 0.5) * 4.0,
            };
            let golden: Vec<f32> = (0..count * WIDTH).map(value).collect();
            let start: Vec<f32> = golden.iter().map(|v| v * 1.001).collect();
            // The last row is shorter in golden: a ragged tap.
            let of = |r: usize| &golden[r * WIDTH..(r + 1) * WIDTH - if r + 1 == count { 5 } else { 0 }];
            let mut want = start.clone();
            let squares: Vec<[f64; 2]> = want
                .chunks_mut(WIDTH)
                .enumerate()
                .map(|(r, values)| by_formula(spread, own, 99 + r as u64, values, of(r)))
                .collect();
            for isa in [Isa::Plain, Isa::best()] {
                isa.hold_to();
                let mut values = start.clone();
                let row =
                    |(r, values)| Noisy { spread, own, seed: 99 + r as u64, values, golden: of(r), squares: [0.0; 2] };
                let mut rows: Vec<Noisy<'_>> = values.chunks_mut(WIDTH).enumerate().map(row).collect();
                disturb(&mut rows);
                let got: Vec<[f64; 2]> = rows.iter().map(|row| row.squares).collect();
                assert_eq!(got, squares, "{isa:?} {count}");
                let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&values), bits(&want), "{isa:?} {count}");
            }
            Isa::best().hold_to();
        }
    }
}

#[test]
fn noise_has_the_size_that_is_asked_for() {
    let golden = vec![2.0f32; 4000];
    for (spread, own) in [(1e-2, 0.0), (0.0, 1e-2)] {
        let mut values = golden.clone();
        let mut rows = [Noisy { spread, own, seed: 3, values: &mut values, golden: &golden, squares: [0.0; 2] }];
        disturb(&mut rows);
        let [off, size] = rows[0].squares;
        assert!(((off / size).sqrt() / 1e-2 - 1.0).abs() < 0.05, "{off} {size}");
    }
}
