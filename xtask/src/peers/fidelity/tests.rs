use super::*;

fn decided(of: &[(i32, i32, i32, f32)]) -> Decisions {
    of.iter().map(|&(layer, row, choice, margin)| ([layer, 0, row], ([choice; 32], margin))).collect()
}

#[test]
fn a_far_row_needs_a_near_tie_at_or_before_it() {
    let distances = [1e-6, 1e-6, 2e-5, 1e-6];
    let forced = [1e-6; 4];
    let ours = decided(&[(0, 1, 7, 0.0), (2, 2, 8, 0.0), (2, 3, 5, 0.0)]);
    // In layer 0 row 1 falls the other way; what differs above it is its echo, whatever its margin.
    let tie = judge(&distances, &forced, &ours, &decided(&[(0, 1, 6, 1e-7), (2, 2, 9, 0.5), (2, 3, 5, 0.5)]));
    assert_eq!((tie.far, tie.unexplained, tie.flips, tie.first_flips, tie.no_ties), (1, 0, 2, 1, 0));
    assert_eq!((tie.decisions, tie.largest_margin, tie.p50, tie.max), (3, 1e-7, 1e-6, 2e-5));
    let no_tie = judge(&distances, &forced, &ours, &decided(&[(0, 1, 6, 1e-3), (2, 2, 8, 0.5)]));
    assert_eq!((no_tie.far, no_tie.unexplained, no_tie.no_ties), (1, 1, 1));
    let too_late = judge(&distances, &forced, &ours, &decided(&[(2, 3, 4, 1e-7)]));
    assert_eq!((too_late.far, too_late.unexplained), (1, 1));
}

#[test]
fn a_near_tie_explains_no_row_that_is_far_with_the_same_decisions() {
    let (ours, theirs) = (decided(&[(0, 0, 7, 0.0)]), decided(&[(0, 0, 6, 1e-7)]));
    let found = judge(&[2e-5, 2e-5], &[1e-6, 2e-5], &ours, &theirs);
    assert_eq!((found.far, found.unexplained, found.far_forced, found.max_forced), (2, 1, 1, 2e-5));
    assert_eq!(judge(&[f64::NAN], &[f64::NAN], &ours, &theirs).unexplained, 1);
}

#[test]
fn a_flip_reaches_itself_in_its_layer_and_later_rows_above() {
    let at = |layer, kind, row| ([layer, kind, row], 0.0);
    // Entries of row 4 in layer 2; its experts follow, those of row 5 in the same layer do not, row 3 nowhere does.
    let flips = vec![at(2, 1, 5), at(2, 0, 4), at(2, 1, 4), at(3, 1, 3), at(3, 0, 4), at(4, 0, 9)];
    assert_eq!(first(flips), [at(2, 0, 4), at(2, 1, 5), at(3, 1, 3)]);
}

#[test]
fn distances_are_relative_to_the_peer() {
    assert_eq!(rel_l2(&[3.0, 4.0], &[0.0, 4.0]), 0.75);
}
