use super::*;
use crate::support::gaussian;

const WIDTH: usize = 64;
const N: usize = 48;

/// 48 rows of 64 normal values on bf16's grid, 16 of them decoded; boundaries at 20 and 32.
struct Made {
    x: Vec<f32>,
    y: Vec<f32>,
    positions: Vec<u32>,
    decode: Vec<bool>,
    labels: Vec<u32>,
}

fn made(change: impl FnOnce(&mut [f32])) -> Made {
    let x: Vec<f32> = gaussian(11, N * WIDTH).iter().map(|v| half::bf16::from_f64(*v).to_f32()).collect();
    let mut y = x.clone();
    change(&mut y);
    let positions: Vec<u32> = (0..N as u32).collect();
    let decode = positions.iter().map(|p| *p >= 32).collect();
    // Two slots a row, experts 0 to 7.
    let labels = (0..2 * N as u32).map(|i| (i * 5 + i / 8) % 8).collect();
    Made { x, y, positions, decode, labels }
}

fn tested(made: &Made) -> Vec<Tested> {
    all(&Rows {
        golden: &made.x,
        candidate: &made.y,
        width: WIDTH,
        positions: &made.positions,
        decode: &made.decode,
        boundaries: &[(20, "turn 2"), (32, "turn 3")],
        parts: &[
            Parts { kind: "head", count: 4, labels: &[] },
            Parts { kind: "expert", count: 2, labels: &made.labels },
        ],
        constants: &[("routed_scaling_factor", 1.5), ("softmax scale", 0.125), ("one", 1.0)],
        mantissa: 7,
    })
}

/// The words of what fits.
fn fitting(made: &Made) -> Vec<String> {
    tested(made).into_iter().filter_map(|t| t.fits).collect()
}

fn rows(y: &mut [f32], which: impl Fn(usize) -> bool, change: impl Fn(usize, f32) -> f32) {
    for (i, v) in y.iter_mut().enumerate().filter(|(i, _)| which(i / WIDTH)) {
        *v = change(i % WIDTH, *v);
    }
}

#[test]
fn equal_rows_and_broken_ones_test_nothing() {
    assert!(tested(&made(|_| {})).is_empty());
    assert!(tested(&made(|y| y[5] = f32::NAN)).is_empty());
}

#[test]
fn noise_looks_like_nothing() {
    let noise = gaussian(5, N * WIDTH);
    let fits = fitting(&made(|y| y.iter_mut().zip(&noise).for_each(|(y, e)| *y += 0.01 * *e as f32)));
    assert!(fits.is_empty(), "{fits:?}");
    assert_eq!(tested(&made(|y| y[0] += 1.0)).len(), 12);
}

#[test]
fn a_gain_is_named_by_the_constant_that_it_is() {
    let gain = |by: f32| fitting(&made(|y| y.iter_mut().for_each(|v| *v *= by)));
    assert_eq!(gain(1.5), ["a constant gain of 1.5000: routed_scaling_factor"]);
    assert_eq!(gain(1.0 / 1.5), ["a constant gain of 0.6667: 1/routed_scaling_factor"]);
    assert_eq!(gain(2.25), ["a constant gain of 2.2500: twice routed_scaling_factor"]);
    assert_eq!(gain(8.0), ["a constant gain of 8.0000: 1/softmax scale"]);
    assert_eq!(gain(1.2), ["a constant gain of 1.2000: no constant of the config is near it"]);
}

#[test]
fn a_coarser_grid_is_seen_and_the_own_one_is_not() {
    let round = |bits: i32, v: f32| {
        let step = 2f32.powi(v.abs().log2().floor() as i32 - bits);
        (v / step).round() * step
    };
    let fits = fitting(&made(|y| y.iter_mut().for_each(|v| *v = round(3, *v))));
    assert_eq!(fits, ["a coarser grid: values have 3 mantissa bits, the tap's own format has 7"]);
    assert!(fitting(&made(|y| y[7] *= 1.01)).iter().all(|f| !f.contains("grid")));
}

