//! Parts of made runs: put together they are the run.

use proptest::prelude::*;

use super::*;
use crate::judge::recall::SEARCHED;
use crate::{Candidate, DerivationRow, FlipRow, PatchRow, RecallRow, Row, Scenario, TapRow, TokenRow, Verdict};

type Names = (String, String);

fn names(n: usize, seed: u64) -> Vec<Names> {
    (0..n).map(|i| (format!("s{}", (i as u64 + seed) % 3), format!("c{i}-{seed}"))).collect()
}

/// A number between 0 and 1 that follows from its names.
fn number(seed: u64, what: &str) -> f64 {
    let hash = Sha256::digest(format!("{seed}/{what}").as_bytes());
    f64::from(u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]])) / f64::from(u32::MAX)
}

const SETS: [&str; 3] = ["stock", "stock+fast", "stock+new"];

/// What an audit of these conversations leaves, as made: rows by block, set, tap and conversation.
fn run(conversations: &[Names], seed: u64) -> Bundle {
    let mut out = Bundle::default();
    out.run.producer = "karat test".into();
    out.run.candidate = Candidate { patch_sets: SETS.map(String::from).to_vec(), ..Candidate::default() };
    let value = |what: &str, (scenario, sequence): &Names| number(seed, &format!("{what}/{scenario}/{sequence}"));
    for (order, tap, part) in [
        (3, "embed", ""),
        (1007, "attn.o", ""),
        (1021, "ffn.out", ""),
        (2039, "logits", ""),
        (2039, "logits", "argmax-injected"),
        (2039, "logits", "argmax"),
    ] {
        for set in SETS {
            for names in conversations {
                let tap_value = value(&format!("{order}{part}{set}"), names);
                out.taps.push(TapRow {
                    scenario: names.0.clone(),
                    sequence: names.1.clone(),
                    patch_set: set.into(),
                    tap: tap.into(),
                    part: part.into(),
                    order,
                    layer: (order / 1000).to_string(),
                    phase: "prefill".into(),
                    rows: 9,
                    gate: "rel_l2".into(),
                    value: Some(tap_value),
                    tolerance: Some(0.97),
                    ..TapRow::default()
                });
            }
        }
    }
    for set in SETS {
        let mut searched = 0;
        for names in conversations {
            for position in 0..3 {
                let kl = 0.1 * value(&format!("kl{set}{position}"), names);
                out.tokens.push(TokenRow {
                    scenario: names.0.clone(),
                    sequence: names.1.clone(),
                    patch_set: set.into(),
                    position,
                    kl,
                    ..TokenRow::default()
                });
            }
            for layer in ["2", "0", "head"] {
                let flip = FlipRow {
                    scenario: names.0.clone(),
                    sequence: names.1.clone(),
                    patch_set: set.into(),
                    layer: layer.into(),
                    kind: "argmax".into(),
                    margin: value(layer, names),
                    ..FlipRow::default()
                };
                out.flips.push(flip);
            }
            let right = value(&format!("recall{set}"), names) < 0.2;
            searched += usize::from(!right);
            out.recall.push(RecallRow {
                scenario: names.0.clone(),
                conversation: names.1.clone(),
                patch_set: set.into(),
                answer_tokens: 1,
                matched_golden: 1,
                matched_candidate: u64::from(right),
                symptom: "fine".into(),
                lost_at_layer: (!right && searched <= SEARCHED).then_some(4),
                ..RecallRow::default()
            });
        }
    }
    // One rounding is the same for all, one was measured on each conversation by itself.
    for order in [7, 1021] {
        let row = |term: &str, names: Option<&Names>| DerivationRow {
            scenario: names.map_or(String::new(), |n| n.0.clone()),
            sequence: names.map_or(String::new(), |n| n.1.clone()),
            term: term.into(),
            order,
            cost: names.map_or(0.5, |n| value(&format!("cost{order}"), n)),
            ..DerivationRow::default()
        };
        if !conversations.is_empty() {
            out.derivations.push(row("weight", None));
        }
        out.derivations.extend(conversations.iter().map(|names| row("operand", Some(names))));
    }
    out.flips.sort_by_key(|f| ["0", "2", "head"].iter().position(|l| *l == f.layer));
    for patch in ["fast", "new"] {
        let ran = conversations.iter().filter(|n| value(patch, n) > 0.4);
        let of = |what: &str| conversations.iter().map(|n| value(&format!("{patch}{what}"), n)).collect::<Vec<_>>();
        let calls = ran.clone().count() as u64;
        out.patches.push(PatchRow {
            patch: patch.into(),
            phases: "prefill".into(),
            calls_prefill: calls,
            largest_prefill: of("rows").iter().map(|v| (v * 50.0) as u64).max().unwrap_or(0),
            measured_error: of("error").into_iter().reduce(f64::max),
            // Where it did not run, the probe says active.
            state: match ran.clone().any(|n| value("bits", n) > 0.5) {
                true => "active",
                false if calls > 0 => "inert",
                false => "active",
            }
            .into(),
            ..PatchRow::default()
        });
    }
    out.verdict.forward_equivalents = 11.1;
    sort(&mut out, conversations);
    gate::settle(&mut out, None, &[]);
    out
}

