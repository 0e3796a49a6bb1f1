//! Rows from logits made by hand: eight ids, an answer of two.

use karat_scenarios::Ask;
use karat_seam::Tensor;

use super::{Named, amnesia, right, row, stratum, tokens};
use crate::recall::answers::Answer;

const V: usize = 8;

/// Logits that say these ids, each by 6 nats over all others.
fn says(ids: &[usize]) -> Tensor {
    let values = ids.iter().flat_map(|&id| (0..V).map(move |i| if i == id { 6.0 } else { 0.0 })).collect();
    Tensor::f32([ids.len(), V], values)
}

/// Positions 3 to 7: an opening id, the answer 5 6, an end.
fn asked() -> (Vec<u32>, Ask) {
    let ids = vec![1, 2, 3, 4, 5, 6, 7];
    let alone = vec![3, 4, 5, 6];
    let ask = Ask { fact: 0, kind: "fact", answer: 4..6, turn: 3..7, told: Some(1), expected: "x".into(), alone };
    (ids, ask)
}

fn scored(candidate: Tensor, alone: Option<&Tensor>) -> karat_bundle::RecallRow {
    let (ids, ask) = asked();
    let named = Named {
        scenario: "s",
        variant: "file",
        conversation: "c",
        history: "cold",
        patch_set: "stock",
        phase: "decode",
        finish_reason: "forced",
    };
    let answer = Answer { seq: 0, question: 0, golden: says(&[4, 5, 6, 7]), candidate };
    row(&named, &ids, &ask, &answer, alone, None).unwrap()
}

/// Without the history every id from 0 to 3 is as likely.
fn vague() -> Tensor {
    let one = |_| (0..V).map(|i| if i < 4 { 4.0 } else { 0.0 });
    Tensor::f32([2, V], (0..2).flat_map(one).collect())
}

#[test]
fn an_answer_that_is_given_is_matched_by_its_margin() {
    let row = scored(says(&[4, 5, 6, 7]), Some(&vague()));
    assert_eq!((row.matched_golden, row.matched_candidate, row.answer_tokens), (2, 2, 2));
    assert_eq!((row.worst_margin_golden, row.worst_margin_candidate), (6.0, 6.0));
    assert_eq!((row.margin_stratum.as_str(), row.symptom.as_str()), ("4+", "fine"));
    assert_eq!((row.context_tokens, row.depth, row.length_phase.as_str()), (4, Some(0.25), "0|4|4|4"));
    assert!(row.answer_kl == 0.0 && row.amnesia == Some(0.0), "{row:?}");
}

#[test]
fn a_candidate_that_speaks_as_if_it_had_the_last_turn_only_has_lost_the_conversation() {
    let mut values = says(&[4]).as_f32("").unwrap().to_vec();
    values.extend_from_slice(vague().as_f32("").unwrap());
    values.extend_from_slice(says(&[7]).as_f32("").unwrap());
    let row = scored(Tensor::f32([4, V], values), Some(&vague()));
    assert_eq!((row.symptom.as_str(), row.matched_candidate), ("amnesia", 0));
    assert!(row.amnesia.unwrap() > 0.99, "{row:?}");
    // A candidate that is wrong in its own way is no amnesia.
    let row = scored(says(&[4, 1, 2, 7]), Some(&vague()));
    // By hand: KL 5.883 from golden, 3.068 from golden without the history, which is 4.514 from golden itself.
    let wanted = 2.257 / (2.257 + 3.068);
    assert!(row.symptom == "wrong value" && row.amnesia.is_some_and(|a| (a - wanted).abs() < 1e-3), "{row:?}");
    // Half of each probability: by hand, KL 0.636 from golden, 0.653 from golden without the history.
    let mixed = |at: usize| {
        let (whole, vague) = (says(&[5, 6]), vague());
        let row = |t: &Tensor| -> Vec<f64> {
            let row: Vec<f64> =
                t.as_f32("").unwrap()[at * V..(at + 1) * V].iter().map(|&v| f64::from(v).exp()).collect();
            let sum: f64 = row.iter().sum();
            row.iter().map(|v| v / sum).collect()
        };
        row(&whole).into_iter().zip(row(&vague)).map(|(a, b)| f64::midpoint(a, b).ln() as f32).collect::<Vec<f32>>()
    };
    let values = [says(&[4]).as_f32("").unwrap(), &mixed(0), &mixed(1), says(&[7]).as_f32("").unwrap()].concat();
    let row = scored(Tensor::f32([4, V], values), Some(&vague()));
    assert!(row.symptom == "fine" && row.amnesia.is_some_and(|a| (a - 0.4933).abs() < 1e-3), "{row:?}");
}

#[test]
fn a_candidate_that_says_one_thing_again_and_again_repeats() {
    let ids: Vec<u32> = vec![1, 2, 3, 4, 5, 6, 1, 3, 2, 5, 7];
    let ask = Ask { answer: 4..6, turn: 3..11, ..asked().1 };
    let golden = says(&ids[3..].iter().map(|&id| id as usize).collect::<Vec<_>>());
    let answer = Answer { seq: 0, question: 0, golden, candidate: says(&[6; 8]) };
    let (scenario, variant, conversation, history) = ("s", "file", "c", "cold");
    let (patch_set, phase, finish_reason) = ("stock", "decode", "forced");
    let named = Named { scenario, variant, conversation, history, patch_set, phase, finish_reason };
    let row = row(&named, &ids, &ask, &answer, None, None).unwrap();
    assert_eq!((row.symptom.as_str(), row.matched_candidate), ("repetition", 1));
}

#[test]
fn history_that_golden_does_not_need_cannot_be_lost() {
    let golden = says(&[5, 6]);
    assert_eq!(amnesia(&golden, &says(&[1, 1]), &golden).unwrap(), None);
}

#[test]
fn what_was_not_computed_is_truncated_not_lost() {
    let row = scored(says(&[4, 5]), None);
    assert_eq!((row.symptom.as_str(), row.finish_reason.as_str(), row.matched_candidate), ("truncated", "length", 1));
    assert!(!karat_bundle::judge::recall::counts(&row) && row.answer_kl.is_nan());
}

#[test]
fn logits_that_are_no_numbers_match_nothing() {
    let mut broken = says(&[4, 5, 6, 7]).as_f32("").unwrap().to_vec();
    broken[V..2 * V].fill(f32::NAN);
    let row = scored(Tensor::f32([4, V], broken), Some(&vague()));
    assert!(row.matched_candidate == 1 && row.worst_margin_candidate.is_nan() && row.amnesia.is_none(), "{row:?}");
    let none = tokens(&Tensor::f32([1, 2], vec![f32::NAN; 2]), &[1]).unwrap();
    assert!(none[0].said == 0 && !right(&none));
}

#[test]
fn strata_have_their_edges() {
    let names = [-1.0, 0.0, 0.1, 0.5, 1.0, 1.99, 2.0, 4.0, f64::NAN].map(stratum);
    assert_eq!(names, ["wrong", "wrong", "0-0.5", "0.5-1", "1-2", "1-2", "2-4", "4+", "wrong"]);
}

#[test]
fn a_tie_is_no_match() {
    let tie = tokens(&Tensor::f32([1, 3], vec![1.0, 1.0, 0.0]), &[0]).unwrap();
    assert!(tie[0].said == 0 && !right(&tie));
}
