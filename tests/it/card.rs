//! The model card says what `karat recall` measures: its table against golden/recall.csv (questions asked and answered by
//! golden, conversation by conversation), and a sample of that file against golden itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Inputs, Job, Quiet, recall};
use karat_model::Checkpoint;
use karat_model::prompt::{Encoder, Tokenizer};
use karat_scenarios::Content;

const CARD: &str = include_str!("../../golden/MODEL_CARD.md");
const COUNTS: &str = include_str!("../../golden/recall.csv");

/// Least share of answers that golden gives, by scenario.
const LEAST: [(&str, f64); 6] = [
    ("recall-2k", 0.99),
    ("needle-2k", 0.99),
    ("recall-8k", 0.99),
    ("needle-8k", 0.99),
    ("recall-32k", 0.97),
    ("needle-32k", 0.97),
];

/// (scenario, conversation) to (asked, answered).
fn counts() -> BTreeMap<(String, String), (usize, usize)> {
    let line = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        ((cells[0].to_owned(), cells[1].to_owned()), (cells[2].parse().unwrap(), cells[3].parse().unwrap()))
    };
    COUNTS.lines().skip(1).map(line).collect()
}

#[test]
fn the_card_says_what_was_measured_and_golden_remembers() {
    for (scenario, least) in LEAST {
        let all = counts();
        let of: Vec<_> = all.iter().filter(|((s, _), _)| s == scenario).map(|(_, n)| *n).collect();
        let (asked, given) = of.iter().fold((0, 0), |(a, g), n| (a + n.0, g + n.1));
        let share = given as f64 / asked as f64;
        let row = format!("| {scenario} | {} | {given} of {asked} | {:.1} % |", of.len(), 100.0 * share);
        assert!(CARD.contains(&row), "the card lacks {row}");
        assert!(share >= least, "{row}");
    }
}

#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn golden_measures_what_the_card_says() {
    let checkpoint = Arc::new(Checkpoint::from_memory("golden", karat_golden::files()).unwrap());
    let (tokenizer, encoder) = (Tokenizer::of(&checkpoint).unwrap(), Encoder::of(&checkpoint).unwrap());
    let mut inputs = Inputs::default();
    for (scenario, number) in [("recall-2k", 0), ("recall-2k", 5), ("needle-2k", 1)] {
        let Content::Recipe(recipe) = Content::builtin(scenario).unwrap() else { panic!("{scenario} is a recipe") };
        let rendered = recipe.one(number, &tokenizer, &encoder).unwrap().render(&tokenizer, &encoder).unwrap();
        inputs.requests.seqs.push(rendered.sequence);
        inputs.scenarios.push(scenario.into());
        inputs.asks.push(rendered.asks);
    }
    let stop = AtomicBool::new(false);
    let job = Job { threads: 2, ..Job::new(checkpoint, inputs, &Quiet, &stop) };
    let mut found = BTreeMap::new();
    for row in recall(&job, None, None).unwrap().recall {
        let (asked, given): &mut (usize, usize) = found.entry((row.scenario, row.conversation)).or_default();
        *asked += 1;
        *given += usize::from(row.matched_golden == row.answer_tokens);
    }
    assert_eq!(found.len(), 3);
    let noted = counts();
    for (key, n) in found {
        assert_eq!(noted.get(&key), Some(&n), "{key:?}");
    }
}
