use super::*;

fn decided(of: &[(i32, i32, i32, f32)]) -> Decisions {
    of.iter().map(|&(layer, row, choice, margin)| ([layer, 0, row], ([choice; 32], margin))).collect()
}

#[test]
fn a_far_row_needs_a_near_tie_at_or_before_it() {
    let distances = [1e-6, 1e-6, 2e-5, 1e-6];
    let ours = decided(&[(0, 1, 7, 0.0), (2, 2, 8, 0.0), (2, 3, 5, 0.0)]);
    // In layer 0 row 1 falls the other way; what differs above it is its echo, whatever its margin.
    let tie = judge(&distances, &ours, &decided(&[(0, 1, 6, 1e-7), (2, 2, 9, 0.5), (2, 3, 5, 0.5)]));
    assert_eq!((tie.far, tie.unexplained, tie.flips, tie.first_flips), (1, 0, 2, 1));
    assert_eq!((tie.decisions, tie.largest_margin, tie.p50, tie.max), (3, 1e-7, 1e-6, 2e-5));
    let no_tie = judge(&distances, &ours, &decided(&[(0, 1, 6, 1e-3), (2, 2, 8, 0.5)]));
    assert_eq!((no_tie.far, no_tie.unexplained), (1, 1));
    let too_late = judge(&distances, &ours, &decided(&[(2, 3, 4, 1e-7)]));
    assert_eq!((too_late.far, too_late.unexplained), (1, 1));
}

#[test]
fn distances_are_relative_to_the_peer() {
    assert_eq!(rel_l2(&[3.0, 4.0], &[0.0, 4.0]), 0.75);
}
