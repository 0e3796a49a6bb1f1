//! The vocabulary of a made model: the 256 bytes and the real special tokens, under ids of our own.

use serde_json::{Map, Value, json};

use crate::prompt::special;

/// Id of the begin-of-sentence token.
pub const BOS: u32 = 0;
/// Id of the end-of-sentence token.
pub const EOS: u32 = 1;
/// Id of the padding token.
pub const PAD: u32 = 2;
/// Id of byte 0; byte `b` has id `FIRST_BYTE + b`.
pub const FIRST_BYTE: u32 = 3;

/// tokenizer.json of a made model: every byte is a token of its own.
pub(super) fn tokenizer_json(vocab_size: usize) -> Vec<u8> {
    words_json(&[], None, vocab_size).into_bytes()
}

/// tokenizer.json: a BPE over the byte alphabet without merges; its ids are BOS, EOS, PAD, the bytes, the other special
/// tokens and `words` (in the byte alphabet), filled up to `size` with placeholders, as in the released vocabulary.
/// `split` is a pattern for the pieces of a text: a piece that is a word is that token, any other is spelled in bytes.
pub fn words_json(words: &[String], split: Option<&str>, size: usize) -> String {
    let (frame, others) = special::ALL.split_at(FIRST_BYTE as usize);
    let mut tokens: Vec<String> = frame.iter().map(|&t| t.to_owned()).collect();
    tokens.extend(byte_alphabet().map(String::from));
    let bytes = FIRST_BYTE as usize..tokens.len();
    tokens.extend(others.iter().map(|&t| t.to_owned()));
    let ends = tokens.len();
    tokens.extend(words.iter().cloned());
    let words = ends..tokens.len();
    tokens.extend((0..size.saturating_sub(words.end)).map(|i| format!("<｜place▁holder▁no▁{i}｜>")));

    let added: Vec<Value> = tokens
        .iter()
        .enumerate()
        .filter(|(id, _)| !bytes.contains(id) && !words.contains(id))
        .map(|(id, content)| {
            // The released file marks the thinking and DSML tokens as not special: a decoder shows them.
            let shown = [special::THINK, special::END_THINK, special::DSML].contains(&content.as_str());
            json!({
                "id": id,
                "content": content,
                "single_word": false,
                "lstrip": false,
                "rstrip": false,
                "normalized": false,
                "special": !shown,
            })
        })
        .collect();
    let vocab: Map<String, Value> = tokens.iter().enumerate().map(|(id, t)| (t.clone(), json!(id))).collect();
    let byte_level =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false });
    let before = match split {
        None => byte_level.clone(),
        Some(split) => {
            let split =
                json!({ "type": "Split", "pattern": { "Regex": split }, "behavior": "Isolated", "invert": false });
            json!({ "type": "Sequence", "pretokenizers": [split, byte_level] })
        }
    };
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": before,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": split.is_some(),
            "vocab": vocab,
            "merges": [],
        },
    });
    let mut text = serde_json::to_string_pretty(&tokenizer).unwrap_or_default();
    text.push('\n');
    text
}

/// The printable character that byte-level BPE writes for each byte: itself for printable Latin-1, the next free one
/// from U+0100 on for the others.
fn byte_alphabet() -> impl Iterator<Item = char> {
    let mut next = 0x100;
    (0..=255_u8).map(move |byte| {
        if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
            char::from(byte)
        } else {
            next += 1;
            char::from_u32(next - 1).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    })
}
