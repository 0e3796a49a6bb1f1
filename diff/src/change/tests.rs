use super::*;
use crate::support::gaussian;

fn series(n: usize, seed: u64) -> Vec<f64> {
    gaussian(seed, n).iter().map(|v| 0.2 * v).collect()
}

#[test]
fn noise_alone_is_rarely_a_change() {
    let alarms = (0..200).filter(|seed| change(&series(120, *seed + 1)).unwrap().chance < 1e-3).count();
    assert!(alarms <= 3, "{alarms} of 200");
}

#[test]
fn a_stretch_begins_where_it_was_put() {
    for (start, end) in [(40, 58), (0, 12), (110, 120), (70, 73)] {
        let mut values = series(120, 9);
        values[start..end].iter_mut().for_each(|v| *v += 2.0);
        let found = change(&values).unwrap();
        assert!(found.start.abs_diff(start) <= 1 && found.end.abs_diff(end) <= 1, "{found:?}");
        assert!(found.chance < 1e-6, "{found:?}");
    }
}

#[test]
fn a_stretch_under_the_rest_and_too_short_a_series_are_none() {
    assert_eq!(change(&[0.0; 7]), None);
    assert_eq!(change(&[f64::NAN; 20]), None);
    assert_eq!(change(&[1.0; 20]), None, "all alike");
    let by_hand = change(&[0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]).unwrap();
    // One value 10 spreads up: 10 standard errors.
    assert_eq!((by_hand.start, by_hand.end, by_hand.statistic), (4, 5, 10.0));
}
