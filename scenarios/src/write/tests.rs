//! What is written down reads back, and renders to the same ids and questions.

use std::sync::LazyLock;

use karat_model::prompt::{Encoder, EncodingTexts, Tokenizer};

use crate::grammar::families::{Family, draw};
use crate::grammar::random::Random;
use crate::{Ask, Scenario};

static GOLDEN: LazyLock<(Tokenizer, Encoder)> = LazyLock::new(|| {
    let files = karat_golden::files();
    let tokenizer = Tokenizer::from_json("tokenizer.json", &files["tokenizer.json"]).unwrap();
    (tokenizer, Encoder::new(EncodingTexts::from_json(&files["encoding.json"]).unwrap()))
});

#[test]
fn written_conversations_read_back() {
    let (tokenizer, encoder) = &*GOLDEN;
    let texts = (encoder.texts().tools_template.text.as_str(), encoder.texts().effort_a.text.as_str());
    for (family, _) in Family::SHARES {
        let drawn = draw(family, Random::new(6, 1), 1200, texts);
        let made = Scenario::of_grammar("s".to_owned(), "a \"title\"", drawn);
        let back = Scenario::from_toml("s", "s.toml", &made.to_toml().unwrap()).unwrap();
        assert_eq!((&back.messages, &back.options, &back.title), (&made.messages, &made.options, &made.title));
        assert_eq!(back.interruptions, made.interruptions);
        let (a, b) = (made.render(tokenizer, encoder).unwrap(), back.render(tokenizer, encoder).unwrap());
        assert_eq!(a.sequence, b.sequence, "{family:?}");
        // Where the topic was told is no one place, and what the model was free to say is not written down.
        let key = |a: &Ask| (a.answer.clone(), a.told, a.kind, a.expected.clone());
        assert_eq!(
            a.asks.iter().map(key).collect::<Vec<_>>(),
            b.asks.iter().map(key).collect::<Vec<_>>(),
            "{family:?}"
        );
    }
}

#[test]
fn the_story_reads_back() {
    let story = Scenario::builtin("tic-tac-toe").unwrap();
    let back = Scenario::from_toml("tic-tac-toe", "x.toml", &story.to_toml().unwrap()).unwrap();
    assert_eq!(back, story);
}
