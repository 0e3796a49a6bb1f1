//! The made model's tokenizer, whose ids are known by construction: byte `b` is 3 + b.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;

use super::Tokenizer;
use crate::prompt::{EncodeOptions, Encoder, EncodingTexts, Json, Message, Part, special};
use crate::{Geometry, new_model};

fn file(name: &str) -> Vec<u8> {
    static FILES: LazyLock<BTreeMap<String, Arc<[u8]>>> = LazyLock::new(|| new_model(Geometry::Mini, 1));
    FILES[name].to_vec()
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_json("tokenizer.json", &file("tokenizer.json")).unwrap()
}

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(|b| 3 + u32::from(b)).collect()
}

#[test]
fn bytes_and_special_tokens_have_their_ids() {
    let t = tokenizer();
    assert_eq!(t.len(), 512);
    t.check_vocab(512).unwrap();
    for byte in 0..=127_u8 {
        let text = char::from(byte).to_string();
        assert_eq!(t.encode(&text).unwrap(), [3 + u32::from(byte)]);
    }
    assert_eq!(t.encode("é｜ 中\n\n  x").unwrap(), bytes("é｜ 中\n\n  x"));
    let specials = [special::BOS, special::EOS, special::PAD];
    for (id, token) in specials.into_iter().enumerate().chain((259..).zip(special::ALL.into_iter().skip(3))) {
        assert_eq!(t.required_id(token).unwrap(), id as u32, "{token}");
        assert_eq!(
            t.encode(&format!("a{token}{token} b")).unwrap(),
            [&bytes("a")[..], &[id as u32; 2], &bytes(" b")].concat()
        );
    }
    // Nothing is added by itself, and what is almost a token is text.
    assert_eq!(t.encode("").unwrap(), Vec::<u32>::new());
    assert_eq!(t.encode("< think>").unwrap(), bytes("< think>"));
    assert_eq!(t.id("no such token"), None);
    assert!(t.required_id("no such token").unwrap_err().to_string().contains("no such token"));
}

#[test]
fn every_id_decodes() {
    let t = tokenizer();
    for id in 0..512 {
        assert!(!t.decode(&[id]).unwrap().is_empty(), "{id}");
    }
    let text = "<｜User｜>é中<think>";
    assert_eq!(t.decode(&t.encode(text).unwrap()).unwrap(), text);
    // Half of a character is not UTF-8.
    assert_eq!(t.decode(&bytes("é")[..1]).unwrap(), "\u{fffd}");
}

#[test]
fn ids_of_a_prompt_know_their_part() {
    let t = tokenizer();
    let encoder = Encoder::new(EncodingTexts::from_json(&file("encoding.json")).unwrap());
    let json =
        Json::parse(r#"[{"role":"user","content":"é?"},{"role":"assistant","reasoning_content":"｜","content":"ok"}]"#);
    let messages = Message::list_from_json(&json.unwrap()).unwrap();
    let prompt = encoder.encode(&messages, &EncodeOptions::default()).unwrap();
    let encoded = t.encode_prompt(&prompt).unwrap();
    assert_eq!(encoded.ids, t.encode(&prompt.text).unwrap());
    let spans: Vec<_> = encoded.spans.iter().map(|s| (s.part, s.range.clone())).collect();
    let expected = [
        (Part::Bos, 0..1),
        (Part::RoleToken, 1..2),
        (Part::Content, 2..5),
        (Part::Transition, 5..7),
        (Part::Reasoning, 7..10),
        (Part::EndThink, 10..11),
        (Part::Content, 11..13),
        (Part::Eos, 13..14),
    ];
    assert_eq!(spans, expected);
}

/// The made file with one place changed.
fn changed(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let mut json: serde_json::Value = serde_json::from_slice(&file("tokenizer.json")).unwrap();
    change(&mut json);
    serde_json::to_vec(&json).unwrap()
}

#[test]
fn hostile_files_give_one_clear_error() {
    let whole = file("tokenizer.json");
    let cases: [(&str, Vec<u8>); 9] = [
        ("empty", Vec::new()),
        ("truncated", whole[..whole.len() / 2].to_vec()),
        ("no UTF-8", vec![0xff; 64]),
        ("other JSON", b"{\"a\": 1}".to_vec()),
        ("unknown model", changed(|j| j["model"]["type"] = "Oracle".into())),
        ("negative id", changed(|j| j["model"]["vocab"]["!"] = (-1).into())),
        ("merge of unknown tokens", changed(|j| j["model"]["merges"] = serde_json::json!(["q w"]))),
        (
            "broken pattern",
            changed(|j| {
                j["pre_tokenizer"] = serde_json::json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false});
            }),
        ),
        ("dropout", changed(|j| j["model"]["dropout"] = 0.5.into())),
    ];
    for (name, bytes) in cases {
        let error = Tokenizer::from_json("dir/tokenizer.json", &bytes).unwrap_err();
        assert!(error.to_string().starts_with("dir/tokenizer.json"), "{name}: {error}");
    }
    // Deep nesting must not exhaust the stack.
    assert!(Tokenizer::from_json("deep", "[".repeat(1 << 20).as_bytes()).is_err());
}

#[test]
fn an_id_beyond_the_vocabulary_is_refused() {
    let error = tokenizer().check_vocab(511).unwrap_err().to_string();
    assert!(error.contains("511") && error.contains("vocab_size 511"), "{error}");
    let far = changed(|j| j["model"]["vocab"]["!"] = 4_000_000_000_u32.into());
    let t = Tokenizer::from_json("far", &far).unwrap();
    assert!(t.check_vocab(512).unwrap_err().to_string().contains("4000000000"));
}

#[test]
fn truncation_and_padding_of_the_file_are_off() {
    let cut = changed(|j| {
        j["truncation"] =
            serde_json::json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
        j["padding"] = serde_json::json!({"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 2, "pad_type_id": 0, "pad_token": "x"});
    });
    assert_eq!(Tokenizer::from_json("cut", &cut).unwrap().encode("abcdef").unwrap(), bytes("abcdef"));
}

proptest! {
    #[test]
    fn any_text_comes_back(text in "(.|\n|<think>|<｜User｜>){0,40}") {
        let t = tokenizer();
        prop_assert_eq!(t.decode(&t.encode(&text).unwrap()).unwrap(), text);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Tokenizer::from_json("any", &bytes);
    }

    #[test]
    fn a_damaged_file_is_read_or_refused(at in 0_usize..20_000, byte in any::<u8>()) {
        let mut bytes = file("tokenizer.json");
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(t) = Tokenizer::from_json("damaged", &bytes) {
            let _ = t.encode("ab <think>é");
            let _ = t.decode(&[5, 400, 7_000_000]);
        }
    }
}
