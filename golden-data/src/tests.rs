//! What a row says about itself is read back from its text.

use std::path::Path;

use karat_model::prompt::Tokenizer;

use crate::render::{Renderer, Row};
use crate::vocabulary;
use karat_scenarios::grammar::families::Family;
use karat_scenarios::grammar::marks::{Mark, mark, strip};
use karat_scenarios::grammar::talk::{KINDS, estimate};

fn renderer() -> Renderer {
    Renderer::open(Path::new(karat_golden::FOLDER)).unwrap()
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_json("tokenizer.json", &karat_golden::files()["tokenizer.json"]).unwrap()
}

fn text_of(tokenizer: &Tokenizer, row: &Row, start: usize, length: usize) -> String {
    let ids: Vec<u32> = row.ids[start..start + length].iter().map(|&id| u32::from(id)).collect();
    tokenizer.decode(&ids).unwrap()
}

#[test]
fn the_committed_tokenizer_and_texts_are_what_the_grammar_gives() {
    let folder = tempfile::tempdir().unwrap();
    vocabulary::write(folder.path(), 800).unwrap();
    for name in ["tokenizer.json", "encoding.json"] {
        let made = std::fs::read(folder.path().join(name)).unwrap();
        assert!(made == *karat_golden::files()[name], "{name} differs from the committed one");
    }
}

#[test]
fn answers_are_what_was_told_last() {
    let (renderer, tokenizer) = (renderer(), tokenizer());
    let mut seen = [0_usize; KINDS.len()];
    for number in 0..60 {
        let row = renderer.row(7, number, 2048, None).unwrap();
        for a in &row.answers {
            seen[a.kind as usize] += 1;
            let said = text_of(&tokenizer, &row, a.start, a.length);
            assert!(row.classes[a.start..a.start + a.length].iter().all(|&c| c == 2 || c == 4), "{said:?}");
            let Some(told) = a.told else { continue };
            assert!(told < a.start);
            if KINDS[a.kind as usize] != "check_digit" {
                // Told as JSON, a word has no space before it and is spelled in bytes.
                let from = text_of(&tokenizer, &row, told, 12.min(row.used - told));
                assert!(from.trim_start().starts_with(said.trim()), "row {number}: {said:?}, told {from:?}");
            }
        }
    }
    let missing: Vec<_> = KINDS.iter().zip(seen).filter(|(kind, n)| *n == 0 && **kind != "recorded").collect();
    assert!(missing.is_empty(), "no question of the kinds {missing:?}");
}

#[test]
fn a_tally_names_the_signal_that_the_log_reports_most() {
    let (renderer, tokenizer) = (renderer(), tokenizer());
    let mut questions = 0;
    for number in 0..30 {
        let row = renderer.row(8, number, 2048, Some(Family::Tally)).unwrap();
        for a in row.answers.iter().filter(|a| KINDS[a.kind as usize] == "tally") {
            let before = text_of(&tokenizer, &row, 0, a.start);
            let said = text_of(&tokenizer, &row, a.start, a.length);
            let mut counts = std::collections::BTreeMap::new();
            for line in before.split("unit ").skip(1) {
                let word: String = line.chars().skip(3).take_while(char::is_ascii_alphabetic).collect();
                *counts.entry(word).or_insert(0) += 1;
            }
            let most = counts.iter().max_by_key(|(_, n)| **n).unwrap();
            assert_eq!(said.trim(), most.0, "{counts:?}");
            assert_eq!(counts.values().filter(|n| *n == most.1).count(), 1, "{counts:?}");
            questions += 1;
        }
    }
    assert!(questions >= 30, "{questions}");
}

#[test]
fn rows_repeat_by_seed_and_differ_between_seeds() {
    let renderer = renderer();
    let row = |seed| renderer.row(seed, 3, 512, None).unwrap().ids;
    assert_eq!(row(1), row(1));
    assert_ne!(row(1), row(2));
}

#[test]
fn every_family_fills_its_rows() {
    let renderer = renderer();
    for (family, _) in Family::SHARES {
        let rows: Vec<Row> = (0..8).map(|n| renderer.row(9, n, 4096, Some(family)).unwrap()).collect();
        let used: usize = rows.iter().map(|r| r.used).sum();
        assert!(used * 10 > rows.len() * 4096 * 9, "{family:?}: {used}");
        assert!(rows.iter().all(|r| !r.answers.is_empty()), "{family:?}");
    }
}

#[test]
fn marks_come_off() {
    let text = format!("a{} b{}", mark(" K472", Mark::Answer { fact: 9999, kind: 7 }), mark("x", Mark::Free));
    assert_eq!(strip(&text), "a K472 bx");
}

#[test]
fn the_estimate_counts_words_digits_and_runs() {
    assert_eq!(estimate("the code is K472.\n\n"), 9);
}
