//! tokenizer.json: text to ids and back.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::encoder::{Part, Prompt};
use crate::{Checkpoint, Error, Result};

/// The released file has 6 MB.
const MAX_BYTES: usize = 256 << 20;

/// The tokenizer of one checkpoint. Added tokens are recognised in any text; nothing is ever added, cut or padded.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    label: String,
}

/// A stretch of ids with one origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdSpan {
    /// Index of the message; `None` for what belongs to no message.
    pub message: Option<usize>,
    /// What it is.
    pub part: Part,
    /// Positions in the ids.
    pub range: Range<usize>,
}

/// A tokenised prompt. The spans cover the ids from end to end, in order, none empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedPrompt {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Who wrote what. A token that reaches over a boundary belongs to the part in which it begins.
    pub spans: Vec<IdSpan>,
}

impl Tokenizer {
    /// Reads tokenizer.json. `label` names it in messages. Truncation and padding that the file asks for are switched
    /// off; merge dropout, which makes ids random, is refused.
    pub fn from_json(label: &str, bytes: &[u8]) -> Result<Self> {
        let refuse = |what: &str| Error::input(what).at(label);
        if bytes.len() > MAX_BYTES {
            return Err(refuse("the file is too large for a tokenizer")
                .expected(format!("at most {MAX_BYTES} bytes"))
                .found(bytes.len()));
        }
        let hint = "tokenizer.json as the `tokenizers` library writes it is needed";
        let inner = guarded(|| tokenizers::Tokenizer::from_bytes(bytes))
            .map_err(|e| refuse("not a tokenizer file").found(e).hint(hint))?;
        if let tokenizers::ModelWrapper::BPE(bpe) = inner.get_model()
            && bpe.dropout.is_some_and(|d| d > 0.0)
        {
            return Err(refuse("merge dropout makes the ids random").expected("dropout null"));
        }
        let mut inner = inner;
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| refuse("truncation cannot be switched off").found(e))?;
        Ok(Self { inner, label: label.to_owned() })
    }

    /// The tokenizer beside a checkpoint, checked against its vocabulary.
    pub fn of(checkpoint: &Checkpoint) -> Result<Self> {
        let label = format!("{}: tokenizer.json", checkpoint.label());
        let bytes = checkpoint
            .side_file("tokenizer.json")?
            .ok_or_else(|| Error::input("the model has no tokenizer.json, so no text can be tokenised").at(&label))?;
        let tokenizer = Self::from_json(&label, &bytes)?;
        tokenizer.check_vocab(checkpoint.config().vocab_size)?;
        tokenizer.check_format()?;
        Ok(tokenizer)
    }

    /// Refuses a vocabulary in which a token of the prompt format isn't one token: every prompt would silently turn
    /// into other ids than the model was trained on.
    fn check_format(&self) -> Result<()> {
        use super::special::{ASSISTANT, BOS, DSML, END_THINK, EOS, THINK, USER};
        for token in [BOS, EOS, USER, ASSISTANT, THINK, END_THINK, DSML] {
            let ids = self.encode(token)?;
            if ids != [self.required_id(token)?] {
                return Err(Error::input("a token of the prompt format is not recognised in a text")
                    .at(&self.label)
                    .expected(format!("one id for {token}"))
                    .found(format!("{} ids", ids.len()))
                    .hint("added_tokens of tokenizer.json must name it"));
            }
        }
        Ok(())
    }

    /// Refuses an id that the model has no row for.
    pub fn check_vocab(&self, vocab_size: usize) -> Result<()> {
        let vocab = self.inner.get_vocab(true);
        let worst = vocab.into_iter().filter(|(_, id)| *id as usize >= vocab_size).max_by_key(|(_, id)| *id);
        match worst {
            None => Ok(()),
            Some((token, id)) => Err(Error::input("the tokenizer has an id that the model's vocabulary has not")
                .at(&self.label)
                .expected(format!("ids below vocab_size {vocab_size}"))
                .found(format!("{id} ({token:?})"))
                .hint("tokenizer.json and config.json are of different models")),
        }
    }

    /// The ids of a text: added tokens recognised, no begin-of-sentence token added.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.encoding(text)?.get_ids().to_vec())
    }

    /// The ids of a prompt, with the parts they belong to.
    pub fn encode_prompt(&self, prompt: &Prompt) -> Result<EncodedPrompt> {
        let encoding = self.encoding(&prompt.text)?;
        let ids = encoding.get_ids().to_vec();
        let starts: Vec<usize> = encoding.get_offsets().iter().map(|&(start, _)| start).collect();
        let mut spans: Vec<IdSpan> = Vec::with_capacity(prompt.spans.len());
        let mut at = 0;
        for span in &prompt.spans {
            let n = starts[at..].iter().take_while(|&&start| start < span.range.end).count();
            if n > 0 {
                spans.push(IdSpan { message: span.message, part: span.part, range: at..at + n });
                at += n;
            }
        }
        if at < ids.len() {
            return Err(Error::input("the tokenizer gives offsets outside of the text").at(&self.label));
        }
        Ok(EncodedPrompt { ids, spans })
    }

    /// The text of ids, special tokens included. Bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        guarded(|| self.inner.decode(ids, false)).map_err(|e| self.failed("decode ids", e))
    }

    /// The id of a token by its exact string.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The id of a token that the prompt format needs.
    pub fn required_id(&self, token: &str) -> Result<u32> {
        self.id(token).ok_or_else(|| {
            Error::input("the vocabulary lacks a token of the prompt format").at(&self.label).expected(token)
        })
    }

    /// Number of tokens, added ones included.
    pub fn len(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// True for a vocabulary without tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn encoding(&self, text: &str) -> Result<tokenizers::Encoding> {
        guarded(|| self.inner.encode(text, false)).map_err(|e| self.failed("tokenise the text", e))
    }

    fn failed(&self, doing: &str, why: String) -> Error {
        Error::input(format!("the tokenizer failed to {doing}")).at(&self.label).found(why)
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("label", &self.label).field("tokens", &self.len()).finish_non_exhaustive()
    }
}

/// The library panics on some files that it could refuse: here that is an error like the others.
fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> std::result::Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Err(format!("a panic of the tokenizers library ({})", text.unwrap_or("no message")))
        }
    }
}

#[cfg(test)]
mod tests;
