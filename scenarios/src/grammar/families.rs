//! Families of conversations: one plan each, by the scenario families that the model is measured on.

use karat_model::prompt::{Effort, EncodeOptions, Json, Message, Role};

use super::random::Random;
use super::small_talk::{SmallTalk, tally};
use super::talk::Talk;
use super::turns;
use super::words::TOOLS;

/// A family of conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Many facts over many turns, asked along the way and at the end.
    Facts,
    /// Facts that the assistant made up itself.
    Own,
    /// Tools: results and calls between the telling and the question.
    Tools,
    /// Interrupted answers, "to a file".
    Interrupted,
    /// Facts that change.
    Corrections,
    /// Few facts in much small talk.
    Needle,
    /// Names that share words, all asked in one burst.
    Burst,
    /// Logs whose most common signal is asked: needs the whole.
    Tally,
    /// A little of everything.
    Mixed,
}

impl Family {
    /// Every family with its share of the training set, in percent.
    pub const SHARES: [(Self, usize); 9] = [
        (Self::Facts, 18),
        (Self::Own, 7),
        (Self::Tools, 14),
        (Self::Interrupted, 13),
        (Self::Corrections, 9),
        (Self::Needle, 9),
        (Self::Burst, 10),
        (Self::Tally, 14),
        (Self::Mixed, 6),
    ];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Facts => "facts",
            Self::Own => "own",
            Self::Tools => "tools",
            Self::Interrupted => "interrupted",
            Self::Corrections => "corrections",
            Self::Needle => "needle",
            Self::Burst => "burst",
            Self::Tally => "tally",
            Self::Mixed => "mixed",
        }
    }

    /// The family with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::SHARES.iter().map(|(family, _)| *family).find(|family| family.name() == name)
    }

    /// One by share.
    pub fn draw(r: &mut Random) -> Self {
        let mut at = r.below(100);
        for (family, share) in Self::SHARES {
            if at < share {
                return family;
            }
            at -= share;
        }
        Self::Mixed
    }
}

/// What a turn may be, with its weight in a family.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Turn {
    Tell,
    Invent,
    LookUp,
    Call,
    Correct,
    Ask,
    Interrupt,
    Chat,
}

fn weights(family: Family, tools: bool) -> Vec<(Turn, usize)> {
    let base = match family {
        Family::Facts => vec![(Turn::Tell, 6), (Turn::Ask, 2), (Turn::Chat, 3)],
        Family::Own => vec![(Turn::Invent, 6), (Turn::Tell, 1), (Turn::Ask, 2), (Turn::Chat, 3)],
        Family::Tools => vec![(Turn::Tell, 3), (Turn::LookUp, 4), (Turn::Call, 3), (Turn::Ask, 2), (Turn::Chat, 2)],
        Family::Interrupted => vec![(Turn::Interrupt, 5), (Turn::Tell, 2), (Turn::Ask, 1), (Turn::Chat, 3)],
        Family::Corrections => vec![(Turn::Tell, 4), (Turn::Correct, 4), (Turn::Ask, 2), (Turn::Chat, 3)],
        Family::Needle => vec![(Turn::Tell, 1), (Turn::Chat, 4)],
        Family::Burst => vec![(Turn::Tell, 6), (Turn::Chat, 2)],
        Family::Tally | Family::Mixed => vec![
            (Turn::Tell, 3),
            (Turn::Invent, 2),
            (Turn::Correct, 1),
            (Turn::Interrupt, 1),
            (Turn::Ask, 2),
            (Turn::Chat, 3),
        ],
    };
    let more = if tools && family != Family::Tools { vec![(Turn::LookUp, 1), (Turn::Call, 1)] } else { vec![] };
    base.into_iter().chain(more).collect()
}

/// A conversation and how it is rendered.
pub struct Drawn {
    /// Messages with marks.
    pub messages: Vec<Message>,
    /// Options of the encoder.
    pub options: EncodeOptions,
    /// Messages (by index) that the client cut.
    pub interrupted: Vec<usize>,
}

/// A system message, with tools where the talk has them.
pub(crate) fn system(t: &mut Talk, tools_text: &str) {
    let text =
        *t.r.pick(&["you are a helpful assistant.", "you are a careful assistant. be brief.", "answer from memory."]);
    let mut m = Message::new(Role::System, text);
    if t.tools {
        let mut names = vec![TOOLS[0], TOOLS[1], TOOLS[2], TOOLS[3]];
        let cut = t.r.between(0, 1);
        if cut == 1 {
            names.push(TOOLS[4]);
        }
        for name in names {
            let text = schema(name);
            t.count_fixed(&text);
            m.tools.push(Json::parse(&text).expect("the schema is JSON"));
        }
        t.count_fixed(tools_text);
    }
    t.push(m);
}

/// The function object of a made tool.
pub fn schema(name: &str) -> String {
    let (about, keys): (&str, &[&str]) = match name {
        "lookup" => ("finds a value", &["name", "field"]),
        "write_file" => ("writes a file", &["path", "kind"]),
        "get_time" => ("tells the time", &["zone"]),
        "send_note" => ("sends a note", &["text"]),
        _ => ("counts words", &["text"]),
    };
    let properties: Vec<String> = keys.iter().map(|k| format!("\"{k}\": {{\"type\": \"string\"}}")).collect();
    format!(
        "{{\"name\": \"{name}\", \"description\": \"{about}\", \"parameters\": {{\"type\": \"object\", \"properties\": {{{}}}}}}}",
        properties.join(", ")
    )
}