fn part(all: &[Names], seed: u64, index: u64, of: u64) -> (String, Bundle) {
    let own: Vec<Names> = all.iter().filter(|(s, q)| part_of(s, q, of) == index).cloned().collect();
    let mut bundle = run(&own, seed);
    let conversation = |(scenario, sequence): &Names| crate::Conversation {
        scenario: scenario.clone(),
        sequence: sequence.clone(),
        part: part_of(scenario, sequence, of),
        rows: 3,
    };
    let scenarios = vec![Scenario { name: "all".into(), ..Scenario::default() }];
    as_part(&mut bundle, PartOf { index, of, conversations: all.iter().map(conversation).collect(), scenarios });
    (format!("p{index}"), bundle)
}

fn parts(all: &[Names], seed: u64, of: u64) -> Vec<(String, Bundle)> {
    (1..=of).map(|index| part(all, seed, index, of)).collect()
}

/// The csv files and verdict.json.
fn files(bundle: &Bundle) -> Vec<String> {
    fn csv<R: Row>(rows: &[R]) -> String {
        String::from_utf8(crate::write::to_csv(rows).unwrap()).unwrap()
    }
    let b = bundle;
    let verdict = serde_json::to_string(&b.verdict).unwrap();
    vec![csv(&b.taps), csv(&b.derivations), csv(&b.tokens), csv(&b.flips), csv(&b.recall), csv(&b.patches), verdict]
}

