use super::{Looks, Symptom, repeats, symptom};

const FINE: [u32; 10] = [5, 9, 14, 5, 80, 81, 7, 30, 31, 1];

fn looks(said: &[u32]) -> Looks<'_> {
    let (mean_log_prob, vocabulary, right, amnesia, truncated) = (-1.0, 736, false, None, false);
    Looks { said, expected: &FINE, mean_log_prob, vocabulary, right, amnesia, truncated }
}

#[test]
fn each_symptom_is_told_apart() {
    assert_eq!(symptom(&Looks { right: true, mean_log_prob: -0.01, ..looks(&FINE) }), Symptom::Fine);
    assert_eq!(symptom(&looks(&FINE)), Symptom::WrongValue);
    assert_eq!(symptom(&looks(&[7; 20])), Symptom::Repetition);
    assert_eq!(symptom(&Looks { amnesia: Some(0.95), ..looks(&FINE) }), Symptom::Amnesia);
    assert_eq!(symptom(&Looks { amnesia: Some(0.4), ..looks(&FINE) }), Symptom::WrongValue);
    assert_eq!(symptom(&Looks { mean_log_prob: -9.0, amnesia: Some(0.95), ..looks(&FINE) }), Symptom::TokenSalad);
    // A truncated answer is nothing else, whatever it looks like.
    assert_eq!(symptom(&Looks { truncated: true, amnesia: Some(0.95), ..looks(&[7; 20]) }), Symptom::Truncated);
    // What was to be said repeats itself: no symptom.
    let list = [3, 4, 3, 4, 3, 4, 3, 4, 3, 4];
    assert_eq!(symptom(&Looks { expected: &list, right: true, ..looks(&list) }), Symptom::Fine);
}

#[test]
fn repetition_is_a_cycle_over_most_of_the_text() {
    assert!(repeats(&[1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3]));
    assert!(repeats(&[9, 8, 7, 7, 7, 7, 7, 7, 7, 7]));
    assert!(!repeats(&[7, 7, 7]), "too short to tell");
    assert!(!repeats(&[1, 2, 1, 2, 1, 2, 3, 4, 5, 6, 7, 8]), "three times only");
    let mut long: Vec<u32> = (0..100).collect();
    long.extend([5; 10]);
    assert!(!repeats(&long), "a tenth of the text");
    assert!(!repeats(&[]));
}
