//! A conversation as the client of a running server holds it: when the server is asked, what should be in the answer, and
//! where the client stops reading.

use karat_model::prompt::Message;

use crate::Scenario;
use crate::cut::{Cut, Interruption};
use crate::grammar::marks::Mark;
use crate::grammar::talk::{KINDS, estimate};
use crate::marked::{Marked, Place};

/// Something that the answer must say.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Kind of question: a name of [`KINDS`].
    pub kind: &'static str,
    /// The expected text.
    pub expected: String,
    /// The conversation's own answer gives it in its reasoning: it counts wherever it is said.
    pub anywhere: bool,
    /// Where the value was told last, 0 the start and 1 the end of the text before the answer; `None` when in no one place.
    pub depth: Option<f64>,
}

/// Where a client stops reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// After so many characters of reasoning and content together.
    Characters(usize),
    /// After so many tokens.
    Tokens(usize),
}

/// An assistant message that the server is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// Index of the message.
    pub message: usize,
    /// What the answer must say, in order; may be empty.
    pub questions: Vec<Question>,
    /// The client stops reading here.
    pub stop: Option<Stop>,
    /// About how many tokens the conversation's own answer has.
    pub tokens: usize,
}

impl Scenario {
    /// The assistant messages that hold an answer or are interrupted, in order.
    pub fn exchanges(&self) -> Vec<Exchange> {
        let mut out = Vec::new();
        let mut before = 0;
        let mut told: Vec<(u16, usize)> = Vec::new();
        for (message, whole) in self.messages.iter().enumerate() {
            let questions: Vec<Question> =
                self.marks[message].iter().filter_map(|marked| question(whole, marked, &told, before)).collect();
            let stop = self.interruptions[message].map(|i| match i {
                Interruption::Cut(Cut::Characters(n)) => Stop::Characters(n),
                Interruption::Cut(Cut::Tokens(n)) => Stop::Tokens(n),
                Interruption::AsWritten => Stop::Characters(characters(whole).max(1)),
            });
            if !questions.is_empty() || stop.is_some() {
                out.push(Exchange { message, questions, stop, tokens: tokens(whole) });
            }
            for marked in &self.marks[message] {
                if let Mark::Plant { fact } = marked.mark {
                    told.push((fact, before + marked.range.start));
                }
            }
            before += characters(whole);
        }
        out
    }
}

fn question(whole: &Message, marked: &Marked, told: &[(u16, usize)], before: usize) -> Option<Question> {
    let Mark::Answer { fact, kind } = marked.mark else { return None };
    let text = match marked.place {
        Place::Content(i) => whole.content.get(i)?.get(marked.range.clone())?,
        Place::Reasoning => whole.reasoning_content.as_ref()?.get(marked.range.clone())?,
        Place::Arguments(i) => match &whole.tool_calls.get(i)?.arguments {
            karat_model::prompt::Arguments::Text(text) => text.get(marked.range.clone())?,
            karat_model::prompt::Arguments::Object(_) => return None,
        },
    };
    let at = told.iter().rev().find(|(f, _)| *f == fact).map(|(_, at)| *at);
    Some(Question {
        kind: KINDS.get(usize::from(kind)).copied().unwrap_or_default(),
        expected: text.trim().to_owned(),
        anywhere: marked.place == Place::Reasoning,
        depth: at.map(|at| at as f64 / before.max(1) as f64),
    })
}

fn texts(message: &Message) -> impl Iterator<Item = &str> {
    message.reasoning_content.iter().chain(&message.content).map(String::as_str)
}

fn characters(message: &Message) -> usize {
    texts(message).map(|t| t.chars().count()).sum()
}

fn tokens(message: &Message) -> usize {
    texts(message).map(estimate).sum::<usize>() + 60 * message.tool_calls.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_is_cut_once_and_asked_once() {
        let story = Scenario::builtin("tic-tac-toe").unwrap();
        let asked = story.exchanges();
        assert_eq!(asked[0].stop, Some(Stop::Characters(430)));
        assert!(asked[0].questions.is_empty());
        let last = asked.iter().find(|e| e.questions.iter().any(|q| q.kind == "interrupted")).unwrap();
        assert_eq!(last.questions[0].expected, "tiny tower");
        assert!(last.questions[0].anywhere);
        // "write a page about the tiny tower" stands behind the first two messages and before the page.
        assert!(last.questions[0].depth.is_some_and(|d| d > 0.1 && d < 0.6), "{:?}", last.questions[0].depth);
    }
}
