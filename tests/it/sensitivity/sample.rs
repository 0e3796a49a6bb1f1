//! The conversations: fixed before anything was measured on them.

use std::sync::Arc;

use karat_audit::Inputs;
use karat_model::Checkpoint;
use karat_model::prompt::{Encoder, Tokenizer};
use karat_scenarios::{Ask, Content};
use karat_seam::{Sequence, Span, SpanKind, Turn};

/// Every so many of the conversations of `strata` (about 700 tokens; questions chosen by golden's margin).
pub(super) const STEP: usize = 15;

/// Longer ones: facts at every depth of 2,048 tokens, and facts that change over 3,072.
const LONG: [(&str, &str); 2] = [
    ("needles", "maker = \"needle\"\ncontext = 2048\nfacts = 12\nseed = 131"),
    ("changes", "maker = \"corrections\"\ncontext = 3072\nfacts = 8\nseed = 132"),
];

/// Content of a recipe.
pub(super) fn recipe(name: &str, recipe: &str) -> Content {
    let text = format!("format = \"karat-scenario/1\"\ntitle = \"t\"\n[generate]\n{recipe}");
    Content::from_toml(name, name, &text).unwrap()
}

/// The turns of a sequence as served: the turns that answer a question are decoded, all else is prefilled.
fn decodes_answers(sequence: &mut Sequence, asks: &[Ask]) {
    let (mut turns, mut at) = (Vec::new(), 0);
    let span = |kind, start, end| Span { kind, start, end };
    for turn in asks.iter().map(|a| a.turn.clone()) {
        // Several questions may have one answering turn.
        if turn.start >= at {
            let spans = vec![span(SpanKind::Prompt, at, turn.start), span(SpanKind::Generated, turn.start, turn.end)];
            turns.push(Turn { spans, interrupted: false });
            at = turn.end;
        }
    }
    if at < sequence.ids.len() as u32 {
        let spans = vec![span(SpanKind::Prompt, at, sequence.ids.len() as u32)];
        turns.push(Turn { spans, interrupted: false });
    }
    sequence.turns = turns;
}

/// Conversations of contents, by (content, numbers of its conversations; all).
pub(super) fn inputs(checkpoint: &Arc<Checkpoint>, contents: Vec<(Content, Option<Vec<u64>>)>) -> Inputs {
    let (tokenizer, encoder) = (Tokenizer::of(checkpoint).unwrap(), Encoder::of(checkpoint).unwrap());
    let mut inputs = Inputs::default();
    for (content, numbers) in contents {
        let made = match (content, numbers) {
            (Content::Recipe(recipe), Some(numbers)) => {
                numbers.iter().map(|n| recipe.one(*n, &tokenizer, &encoder).unwrap()).collect()
            }
            (content, _) => content.conversations(&tokenizer, &encoder).unwrap(),
        };
        for scenario in made {
            let mut rendered = scenario.render(&tokenizer, &encoder).unwrap();
            decodes_answers(&mut rendered.sequence, &rendered.asks);
            inputs.scenarios.push(scenario.name.clone());
            inputs.requests.seqs.push(rendered.sequence);
            inputs.asks.push(rendered.asks);
        }
    }
    inputs
}

/// The table's sample.
pub(super) fn whole(checkpoint: &Arc<Checkpoint>) -> Inputs {
    let strata = Content::builtin("strata").unwrap();
    let Content::Recipe(chosen) = &strata else { panic!("strata is a recipe") };
    let numbers = chosen.numbers().unwrap().into_iter().step_by(STEP).collect();
    let mut contents = vec![(strata, Some(numbers))];
    contents.extend(LONG.map(|(name, text)| (recipe(name, text), None)));
    inputs(checkpoint, contents)
}
