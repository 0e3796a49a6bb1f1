//! Recipes make what they promise, in the words of the golden model.

use std::sync::LazyLock;

use karat_model::prompt::{Encoder, EncodingTexts, Tokenizer};

use super::{MAKERS, Recipe};
use crate::{Ask, Content, Rendered};

static GOLDEN: LazyLock<(Tokenizer, Encoder)> = LazyLock::new(|| {
    let files = karat_golden::files();
    let tokenizer = Tokenizer::from_json("tokenizer.json", &files["tokenizer.json"]).unwrap();
    (tokenizer, Encoder::new(EncodingTexts::from_json(&files["encoding.json"]).unwrap()))
});

fn recipe(lines: &str) -> karat_model::Result<Recipe> {
    let text = format!("format = \"karat-scenario/1\"\ntitle = \"t\"\n[generate]\n{lines}");
    Content::from_toml("r", "r.toml", &text).map(|content| match content {
        Content::Recipe(recipe) => recipe,
        Content::Conversation(_) => panic!("a recipe"),
    })
}

fn make(lines: &str) -> Vec<Rendered> {
    let made = recipe(lines).unwrap().make(&GOLDEN.0, &GOLDEN.1).unwrap();
    made.iter().map(|s| s.render(&GOLDEN.0, &GOLDEN.1).unwrap()).collect()
}

#[test]
fn every_maker_fills_the_context_and_asks() {
    for (maker, _) in MAKERS {
        for (tools, thinking) in [(false, false), (true, false), (false, true), (true, true)] {
            let lines = format!(
                "maker = \"{maker}\"\ncontext = 2048\nconversations = 2\nedges = [128]\ntools = {tools}\nthinking = {thinking}"
            );
            for r in make(&lines) {
                let n = r.sequence.ids.len();
                let short = matches!(maker, "turn-two" | "page");
                assert!(n <= 2500 && (short || n > 1600), "{maker} {tools} {thinking}: {n}");
                assert!(r.asks.len() >= if maker == "turn-two" { 1 } else { 8 }, "{maker}: {}", r.asks.len());
                let decides = matches!(maker, "burst" | "shares");
                assert!(decides || r.text.contains("## Tools") == tools, "{maker}");
            }
        }
    }
}

#[test]
fn facts_lie_across_the_edges_that_were_asked_for() {
    let made = make("maker = \"edges\"\ncontext = 4096\nfacts = 24\nedges = [4, 128, 256]\nconversations = 2");
    for r in &made {
        let planted = |a: &Ask| a.told.unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for ask in r.asks.iter().filter(|a| a.kind == "fact") {
            let told = planted(ask);
            for edge in [4, 128, 256] {
                // 0 to 3 tokens before an edge.
                let before = (edge - told % edge) % edge;
                if before < 4 {
                    seen.insert((edge, before));
                }
            }
        }
        assert_eq!(seen.len(), 12, "{seen:?}");
    }
}

#[test]
fn answers_begin_at_every_phase_around_the_edges_that_were_asked_for() {
    let made = make("maker = \"phases\"\ncontext = 5000\nfacts = 16\nedges = [4, 128, 256, 2048]\nconversations = 2");
    for r in &made {
        let mut seen = std::collections::BTreeSet::new();
        for ask in r.asks.iter().filter(|a| a.kind != "check_digit") {
            for edge in [4, 128, 256, 2048] {
                let before = (edge - ask.answer.start % edge) % edge;
                if before < 4 {
                    seen.insert((edge, before));
                }
            }
        }
        assert_eq!(seen.len(), 16, "{seen:?}");
    }
}

#[test]
fn conversations_of_a_prefix_begin_alike_and_differ() {
    let made = make("maker = \"prefix\"\ncontext = 2048\nconversations = 3");
    let common =
        |a: &Rendered, b: &Rendered| a.sequence.ids.iter().zip(&*b.sequence.ids).take_while(|(x, y)| x == y).count();
    for other in &made[1..] {
        let n = common(&made[0], other);
        assert!(n > 600 && n < made[0].sequence.ids.len() - 300, "{n}");
    }
}

