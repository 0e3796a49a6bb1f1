//! Broken tokenizers and prompt texts, of the seeded model.

use serde_json::json;

use super::edit::json_file;
use super::{Broken, Kind, Row};

const TOKENIZER: &str = "tokenizer.json";
const ENCODING: &str = "encoding.json";

pub(super) fn all() -> Vec<Broken> {
    let list: Vec<Row<'_>> = vec![
        ("no tokenizer", &[TOKENIZER], |f| {
            f.remove(TOKENIZER);
        }),
        ("empty tokenizer", &[TOKENIZER], |f| {
            f.insert(TOKENIZER.to_string(), Vec::new());
        }),
        ("tokenizer that ends in the middle", &[TOKENIZER], |f| f.get_mut(TOKENIZER).expect("file").truncate(500)),
        ("tokenizer that is another JSON", &[TOKENIZER], |f| {
            f.insert(TOKENIZER.to_string(), b"{\"a\": 1}".to_vec());
        }),
        ("tokenizer without a model", &[TOKENIZER], |f| {
            json_file(f, TOKENIZER, |t| {
                t.remove("model");
            });
        }),
        ("merge of a token that isn't there", &[TOKENIZER], |f| {
            json_file(f, TOKENIZER, |t| t["model"]["merges"] = json!([["no such", "token"]]));
        }),
        ("id outside the model's vocabulary", &[TOKENIZER, "9999"], |f| {
            json_file(f, TOKENIZER, |t| {
                let vocab = t["model"]["vocab"].as_object_mut().expect("a vocabulary");
                let first = vocab.keys().next().expect("a token").clone();
                vocab[&first] = json!(9999);
            });
        }),
        ("without its added tokens", &[TOKENIZER, "<｜"], |f| {
            json_file(f, TOKENIZER, |t| t["added_tokens"] = json!([]));
        }),
        ("no prompt texts", &[ENCODING], |f| {
            f.remove(ENCODING);
        }),
        ("prompt texts that end in the middle", &[ENCODING], |f| f.get_mut(ENCODING).expect("file").truncate(30)),
        ("prompt texts as a list", &[ENCODING], |f| {
            f.insert(ENCODING.to_string(), b"[]".to_vec());
        }),
        ("prompt texts without one of them", &[ENCODING, "effort_a"], |f| {
            json_file(f, ENCODING, |e| {
                e.remove("effort_a");
            });
        }),
        ("prompt texts of another format", &[ENCODING, "format", "karat-encoding/9"], |f| {
            json_file(f, ENCODING, |e| e["format"] = json!("karat-encoding/9"));
        }),
        ("prompt text that was edited", &[ENCODING, "tools_template", "sha256"], |f| {
            json_file(f, ENCODING, |e| {
                let text = e["tools_template"]["text"].as_str().expect("a text").to_uppercase();
                e["tools_template"]["text"] = json!(text);
            });
        }),
        ("merge dropout", &[TOKENIZER, "dropout"], |f| {
            json_file(f, TOKENIZER, |t| t["model"]["dropout"] = json!(0.1));
        }),
    ];
    list.into_iter().map(|(name, says, breaks)| Broken { name, kind: Kind::Prompt, says, breaks }).collect()
}
