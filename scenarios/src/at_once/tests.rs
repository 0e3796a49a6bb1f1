//! One encoding tells the same as one for every request.

use std::sync::LazyLock;

use karat_model::prompt::{Encoder, EncodingTexts, Tokenizer};

use crate::Scenario;
use crate::grammar::families::{Family, draw};
use crate::grammar::random::Random;

static GOLDEN: LazyLock<(Tokenizer, Encoder)> = LazyLock::new(|| {
    let files = karat_golden::files();
    let tokenizer = Tokenizer::from_json("tokenizer.json", &files["tokenizer.json"]).unwrap();
    (tokenizer, Encoder::new(EncodingTexts::from_json(&files["encoding.json"]).unwrap()))
});

#[test]
fn every_family_renders_alike_in_both_ways() {
    let (tokenizer, encoder) = &*GOLDEN;
    let texts = encoder.texts();
    let mut asked = 0;
    for (family, _) in Family::SHARES {
        for n in 0..6 {
            let drawn = draw(family, Random::new(5, n), 900, (&texts.tools_template.text, &texts.effort_a.text));
            let mut scenario = Scenario::of_grammar("s".to_owned(), "t", drawn);
            let at_once = scenario.render(tokenizer, encoder).unwrap();
            scenario.at_once = false;
            let whole = scenario.render(tokenizer, encoder).unwrap();
            assert_eq!(at_once.sequence, whole.sequence, "{family:?} {n}");
            assert_eq!((&at_once.asks, &at_once.rerendered), (&whole.asks, &whole.rerendered), "{family:?} {n}");
            assert_eq!(at_once.text, whole.text);
            for ask in &at_once.asks {
                asked += 1;
                let ids = &at_once.sequence.ids[ask.positions()];
                assert_eq!(ids, &ask.alone[ask.answer_alone()]);
                assert!(ask.alone.len() < at_once.sequence.ids.len() && ask.turn.end >= ask.answer.end);
                assert!(ask.told.is_none_or(|told| told < ask.answer.start));
                assert_eq!(tokenizer.decode(ids).unwrap().trim(), ask.expected);
            }
        }
    }
    assert!(asked > 200, "{asked}");
}
