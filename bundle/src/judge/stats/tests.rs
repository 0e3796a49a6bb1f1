//! Against printed tables.

use super::*;

#[test]
fn tails_of_students_t_are_those_of_the_tables() {
    // One-sided 5 %, 2.5 %, 0.5 % and 0.1 % points (Abramowitz and Stegun, table 26.10, and the two-sided columns).
    for (degrees, p, t) in [
        (1.0, 0.05, 6.3138),
        (1.0, 0.005, 63.657),
        (2.0, 0.025, 4.3027),
        (5.0, 0.05, 2.0150),
        (10.0, 0.005, 3.1693),
        (10.0, 0.001, 4.1437),
        (30.0, 0.025, 2.0423),
        (120.0, 0.05, 1.6577),
    ] {
        let tail = student_tail(t, degrees);
        assert!((tail / p - 1.0).abs() < 2e-4, "{degrees} {p}: {tail}");
        assert!((student_quantile(p, degrees) / t - 1.0).abs() < 1e-4);
        assert!((student_tail(-t, degrees) - (1.0 - p)).abs() < 1e-4);
    }
    // The normal's 3.0902 at 0.1 %.
    assert!((student_tail(3.090_232, 1e7) / 1e-3 - 1.0).abs() < 1e-4);
    assert_eq!(student_tail(f64::INFINITY, 3.0), 0.0);
    assert_eq!(student_tail(f64::NEG_INFINITY, 3.0), 1.0);
}

#[test]
fn holm_steps_down_and_stops_at_the_first_that_stands() {
    // Holm 1979's own rule: 0.01 <= 0.05/4, 0.02 > 0.05/3 stops, though 0.024 and 0.03 are under 0.05.
    assert_eq!(holm(&[0.03, 0.01, 0.02, 0.024], 0.05), [false, true, false, false]);
    assert_eq!(holm(&[0.04, 0.001, 0.012], 0.05), [true, true, true]);
    assert_eq!(holm(&[], 0.05), Vec::<bool>::new());
    assert_eq!(holm(&[0.0, 1.0], 0.05), [true, false]);
}
