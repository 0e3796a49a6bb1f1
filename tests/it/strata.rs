//! The questions that were chosen by golden's margin: enough in each stratum, and as golden measures them today.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Inputs, Job, Quiet, recall};
use karat_model::Checkpoint;
use karat_model::prompt::{Encoder, Tokenizer};
use karat_scenarios::{Content, Recipe};

fn strata() -> Recipe {
    match Content::builtin("strata").unwrap() {
        Content::Recipe(recipe) => recipe,
        Content::Conversation(_) => panic!("strata is a recipe"),
    }
}

/// The committed table: number of a conversation, and golden's worst margin of each of its questions.
fn noted(recipe: &Recipe) -> Vec<(u64, Vec<f64>)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let number = words.next().unwrap().parse().unwrap();
        (number, words.map(|w| w.parse().unwrap()).collect())
    };
    recipe.selected.as_deref().unwrap().lines().filter(|l| !l.trim().is_empty()).map(line).collect()
}

#[test]
fn every_stratum_has_a_hundred_questions() {
    let margins: Vec<f64> = noted(&strata()).into_iter().flat_map(|(_, m)| m).collect();
    for (low, high) in [(0.5, 1.0), (1.0, 2.0), (2.0, 4.0), (4.0, f64::INFINITY)] {
        let n = margins.iter().filter(|m| (low..high).contains(*m)).count();
        println!("{low} to {high} nats: {n} questions");
        assert!(n >= 100, "{low} to {high} nats: {n} questions");
    }
}

#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn golden_measures_the_margins_that_were_noted() {
    let recipe = strata();
    let checkpoint = Arc::new(Checkpoint::from_memory("golden", karat_golden::files()).unwrap());
    let (tokenizer, encoder) = (Tokenizer::of(&checkpoint).unwrap(), Encoder::of(&checkpoint).unwrap());
    let mut inputs = Inputs::default();
    let sample: Vec<(u64, Vec<f64>)> = noted(&recipe).into_iter().step_by(20).collect();
    for (number, _) in &sample {
        let rendered = recipe.one(*number, &tokenizer, &encoder).unwrap().render(&tokenizer, &encoder).unwrap();
        inputs.requests.seqs.push(rendered.sequence);
        inputs.scenarios.push("strata".into());
        inputs.asks.push(rendered.asks);
    }
    let stop = AtomicBool::new(false);
    let job = Job { threads: 2, ..Job::new(checkpoint, inputs, &Quiet, &stop) };
    let bundle = recall(&job, None, None).unwrap();
    let noted: Vec<f64> = sample.into_iter().flat_map(|(_, m)| m).collect();
    assert_eq!(bundle.recall.len(), noted.len());
    for (row, noted) in bundle.recall.iter().zip(noted) {
        // Two decimals are noted.
        assert!((row.worst_margin_golden - noted).abs() < 0.0051, "{noted}: {row:?}");
    }
}
