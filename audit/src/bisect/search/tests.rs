use std::convert::Infallible;

use proptest::collection::btree_set;
use proptest::prelude::*;

use super::{Answer, Minimal, Noise, Turn, first_bad, minimal, steady};

/// Searches `0..n` with a rule for sets; the result and every set that was asked.
fn search(n: usize, rule: impl Fn(&[usize]) -> Answer) -> (Minimal, Vec<Vec<usize>>) {
    let mut asked = Vec::new();
    let mut ask = |sets: &[Vec<usize>]| -> Result<Vec<Answer>, Infallible> {
        asked.extend(sets.to_vec());
        Ok(sets.iter().map(|set| rule(set)).collect())
    };
    let Ok(found) = minimal(n, &mut ask);
    (found, asked)
}

fn bad_if(bad: bool) -> Answer {
    if bad { Answer::Bad } else { Answer::Good }
}

fn holds(set: &[usize], wanted: &[usize]) -> bool {
    wanted.iter().all(|e| set.contains(e))
}

#[test]
fn every_pair_of_eight_takes_eleven_questions_at_most() {
    let mut all = 0;
    for j in 1..8 {
        for i in 0..j {
            let (found, asked) = search(8, |set| bad_if(holds(set, &[i, j])));
            assert_eq!(found, Minimal::Set { elements: vec![i, j], unsure: vec![] });
            assert!(asked.len() <= 11, "{i} and {j}: {asked:?}");
            all += asked.len();
        }
    }
    assert!(all <= 28 * 10, "{all} questions for 28 pairs");
}

#[test]
fn one_culprit_takes_about_log2_questions() {
    for k in 0..8 {
        let (found, asked) = search(8, |set| bad_if(set.contains(&k)));
        assert_eq!(found, Minimal::Set { elements: vec![k], unsure: vec![] });
        // Both ends, three halves, and the one alone.
        assert!(asked.len() <= 6, "{k}: {asked:?}");
    }
}

#[test]
fn ends_that_leave_nothing_to_find_say_so() {
    assert_eq!(search(4, |_| Answer::Good).0, Minimal::AllGood);
    assert_eq!(search(4, |_| Answer::Bad).0, Minimal::BadWithout);
    assert_eq!(search(4, |_| Answer::Skip).0, Minimal::Untested);
    assert_eq!(search(4, |set| if set.is_empty() { Answer::Skip } else { Answer::Bad }).0, Minimal::Untested);
    // No elements: what is bad then is bad without any.
    assert_eq!(search(0, |_| Answer::Bad).0, Minimal::BadWithout);
    assert_eq!(search(0, |_| Answer::Good).0, Minimal::AllGood);
}

#[test]
fn a_culprit_that_only_shows_in_skipped_company_is_unsure() {
    // 2 alone can't be tested: 2 with 3 is bad, 3 alone good. Whether 3 is needed is not known.
    let rule = |set: &[usize]| if set == [2] { Answer::Skip } else { bad_if(set.contains(&2)) };
    let Minimal::Set { elements, unsure } = search(4, rule).0 else { panic!("a set is found") };
    assert!(elements.contains(&2) && elements.len() == 2, "{elements:?}");
    assert_eq!(unsure.len(), 1, "{elements:?} {unsure:?}");
    assert!(!unsure.contains(&2));
}

#[test]
fn skipped_points_are_gone_around() {
    let Ok(turn) =
        first_bad(16, |p| Ok::<_, Infallible>(if (7..10).contains(&p) { Answer::Skip } else { bad_if(p >= 12) }));
    assert_eq!(turn, Turn::At(12));
    let Ok(turn) =
        first_bad(16, |p| Ok::<_, Infallible>(if (7..10).contains(&p) { Answer::Skip } else { bad_if(p >= 8) }));
    assert_eq!(turn, Turn::Among(7..=10));
    let Ok(turn) = first_bad(1, |_| -> Result<Answer, Infallible> { panic!("nothing is left to ask") });
    assert_eq!(turn, Turn::At(1));
}

#[test]
fn the_lead_grows_with_noise_and_with_the_number_of_questions() {
    let noise = |wrong| Noise { wrong, error: 0.05 };
    assert_eq!(noise(0.0).lead(0), 1);
    // Odds of 4 a step; error 0.025 for the first question takes odds of 39: three steps give 64.
    assert_eq!(noise(0.2).lead(0), 3);
    assert!(noise(0.2).lead(20) > noise(0.2).lead(0) && noise(0.4).lead(0) > noise(0.2).lead(0));
}

/// A generator of its own, so that the error rate is the same on every machine.
struct Coin(u64);

