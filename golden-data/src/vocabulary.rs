//! tokenizer.json of the golden model: the 256 bytes, the real special tokens, and whole words that the conversations use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use karat_model::prompt::{Encoder, EncodingTexts, Tokenizer, special};
use karat_model::{Geometry, new_model, words_json};

use karat_scenarios::grammar::families::{Family, draw, schema};
use karat_scenarios::grammar::marks::{clean, strip};
use karat_scenarios::grammar::random::Random;
use karat_scenarios::grammar::words::{LETTERS, TOOLS};

/// Digits stand alone; words with the space before them, runs of other signs likewise; newlines together.
const SPLIT: &str = r"\p{N}| ?[\p{L}_]+| ?[^\s\p{L}\p{N}_]+|\n+|\s";
/// A word must occur in this many of the sample's conversations.
const OFTEN: usize = 4;
const SAMPLE: u64 = 1500;

/// The pieces of a text, in the byte alphabet.
fn pieces(tokenizer: &tokenizers::Tokenizer, text: &str) -> Result<BTreeSet<String>> {
    let encoding = tokenizer.encode(text, false).map_err(|e| anyhow!("{e}"))?;
    let mut out: BTreeMap<u32, String> = BTreeMap::new();
    let mut special = BTreeSet::new();
    for (token, word) in encoding.get_tokens().iter().zip(encoding.get_word_ids()) {
        let Some(word) = word else { continue };
        if token.chars().count() > 1 {
            special.insert(*word);
        }
        out.entry(*word).or_default().push_str(token);
    }
    Ok(out
        .into_iter()
        .filter(|(word, piece)| !special.contains(word) && piece.chars().count() > 1)
        .map(|(_, p)| p)
        .collect())
}

/// Writes tokenizer.json (at most `size` ids, a multiple of 32) and encoding.json.
pub fn write(out: &Path, size: usize) -> Result<String> {
    let encoding =
        new_model(Geometry::Default, 0).get("encoding.json").context("a made model has encoding.json")?.clone();
    let texts = EncodingTexts::from_json(&encoding)?;
    let bare = tokenizers::Tokenizer::from_bytes(words_json(&[], Some(SPLIT), 0)).map_err(|e| anyhow!("{e}"))?;
    let mut fixed = BTreeSet::new();
    let filled = texts
        .tools_template
        .text
        .replace("{dsml_token}", special::DSML)
        .replace("{thinking_end_token}", special::END_THINK);
    let schemas: String = TOOLS.map(|t| schema(t) + "\n").concat();
    let letters: String = LETTERS.iter().map(|c| format!(" {c}")).collect();
    for text in [&filled, &texts.response_format.text, &texts.effort_a.text, &texts.effort_b.text, &schemas, &letters] {
        fixed.extend(pieces(&bare, text)?);
    }
    let encoder = Encoder::new(texts.clone());
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for n in 0..SAMPLE {
        let mut r = Random::new(0, n);
        let family = Family::draw(&mut r);
        let drawn = draw(family, r, 1500, (&texts.tools_template.text, &texts.effort_a.text));
        let prompt = encoder.encode(&drawn.messages, &drawn.options)?;
        let (prompt, _) = clean(&prompt, &vec![false; drawn.messages.len()]);
        ensure!(strip(&prompt.text) == prompt.text, "a mark was left in the text");
        for piece in pieces(&bare, &prompt.text)? {
            *found.entry(piece).or_default() += 1;
        }
    }
    let mut words: Vec<(usize, String)> =
        found.into_iter().filter(|(w, n)| *n >= OFTEN && !fixed.contains(w)).map(|(w, n)| (n, w)).collect();
    words.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let all: Vec<String> = fixed.into_iter().chain(words.into_iter().map(|(_, w)| w)).collect();
    let ids = 256 + special::ALL.len() + all.len();
    ensure!(ids <= size, "the words need {ids} ids, more than {size}");
    std::fs::create_dir_all(out)?;
    let text = words_json(&all, Some(SPLIT), ids.next_multiple_of(32));
    Tokenizer::from_json("tokenizer.json", text.as_bytes())?;
    std::fs::write(out.join("tokenizer.json"), text)?;
    std::fs::write(out.join("encoding.json"), &encoding)?;
    Ok(format!("{ids} ids: {} words beside bytes and special tokens", all.len()))
}