fn joined(name: &str, of: &[(String, Bundle)]) -> (String, Bundle) {
    (name.into(), join(of).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn parts_make_the_whole_byte_for_byte(n in 1usize..26, of in 1u64..6, seed: u64, turn in 0usize..6) {
        let all = names(n, seed);
        let mut parts = parts(&all, seed, of);
        let turn = turn % parts.len();
        parts.rotate_left(turn);
        let merged = merge(&parts).unwrap();
        prop_assert_eq!(files(&merged), files(&run(&all, seed)));
        // Merging what is whole changes nothing.
        prop_assert_eq!(&merge(&[("m".into(), merged.clone())]).unwrap(), &merged);
    }

    #[test]
    fn joining_is_associative_and_blind_to_order(n in 1usize..26, seed: u64) {
        let all = names(n, seed);
        let [a, b, c] = <[_; 3]>::try_from(parts(&all, seed, 3)).unwrap();
        let left = join(&[joined("ab", &[a.clone(), b.clone()]), c.clone()]).unwrap();
        let right = join(&[a.clone(), joined("bc", &[b.clone(), c.clone()])]).unwrap();
        let turned = join(&[joined("ca", &[c.clone(), a.clone()]), b.clone()]).unwrap();
        prop_assert_eq!(&left, &right);
        prop_assert_eq!(&left, &turned);
        prop_assert_eq!(&left, &merge(&[c, a, b]).unwrap());
    }
}

fn refused(parts: &[(String, Bundle)]) -> String {
    let error = merge(parts).unwrap_err();
    assert!(!error.is_usage());
    error.to_string()
}

#[test]
fn what_is_no_part_of_one_run_is_refused_by_name() {
    let all = names(9, 1);
    let good = parts(&all, 1, 3);
    assert_eq!(refused(&good[..2]), "part 3 of 3 is missing: only p1, p2 were given");
    assert_eq!(refused(&[]), "no bundle was given");
    let again = [good.clone(), vec![("copy".into(), good[1].1.clone())]].concat();
    assert_eq!(refused(&again), "part 2 of 3 is in both p2 and copy");
    let mixed = |with: (String, Bundle)| refused(&[good[0].clone(), with, good[2].clone()]);
    assert!(mixed(("x".into(), part(&all, 1, 2, 4).1)).contains("number of parts differs (3, 4)"));
    assert!(mixed(("x".into(), part(&names(8, 1), 1, 2, 3).1)).contains("its scenarios or their ids differ"));
    assert!(mixed(("x".into(), run(&all, 1))).contains("x is a whole run"));
    let change = |how: fn(&mut Bundle)| {
        let mut other = good[1].clone();
        how(&mut other.1);
        mixed(other)
    };
    let e = change(|b| b.run.model.weights_sha256 = "other".into());
    assert!(e.contains("p2 and p1 are no parts of one run: the model differs"), "{e}");
    assert!(change(|b| b.run.producer = "karat 0".into()).contains("the version differs (karat test, karat 0)"));
    assert!(change(|b| b.run.policy.min_floors = 3.0).contains("the policy differs"));
    assert!(change(|b| b.run.candidate.claims = "f32".into()).contains("the candidate differs"));
    assert!(change(|b| b.run.seeds = [("a".to_string(), 1)].into()).contains("the seeds differ"));
    assert!(change(|b| b.patches[0].claimed_error = 1.0).contains("the patches differ"));
    let e = change(|b| b.derivations.push(DerivationRow { sequence: "nobody".into(), ..DerivationRow::default() }));
    assert!(e.contains("p2 has rows of conversation nobody"), "{e}");
    let e = change(|b| b.taps.push(TapRow { sequence: "nobody".into(), ..TapRow::default() }));
    assert!(e.contains("p2 has rows of conversation nobody"), "{e}");
    merge(&good).unwrap();
}

#[test]
fn a_conversation_stays_in_its_part_when_others_come() {
    let (few, many) = (names(5, 7), names(40, 7));
    for (scenario, sequence) in &few {
        assert!((1..=4).contains(&part_of(scenario, sequence, 4)));
    }
    let mine: Vec<Names> = many.iter().filter(|(s, q)| part_of(s, q, 4) == 2).cloned().collect();
    assert!(few.iter().filter(|(s, q)| part_of(s, q, 4) == 2).all(|c| mine.contains(c)));
    let sizes: Vec<usize> = (1..=4).map(|i| many.iter().filter(|(s, q)| part_of(s, q, 4) == i).count()).collect();
    assert!(sizes.iter().all(|n| (3..=18).contains(n)), "{sizes:?}");
}

#[test]
fn a_part_without_a_conversation_is_unproven_and_the_whole_is_judged() {
    let all = names(1, 3);
    let parts = parts(&all, 3, 2);
    let empty = parts.iter().find(|(_, b)| b.taps.is_empty()).unwrap();
    assert_eq!(empty.1.verdict.verdict, Verdict::Unproven);
    assert_eq!(files(&merge(&parts).unwrap()), files(&run(&all, 3)));
}