impl Coin {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[test]
fn a_noisy_search_errs_no_more_often_than_stated() {
    let noise = Noise { wrong: 0.2, error: 0.05 };
    let mut coin = Coin(7);
    let mut wrong = 0;
    for round in 0..400 {
        let pair = [round % 3, 3 + round % 5];
        let mut question = 0;
        let mut ask = |sets: &[Vec<usize>]| -> Result<Vec<Answer>, Infallible> {
            let mut one = |set: &Vec<usize>| {
                question += 1;
                let truth = holds(set, &pair);
                steady(noise, question - 1, || Ok(bad_if(truth != (coin.next() < noise.wrong))))
            };
            sets.iter().map(&mut one).collect()
        };
        let Ok(found) = minimal(8, &mut ask);
        wrong += u32::from(found != Minimal::Set { elements: pair.to_vec(), unsure: vec![] });
    }
    // 20 are stated; four standard deviations more would be 37.
    assert!(wrong <= 20, "{wrong} of 400 searches err");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever is planted is found, in about (log2(n) + 2) questions an element.
    #[test]
    fn a_planted_set_is_found(n in 1usize..24, planted in btree_set(0usize..24, 1..5)) {
        let planted: Vec<usize> = planted.into_iter().filter(|e| *e < n).collect();
        prop_assume!(!planted.is_empty());
        let (found, asked) = search(n, |set| bad_if(holds(set, &planted)));
        prop_assert_eq!(found, Minimal::Set { elements: planted.clone(), unsure: vec![] });
        let halves = (n as f64).log2().ceil() as usize;
        prop_assert!(asked.len() <= 2 + planted.len() * (halves + 2), "{} questions", asked.len());
        let distinct: std::collections::BTreeSet<_> = asked.iter().collect();
        prop_assert_eq!(distinct.len(), asked.len(), "no set is asked twice");
    }

    /// One of several causes is found, whole and without more.
    #[test]
    fn of_two_causes_one_is_found(a in btree_set(0usize..12, 1..4), b in btree_set(0usize..12, 1..4)) {
        let (a, b): (Vec<usize>, Vec<usize>) = (a.into_iter().collect(), b.into_iter().collect());
        let rule = |set: &[usize]| bad_if(holds(set, &a) || holds(set, &b));
        let Minimal::Set { elements, unsure } = search(12, rule).0 else { panic!("a set is found") };
        prop_assert!((elements == a || elements == b) && unsure.is_empty(), "{:?}", elements);
    }

    /// An element that hides what others do makes the rule say nothing about larger sets: what is found is bad, and good
    /// without any one of its elements.
    #[test]
    fn a_set_that_is_hidden_in_larger_ones_is_minimal(
        planted in btree_set(0usize..10, 1..4), hides in 0usize..10, shows in 0usize..10,
    ) {
        let planted: Vec<usize> = planted.into_iter().collect();
        prop_assume!(!planted.contains(&hides) && hides != shows);
        let rule = |set: &[usize]| {
            bad_if(holds(set, &planted) && (!set.contains(&hides) || set.contains(&shows)))
        };
        let Minimal::Set { elements, unsure } = search(10, rule).0 else { panic!("a set is found") };
        prop_assert!(unsure.is_empty() && rule(&elements) == Answer::Bad);
        for out in &elements {
            let without: Vec<usize> = elements.iter().copied().filter(|e| e != out).collect();
            prop_assert_eq!(rule(&without), Answer::Good);
        }
    }

    /// Sets that can't be tested never make a good one bad: what is found is bad, and elements that could not be left out
    /// for want of an answer are named.
    #[test]
    fn skipped_sets_leave_a_bad_set(planted in btree_set(0usize..8, 1..4), salt in 0u64..1000) {
        let planted: Vec<usize> = planted.into_iter().collect();
        let rule = |set: &[usize]| {
            let mut coin = Coin(set.iter().fold(salt, |h, e| h.wrapping_mul(31).wrapping_add(*e as u64 + 1)));
            let is_end = set.is_empty() || set.len() == 8;
            let skip = !is_end && { coin.next(); coin.next() < 0.3 };
            if skip { Answer::Skip } else { bad_if(holds(set, &planted)) }
        };
        let Minimal::Set { elements, unsure } = search(8, rule).0 else { panic!("a set is found") };
        prop_assert_eq!(rule(&elements), Answer::Bad);
        for out in &elements {
            let without: Vec<usize> = elements.iter().copied().filter(|e| e != out).collect();
            let expected = if unsure.contains(out) { Answer::Skip } else { Answer::Good };
            prop_assert_eq!(rule(&without), expected);
        }
    }

    /// Along an axis: the turn is found, within the skipped run that it lies in.
    #[test]
    fn the_turn_of_an_axis_is_found(last in 1usize..200, turn in 1usize..200, skip in btree_set(1usize..200, 0..40)) {
        prop_assume!(turn <= last);
        let mut asked = 0;
        let Ok(found) = first_bad(last, |p| {
            asked += 1;
            Ok::<_, Infallible>(if skip.contains(&p) { Answer::Skip } else { bad_if(p >= turn) })
        });
        match found {
            Turn::At(at) => prop_assert_eq!(at, turn),
            Turn::Among(range) => {
                prop_assert!(range.contains(&turn));
                prop_assert!((*range.start()..*range.end()).all(|p| skip.contains(&p)), "{:?}", range);
            }
        }
        let halves = (last as f64).log2().ceil() as usize;
        prop_assert!(asked <= halves + skip.len() + 1, "{} questions", asked);
    }
}
