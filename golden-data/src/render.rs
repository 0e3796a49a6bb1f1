//! From a drawn conversation to ids and loss classes.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use karat_model::prompt::{Encoder, EncodingTexts, Part, Role, Tokenizer};
use rayon::prelude::*;
use serde_json::json;

use karat_scenarios::grammar::families::{Family, draw};
use karat_scenarios::grammar::marks::{Mark, clean};
use karat_scenarios::grammar::random::Random;
use karat_scenarios::grammar::talk::KINDS;

/// Loss classes.
const REST: u8 = 0;
const PREDICTABLE: u8 = 1;
const ANSWER: u8 = 2;
const PADDING: u8 = 3;
const WHOLE: u8 = 4;
/// Id of the padding token.
const PAD: u16 = 2;

/// An answer in a row.
#[derive(Debug, Clone)]
pub struct Answer {
    /// First id.
    pub start: usize,
    /// Ids.
    pub length: usize,
    /// Index into [`KINDS`].
    pub kind: u8,
    /// Where the value was told last before, if it was told in one place.
    pub told: Option<usize>,
}

/// A row of a data set.
pub struct Row {
    /// Ids, padded.
    pub ids: Vec<u16>,
    /// Loss classes.
    pub classes: Vec<u8>,
    /// Ids before the padding.
    pub used: usize,
    /// Its family.
    pub family: Family,
    /// Every answer.
    pub answers: Vec<Answer>,
    /// The prompt, clean.
    pub text: String,
}

/// Encoder and tokenizer of the model's folder.
pub struct Renderer {
    encoder: Encoder,
    tokenizer: Tokenizer,
}

impl Renderer {
    /// Reads tokenizer.json and encoding.json.
    pub fn open(folder: &Path) -> Result<Self> {
        let read = |name: &str| std::fs::read(folder.join(name)).with_context(|| format!("reading {name}"));
        let texts = EncodingTexts::from_json(&read("encoding.json")?)?;
        let tokenizer = Tokenizer::from_json("tokenizer.json", &read("tokenizer.json")?)?;
        Ok(Self { encoder: Encoder::new(texts), tokenizer })
    }

    /// A row of a stream; what does not fit the length is drawn again, shorter.
    pub fn row(&self, seed: u64, number: u64, length: usize, family: Option<Family>) -> Result<Row> {
        let mut budget = length - length / 64;
        for attempt in 0..12_u64 {
            let mut r = Random::new(seed, number.wrapping_mul(16).wrapping_add(attempt));
            let family = family.unwrap_or_else(|| Family::draw(&mut r));
            let texts = self.encoder.texts();
            let drawn = draw(family, r, budget, (&texts.tools_template.text, &texts.effort_a.text));
            let assistant: Vec<bool> = drawn.messages.iter().map(|m| m.role == Role::Assistant).collect();
            let prompt = self.encoder.encode(&drawn.messages, &drawn.options)?;
            let (prompt, labels) = clean(&prompt, &assistant);
            let encoded = self.tokenizer.encode_prompt(&prompt)?;
            if encoded.ids.len() > length {
                // The estimate was short (names spelled by letters): aim lower by as much.
                budget = (budget * length / encoded.ids.len()).min(budget - 1) * 98 / 100;
                continue;
            }
            let used = encoded.ids.len();
            let mut classes = vec![REST; used];
            let mut told = std::collections::BTreeMap::new();
            let mut answers: Vec<Answer> = Vec::new();
            for span in &encoded.spans {
                let label = labels[span.message.context("every span has a label")?];
                let written = match label.part {
                    Part::Content => label.assistant,
                    part => matches!(part, Part::Reasoning | Part::EndThink | Part::ToolCalls | Part::Eos),
                };
                let class = match label.mark {
                    // Questions about the whole are few: the trainer weighs them apart.
                    Some(Mark::Answer { kind: 5 | 6, .. }) => WHOLE,
                    Some(Mark::Answer { .. }) => ANSWER,
                    Some(_) => REST,
                    None if written || label.part == Part::Transition => PREDICTABLE,
                    None => REST,
                };
                classes[span.range.clone()].fill(class);
                match label.mark {
                    Some(Mark::Plant { fact }) => {
                        told.insert(fact, span.range.start);
                    }
                    Some(Mark::Answer { fact, kind }) => answers.push(Answer {
                        start: span.range.start,
                        length: span.range.len(),
                        kind,
                        told: told.get(&fact).copied(),
                    }),
                    _ => {}
                }
            }
            let mut ids = encoded.ids.iter().map(|&id| u16::try_from(id)).collect::<Result<Vec<_>, _>>()?;
            ids.resize(length, PAD);
            classes.resize(length, PADDING);
            return Ok(Row { ids, classes, used, family, answers, text: prompt.text });
        }
        anyhow::bail!("no conversation fits {length} ids")
    }

    /// Writes a data set; what it holds, in words.
    pub fn write(
        &self,
        seed: u64,
        length: usize,
        count: usize,
        family: Option<Family>,
        spans: bool,
        out: &Path,
    ) -> Result<String> {
        ensure!(length >= 256, "a row has at least 256 ids");
        let create = |ending: &str| -> Result<BufWriter<File>> {
            let path = out.with_extension(format!("{ending}.part"));
            Ok(BufWriter::with_capacity(1 << 20, File::create(&path).with_context(|| path.display().to_string())?))
        };
        let (mut ids, mut classes, mut lines) = (create("ids")?, create("cls")?, create("jsonl")?);
        let (mut used, mut answers) = (0, 0);
        for first in (0..count).step_by(2048) {
            let numbers = first..(first + 2048).min(count);
            let rows = numbers
                .into_par_iter()
                .map(|n| self.row(seed, n as u64, length, family))
                .collect::<Result<Vec<_>>>()?;
            for row in rows {
                ids.write_all(&row.ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>())?;
                classes.write_all(&row.classes)?;
                used += row.used;
                answers += row.answers.len();
                if spans {
                    let list: Vec<_> = row
                        .answers
                        .iter()
                        .map(|a| json!([a.start, a.length, KINDS[a.kind as usize], a.told]))
                        .collect();
                    writeln!(lines, "{}", json!({"family": row.family.name(), "used": row.used, "answers": list}))?;
                }
            }
        }
        for (mut file, ending) in [(ids, "ids"), (classes, "cls"), (lines, "jsonl")] {
            file.flush()?;
            drop(file);
            let part = out.with_extension(format!("{ending}.part"));
            if ending == "jsonl" && !spans {
                std::fs::remove_file(part)?;
            } else {
                std::fs::rename(&part, out.with_extension(ending))?;
            }
        }
        let filled = 100.0 * used as f64 / (count * length) as f64;
        Ok(format!("{}: {count} rows of {length}, {filled:.1} % filled, {answers} answers", out.display()))
    }
}
