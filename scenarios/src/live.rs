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
    /// Where it was told last; `None` when in no one place.
    pub told: Option<Told>,
}

/// Where a value was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Index of the message.
    pub message: usize,
    /// The sentence or line.
    pub sentence: String,
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
        let mut told: Vec<(u16, usize, Told)> = Vec::new();
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
                    let sentence = place(whole, marked).map_or("", |text| sentence(text, &marked.range)).to_owned();
                    told.push((fact, before + marked.range.start, Told { message, sentence }));
                }
            }
            before += characters(whole);
        }
        out
    }
}

fn question(whole: &Message, marked: &Marked, told: &[(u16, usize, Told)], before: usize) -> Option<Question> {
    let Mark::Answer { fact, kind } = marked.mark else { return None };
    let text = place(whole, marked)?.get(marked.range.clone())?;
    let last = told.iter().rev().find(|(f, ..)| *f == fact);
    Some(Question {
        kind: KINDS.get(usize::from(kind)).copied().unwrap_or_default(),
        expected: text.trim().to_owned(),
        anywhere: marked.place == Place::Reasoning,
        depth: last.map(|(_, at, _)| *at as f64 / before.max(1) as f64),
        told: last.map(|(.., told)| told.clone()),
    })
}

/// The text that a mark is in.
fn place<'a>(whole: &'a Message, marked: &Marked) -> Option<&'a str> {
    match marked.place {
        Place::Content(i) => whole.content.get(i).map(String::as_str),
        Place::Reasoning => whole.reasoning_content.as_deref(),
        Place::Arguments(i) => match &whole.tool_calls.get(i)?.arguments {
            karat_model::prompt::Arguments::Text(text) => Some(text),
            karat_model::prompt::Arguments::Object(_) => None,
        },
    }
}

/// The sentence or line around a range.
fn sentence<'a>(text: &'a str, range: &std::ops::Range<usize>) -> &'a str {
    let (before, behind) = (text.get(..range.start).unwrap_or(""), text.get(range.end..).unwrap_or(""));
    let start = [". ", "\n"].iter().filter_map(|end| before.rfind(end).map(|at| at + end.len())).max().unwrap_or(0);
    let ends =
        [". ", ".\n", "\n"].iter().filter_map(|end| behind.find(end).map(|at| at + usize::from(end.starts_with('.'))));
    let end = ends.min().map_or(text.len(), |at| range.end + at);
    text.get(start..end).unwrap_or("").trim()
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
        let told = last.questions[0].told.as_ref().unwrap();
        assert!(told.message < last.message && told.sentence.contains("tiny tower"), "{told:?}");
        assert_eq!(sentence("a b. the owner is x.\ny. z", &(18..19)), "the owner is x.");
        assert_eq!(sentence("a\ncode: 7", &(8..9)), "code: 7");
    }
}
