//! An imported conversation as a scenario, so that both paths can run it.

use karat_model::Result;
use karat_model::prompt::{Arguments, Effort, EncodeOptions, Json, Message, Role, special};

use super::Exchange;
use crate::Scenario;
use crate::cut::Interruption;
use crate::grammar::marks::Mark;
use crate::grammar::talk::RECORDED;
use crate::marked::{Marked, Place};

impl Exchange {
    /// The conversation with the answer that was recorded behind it, if one was; that answer is what recall asks. `thinking`
    /// overrules what the request says about the mode; where nobody says, it is the encoder's own.
    pub fn scenario(&self, name: &str, thinking: Option<bool>) -> Result<Scenario> {
        crate::check_name(name)?;
        let usual = EncodeOptions::default();
        let thinking = thinking.or(self.asked.thinking).unwrap_or(usual.thinking);
        let effort = self.asked.effort.as_deref().and_then(Effort::from_name).filter(|_| thinking);
        let mut scenario = Scenario {
            name: name.to_owned(),
            title: format!("imported from {}", self.place),
            options: EncodeOptions { thinking, effort, ..usual },
            ..Scenario::empty()
        };
        for message in &self.messages {
            scenario.messages.push(texts_only(message.clone()));
            scenario.interruptions.push(None);
            scenario.marks.push(Vec::new());
        }
        if let Some(answer) = self.answer.as_deref().map(|a| a.trim_end_matches(special::EOS)).filter(|a| !a.is_empty())
        {
            scenario.messages.push(said(answer, thinking));
            scenario.interruptions.push(self.aborted.then_some(Interruption::AsWritten));
            scenario.marks.push(Vec::new());
        }
        if let (Some(last), Some(marks)) = (scenario.messages.last(), scenario.marks.last_mut()) {
            marks.extend(asked(last));
        }
        Ok(scenario)
    }
}

/// A message whose calls have their arguments as texts: the only form that a scenario file has.
fn texts_only(mut message: Message) -> Message {
    for call in &mut message.tool_calls {
        if let Arguments::Object(entries) = &call.arguments {
            call.arguments = Arguments::Text(Json::Object(entries.clone()).dumps());
        }
    }
    message
}

/// What a model said, as its message. In thinking mode the prompt opens the reasoning, so what was said begins in it.
fn said(answer: &str, thinking: bool) -> Message {
    let (reasoning, content) = match answer.split_once(special::END_THINK) {
        Some((reasoning, content)) if thinking => (Some(reasoning), content),
        None if thinking => (Some(answer), ""),
        _ => (None, answer),
    };
    let reasoning = reasoning.map(|r| r.trim_start_matches(special::THINK).to_owned());
    Message { reasoning_content: reasoning, ..Message::new(Role::Assistant, content) }
}

/// The whole answer as what is asked; nothing where the conversation ends with another's words.
fn asked(last: &Message) -> Option<Marked> {
    let answers = last.role == Role::Assistant;
    let content = last.content.first().filter(|c| !c.trim().is_empty()).map(|c| (Place::Content(0), c));
    let reasoning = last.reasoning_content.as_ref().filter(|r| !r.trim().is_empty()).map(|r| (Place::Reasoning, r));
    let (place, text) = content.or(reasoning).filter(|_| answers)?;
    // A mark begins at a word, and a word's token with the space before it.
    let word = text.len() - text.trim_start().len();
    let start = if text[..word].ends_with(' ') { word - 1 } else { word };
    Some(Marked { place, range: start..text.len(), mark: Mark::Answer { fact: 0, kind: RECORDED } })
}
