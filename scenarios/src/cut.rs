//! Where a client stops an answer.

use karat_model::prompt::{EncodedPrompt, Json, Message, Part, Prompt};
use karat_model::{Error, Result};

/// How much of an answer the client got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// So many characters of reasoning and content together.
    Characters(usize),
    /// So many generated tokens, the end of the reasoning counted as one.
    Tokens(usize),
}

/// How a message was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// The message as written is what the client got.
    AsWritten,
    /// The message as written is the whole answer, of which the client got the first part.
    Cut(Cut),
}

impl Cut {
    /// `{ characters = N }` or `{ tokens = N }`.
    pub(crate) fn from_json(json: &Json) -> Result<Self> {
        let expected = "{ characters = N } or { tokens = N } with N of at least 1";
        let refuse = || Error::input("not a cut").expected(expected).found(json.dumps());
        let Json::Object(entries) = json else { return Err(refuse()) };
        let [(unit, Json::Int(n))] = entries.as_slice() else { return Err(refuse()) };
        let n: usize = n.parse().ok().filter(|&n| n > 0).ok_or_else(refuse)?;
        match unit.as_str() {
            "characters" => Ok(Self::Characters(n)),
            "tokens" => Ok(Self::Tokens(n)),
            _ => Err(refuse()),
        }
    }

    /// What the client got of an answer that was cut after so many characters.
    pub(crate) fn characters_of(n: usize, whole: &Message) -> Result<Message> {
        let content = whole.content.join("\n\n");
        let reasoning = whole.reasoning_content.as_deref().unwrap_or_default();
        let of_reasoning = reasoning.chars().count();
        let all = of_reasoning + content.chars().count();
        if n >= all {
            return Err(too_late("characters", n, all));
        }
        let take = |text: &str, n: usize| text.chars().take(n).collect::<String>();
        let kept = if n <= of_reasoning {
            (take(reasoning, n), String::new())
        } else {
            (reasoning.to_owned(), take(&content, n - of_reasoning))
        };
        Ok(part_of(whole, kept))
    }

    /// What the client got of an answer of which so many tokens were generated. `answer` is the prompt that ends with
    /// the whole answer (message `index`), `encoded` its ids, `from` the first generated one, `text` what the generated
    /// ids decode to. Of a character of which the last bytes are missing the client got nothing.
    pub(crate) fn tokens_of(
        n: usize,
        whole: &Message,
        index: usize,
        (answer, encoded): (&Prompt, &EncodedPrompt),
        from: usize,
        text: &str,
    ) -> Result<Message> {
        let end =
            encoded.spans.iter().find(|s| s.message == Some(index) && matches!(s.part, Part::ToolCalls | Part::Eos));
        let all = end.map_or(encoded.ids.len(), |s| s.range.start) - from;
        if n >= all {
            return Err(too_late("tokens", n, all));
        }
        let mut left = text;
        let mut kept = (String::new(), String::new());
        for span in answer.spans.iter().filter(|s| s.message == Some(index)) {
            let written = &answer.text[span.range.clone()];
            let common: usize =
                written.chars().zip(left.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
            match span.part {
                Part::Reasoning => kept.0.push_str(&written[..common]),
                Part::Content => kept.1.push_str(&written[..common]),
                _ => {}
            }
            if common < written.len() {
                break;
            }
            left = &left[common..];
        }
        Ok(part_of(whole, kept))
    }
}

fn part_of(whole: &Message, (reasoning, content): (String, String)) -> Message {
    let mut part = whole.clone();
    part.reasoning_content = whole.reasoning_content.as_ref().map(|_| reasoning);
    part.content = vec![content];
    part.tool_calls.clear();
    part
}

fn too_late(unit: &str, n: usize, all: usize) -> Error {
    Error::input("the cut lies behind the answer's text")
        .at("cut")
        .expected(format!("fewer than {all} {unit} (tool calls can't be cut: no message could carry the rest)"))
        .found(n)
}