/// Draws a conversation of about `budget` tokens. `texts`: the tools block and the effort prefix.
pub fn draw(family: Family, mut r: Random, budget: usize, texts: (&str, &str)) -> Drawn {
    let room = budget >= 700;
    // The tools block alone would fill a short row.
    let family = if family == Family::Tools && !room { Family::Facts } else { family };
    let tools = match family {
        Family::Tools => true,
        Family::Tally | Family::Needle | Family::Burst => room && r.chance(0.2),
        _ => r.chance(if room { 0.4 } else { 0.1 }),
    };
    let thinking = r.chance(0.6);
    let effort = (thinking && room && r.chance(0.08)).then_some(Effort::Max);
    let crowded = family == Family::Burst || r.chance(0.35);
    let mut s = SmallTalk::new(&mut r);
    let mut t = Talk::new(r, budget, tools, thinking, crowded);
    if effort.is_some() {
        t.count_fixed(texts.1);
    }
    if tools || t.r.chance(0.5) {
        system(&mut t, texts.0);
    }
    let most = if family == Family::Needle {
        t.r.between(1, 4)
    } else {
        let cap = (t.left() / 55).clamp(3, 60);
        t.r.between(cap / 4, cap).max(1)
    };
    if family == Family::Tally {
        let share = t.r.between(55, 90);
        let tokens = t.left() * share / 100;
        tally(&mut t, tokens);
    }
    body(family, &mut t, &mut s, most);
    if family == Family::Tally || t.r.chance(0.15) {
        turns::ask_topic(&mut t, &s);
    }
    finish(family, &mut t);
    let options = EncodeOptions { thinking, drop_thinking: true, effort };
    Drawn { messages: t.messages, options, interrupted: t.interrupted }
}

/// Tokens that the questions still open will need.
fn reserve(t: &Talk) -> usize {
    let each = if t.tools && t.thinking { 42 } else { 28 };
    t.facts.iter().filter(|f| !f.asked).count() * each + 40
}

fn body(family: Family, t: &mut Talk, s: &mut SmallTalk, most: usize) {
    let table = weights(family, t.tools);
    let total: usize = table.iter().map(|(_, w)| w).sum();
    loop {
        let left = t.left().saturating_sub(reserve(t));
        if left < 50 {
            return;
        }
        let mut at = t.r.below(total);
        let turn = table
            .iter()
            .find(|(_, w)| {
                if at < *w {
                    true
                } else {
                    at -= w;
                    false
                }
            })
            .map_or(Turn::Chat, |(x, _)| *x);
        let open = most.saturating_sub(t.facts.len());
        // Long conversations with few facts talk at length, so that facts lie at every depth.
        let stretch = (left / (open + 1) / 10).clamp(2, 60);
        let sentences = t.r.between(1, stretch);
        match turn {
            Turn::Chat => turns::chat(t, s, sentences.min(left / 14).max(1)),
            Turn::Ask => {
                let known: Vec<usize> = (0..t.facts.len()).filter(|&i| t.facts[i].kind != 4).collect();
                let first: Vec<usize> = known.iter().copied().filter(|&i| !t.facts[i].asked).collect();
                let from = if first.is_empty() { &known } else { &first };
                if !from.is_empty() && left > 90 {
                    let i = *t.r.pick(from);
                    turns::ask(t, i);
                }
            }
            Turn::Call if left > 160 => turns::other_call(t, s),
            Turn::Interrupt if left > 110 => {
                let long = t.r.between(2, (left / 40).clamp(3, 120));
                turns::interrupt(t, s, long);
            }
            Turn::Correct if left > 80 && !t.facts.is_empty() => turns::correct(t),
            Turn::LookUp if open > 0 && left > 220 => turns::look_up(t),
            Turn::Invent if open > 0 && left > 110 => turns::invent(t),
            Turn::Tell if open > 0 && left > 100 => turns::tell(t, s, open),
            _ if open == 0 => turns::chat(t, s, sentences.min(left / 14).max(1)),
            _ => {}
        }
        // Too little is left for what the table offers: talk fills the rest.
        if t.left().saturating_sub(reserve(t)) < 110 {
            while t.left().saturating_sub(reserve(t)) > 40 {
                let n = (t.left().saturating_sub(reserve(t)) / 14).clamp(1, 6);
                turns::chat(t, s, n);
            }
            return;
        }
    }
}

/// Asks everything that is still open, in random order, one by one or in lists.
fn finish(family: Family, t: &mut Talk) {
    let mut open: Vec<usize> = (0..t.facts.len()).filter(|&i| !t.facts[i].asked).collect();
    t.r.shuffle(&mut open);
    let lists = family == Family::Burst || t.r.chance(0.3);
    if lists {
        let size = t.r.between(2, 12);
        for part in open.chunks(size) {
            turns::ask_list(t, part);
        }
    } else {
        for i in open {
            turns::ask(t, i);
        }
    }
    // What is left over repeats questions: the answer may then be found nearer.
    while t.left() > 48 && t.facts.iter().any(|f| f.kind != 4) {
        let known: Vec<usize> = (0..t.facts.len()).filter(|&i| t.facts[i].kind != 4).collect();
        let i = *t.r.pick(&known);
        turns::ask(t, i);
    }
    if t.messages.is_empty() {
        t.user("hello.");
        t.assistant("the user greets.", "hello.");
    }
}