#[test]
fn selected_conversations_are_those_of_their_numbers() {
    let all = make("maker = \"corrections\"\ncontext = 600\nfacts = 4\nconversations = 8");
    let some = make("maker = \"corrections\"\ncontext = 600\nfacts = 4\nselected = \"\"\"\n5 0.7 1.2\n2\n\"\"\"");
    assert_eq!(some.iter().map(|r| r.sequence.id.as_str()).collect::<Vec<_>>(), ["r-005", "r-002"]);
    assert_eq!((&some[0].sequence, &some[1].sequence), (&all[5].sequence, &all[2].sequence));
}

#[test]
fn a_recipe_that_cannot_be_followed_is_refused() {
    for (lines, named) in [
        ("maker = \"nothing\"\ncontext = 2048", "needle"),
        ("maker = \"needle\"\ncontext = 12", "context"),
        ("maker = \"needle\"\ncontext = 2048\nfacts = 0", "facts"),
        ("maker = \"edges\"\ncontext = 2048", "edges"),
        ("maker = \"edges\"\ncontext = 2048\nedges = [1]", "edges"),
        ("maker = \"needle\"\ncontext = 2048\nselected = \"x\"", "selected"),
        ("maker = \"needle\"\ncontext = 2048\ncolour = 1", "colour"),
        ("maker = \"needle\"\ncontext = 2048\n[[messages]]\nrole = \"user\"\ncontent = \"q\"", "not both"),
    ] {
        let error = recipe(lines).unwrap_err().to_string();
        assert!(error.starts_with("r.toml") && error.contains(named), "{lines}: {error}");
    }
}

/// The families that the library promises, each by a recipe that makes what its name says.
#[test]
fn the_library_has_its_families() {
    let names: Vec<&str> = crate::list().iter().map(|b| b.name).collect();
    for builtin in crate::list() {
        let content = Content::builtin(builtin.name).unwrap();
        let Content::Recipe(recipe) = content else { continue };
        if builtin.long {
            continue;
        }
        let number = recipe.numbers().unwrap()[0];
        let made = recipe.one(number, &GOLDEN.0, &GOLDEN.1).unwrap();
        let rendered = made.render(&GOLDEN.0, &GOLDEN.1).unwrap();
        let name = builtin.name;
        assert!(!rendered.asks.is_empty(), "{name}");
        let has = |text: &str| rendered.text.contains(text);
        // Reasoning of turns before the last.
        let kept = rendered.text.matches("<think>").count() > 1;
        match name {
            "to-a-file" => assert!(has("to a file") && made.messages.len() > 4, "{name}"),
            "turn-two" => assert!(has("## Tools") && rendered.asks.len() <= 2, "{name}"),
            "own-answer" => {
                assert!(rendered.asks.iter().any(|a| a.kind == "own_answer" || a.kind == "reasoning"), "{name}");
            }
            "tool-result" => {
                assert!(rendered.asks.iter().any(|a| a.kind == "tool_result") && has("</tool_result>"), "{name}");
            }
            "thinking-kept" => assert!(kept && has("## Tools"), "{name}"),
            "thinking-dropped" => assert!(!kept && made.options.thinking, "{name}"),
            "corrections" | "strata" => assert!(rendered.asks.iter().any(|a| a.kind == "corrected"), "{name}"),
            "tally" => assert!(rendered.asks.iter().any(|a| a.kind == "tally"), "{name}"),
            "long-answer" => assert!(made.free && made.messages.len() == 2, "{name}"),
            "needle-2k" => assert!((1800..2300).contains(&rendered.sequence.ids.len()), "{name}"),
            _ => {}
        }
    }
    assert!(names.len() >= 14, "{names:?}");
}