#[test]
fn clamps_are_told_by_side() {
    let mut one = made(|_| {});
    // Golden stops at 1.5 on both sides, the candidate only below.
    one.x.iter_mut().for_each(|v| *v = v.clamp(-1.5, 1.5));
    one.y.iter_mut().for_each(|v| *v = v.max(-1.5));
    assert_eq!(fitting(&one), ["a clamp is missing: over 1.5"]);
    let fits = fitting(&made(|y| y.iter_mut().for_each(|v| *v = v.clamp(-1.25, 1.25))));
    assert_eq!(fits, ["values are clamped that golden does not clamp: over 1.25 and under -1.25"]);
}

#[test]
fn rows_of_another_position_are_stale_or_swapped() {
    let shifted = fitting(&made(|y| y.copy_within(0..(N - 1) * WIDTH, WIDTH)));
    assert!(shifted[0].starts_with("rows are stale, all by 1"), "{shifted:?}");
    let swapped = fitting(&made(|y| {
        let (a, b) = y.split_at_mut(10 * WIDTH);
        a[4 * WIDTH..5 * WIDTH].swap_with_slice(&mut b[..WIDTH]);
    }));
    assert_eq!(swapped[0], "rows are swapped: 2 of them, such as positions 4 and 10", "{swapped:?}");
}

#[test]
fn zeros_parts_and_tails() {
    let zero = fitting(&made(|y| y.fill(0.0)));
    assert_eq!(zero, ["zeros: 100 % of the values are 0 where golden's are not"]);
    let head = fitting(&made(|y| rows(y, |_| true, |c, v| if c / 16 == 2 { v + 0.5 } else { v })));
    assert!(head.contains(&"only head 2 of 4".to_string()), "{head:?}");
    let mut expert = made(|_| {});
    for (slot, label) in expert.labels.clone().iter().enumerate() {
        let half = &mut expert.y[slot * 32..(slot + 1) * 32];
        half.iter_mut().filter(|_| *label == 5).for_each(|v| *v += 0.5);
    }
    let expert = fitting(&expert);
    assert!(expert.contains(&"only expert 5 of 8".to_string()), "{expert:?}");
    let tail = fitting(&made(|y| rows(y, |_| true, |c, v| if c % 16 >= 13 { v + 0.5 } else { v })));
    assert!(tail.contains(&"the tail of tiles of 16 columns: the last 3 (13 to 15 of each)".to_string()), "{tail:?}");
    let rest = fitting(&made(|y| rows(y, |r| r % 8 == 7, |_, v| v + 0.5)));
    assert!(rest.contains(&"the tail of tiles of 8 positions: the last 1 (7 to 7 of each)".to_string()), "{rest:?}");
}

#[test]
fn where_it_begins_and_how_it_grows() {
    let decode = fitting(&made(|y| rows(y, |r| r >= 32, |c, v| v + 0.1 * (c as f32 * 0.7).sin())));
    assert!(decode.contains(&"only rows that were decoded".to_string()), "{decode:?}");
    assert!(decode.contains(&"only from position 32 on (turn 3)".to_string()), "{decode:?}");
    let turn = fitting(&made(|y| rows(y, |r| r >= 20, |c, v| v + 0.1 * (c as f32 * 0.7).sin())));
    assert!(turn.contains(&"only from position 20 on (turn 2)".to_string()), "{turn:?}");
    assert!(!turn.iter().any(|f| f.contains("decoded")), "{turn:?}");
    let growing = fitting(&made(|y| {
        for (i, v) in y.iter_mut().enumerate() {
            *v += 0.002 * (i / WIDTH) as f32 * (i as f32 * 0.7).sin();
        }
    }));
    assert!(growing.iter().any(|f| f.starts_with("it grows with the position")), "{growing:?}");
}
