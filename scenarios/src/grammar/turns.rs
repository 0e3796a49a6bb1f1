//! Turns: what a user and the assistant do with facts, tools, interruptions and small talk.

use super::marks::{Mark, mark};
use super::small_talk::SmallTalk;
use super::talk::{Fact, Field, Talk, answer, plant};

/// How a fact is told.
pub(crate) fn told(t: &mut Talk, f: &Fact) -> String {
    let (field, name) = (f.field.word(), &f.name);
    match t.r.below(5) {
        0 => format!("remember: the {field} of the {name} is{}.", plant(f, " ")),
        1 => format!("the {field} of the {name} is{}.", plant(f, " ")),
        2 => format!("{name}: {field}{}.", plant(f, " ")),
        3 => format!("note that the {name} has the {field}{}.", plant(f, " ")),
        _ => format!("the {name} has{} as {field}.", plant(f, " ")),
    }
}

/// The user tells one to `most` facts, perhaps between small talk.
pub fn tell(t: &mut Talk, s: &mut SmallTalk, most: usize) {
    let n = t.r.between(1, most.clamp(1, 3));
    let mut parts = Vec::new();
    for _ in 0..n {
        if t.r.chance(0.4) {
            parts.push(s.sentence(&mut t.r));
        }
        let f = t.fact(0);
        parts.push(told(t, &f));
        t.facts.push(f);
    }
    if t.r.chance(0.4) {
        parts.push(s.sentence(&mut t.r));
    }
    t.user(parts.join(" "));
    let ack = *t.r.pick(&["noted.", "ok, i remember it."]);
    t.assistant("the user tells me something to keep.", ack);
}

/// The assistant makes a value up, in its answer or (where reasoning is kept) in its thoughts only.
pub fn invent(t: &mut Talk) {
    let secret = t.tools && t.thinking && t.r.chance(0.4);
    let f = t.fact(if secret { 8 } else { 1 });
    let (field, name) = (f.field.word(), f.name.clone());
    if secret {
        t.user(format!("think of a {field} for the {name}, but keep it for now."));
        t.assistant(&format!("i take{} as the {field} of the {name}.", plant(&f, " ")), "ok, i have one.");
    } else {
        t.user(format!("choose a {field} for the {name}."));
        t.assistant("the user wants me to choose.", format!("the {field} of the {name} is{}.", plant(&f, " ")));
    }
    t.facts.push(f);
}

/// The assistant looks a value up with a tool and says it.
pub fn look_up(t: &mut Talk) {
    let f = t.fact(2);
    let (field, name) = (f.field.word(), f.name.clone());
    t.user(format!("look up the {field} of the {name}."));
    let id = t.call(
        &format!("i look up the {field} of the {name}."),
        "",
        "lookup",
        format!("{{\"name\": \"{name}\", \"field\": \"{field}\"}}"),
    );
    let result = match t.r.below(3) {
        0 => format!("{{\"{field}\": \"{}\"}}", plant(&f, "")),
        1 => format!("{field}:{}", plant(&f, " ")),
        _ => format!("the {field} of the {name} is{}.", plant(&f, " ")),
    };
    t.result(id, result);
    t.assistant("the tool has it.", format!("the {field} of the {name} is{}.", answer(&f, " ")));
    t.facts.push(f);
}

/// A call that has nothing to do with the facts.
pub fn other_call(t: &mut Talk, s: &mut SmallTalk) {
    if t.r.chance(0.5) {
        t.user("what time is it?");
        let id = t.call("i need the time.", "", "get_time", "{\"zone\": \"utc\"}".to_owned());
        let (h, m) = (t.r.between(10, 23), t.r.between(10, 59));
        t.result(id, format!("{h}:{m}"));
        t.assistant("the tool has it.", format!("it is {h}:{m}."));
    } else {
        let text = s.sentence(&mut t.r);
        t.user(format!("send this note: {text}"));
        let id = t.call("i send the note.", "", "send_note", format!("{{\"text\": \"{text}\"}}"));
        t.result(id, "sent".to_owned());
        t.assistant("the tool has it.", "the note is sent.");
    }
}

/// The user changes a fact.
pub fn correct(t: &mut Talk) {
    let open: Vec<usize> = (0..t.facts.len()).filter(|&i| t.facts[i].kind != 4).collect();
    if open.is_empty() {
        return;
    }
    let i = *t.r.pick(&open);
    let field = t.facts[i].field;
    let value = t.value(field);
    let old = t.facts[i].clone();
    // A new number, so that the place told is the last one.
    let f = Fact { id: t.facts.len() as u16, value, kind: 3, asked: false, ..old };
    let (word, name) = (field.word(), f.name.clone());
    let text = match t.r.below(3) {
        0 => format!("no, the {word} of the {name} is now{}.", plant(&f, " ")),
        1 => format!("correction: the {word} of the {name} is{}.", plant(&f, " ")),
        _ => format!("the {word} of the {name} has changed to{}.", plant(&f, " ")),
    };
    t.user(text);
    t.assistant("the user changes something.", format!("ok, the {word} of the {name} is now {}.", f.value));
    // The old one keeps its number (its place in the text stays marked) but is never asked again.
    t.facts[i].kind = 4;
    t.facts[i].asked = true;
    t.facts.push(f);
}

/// The user asks for one fact.
pub fn ask(t: &mut Talk, i: usize) {
    let f = t.facts[i].clone();
    t.facts[i].asked = true;
    let (field, name) = (f.field.word(), f.name.clone());
    let reasoning = format!("the user asks for the {field} of the {name}.");
    if f.field == Field::Code && t.r.chance(0.2) {
        t.user(format!("what is the {field} of the {name}, with its check digit?"));
        let digits: Vec<u32> = f.value.chars().filter_map(|c| c.to_digit(10)).collect();
        let check = mark(&format!("{}", (digits[0] + digits[2]) % 10), Mark::Answer { fact: f.id, kind: 7 });
        t.assistant(&reasoning, format!("the {field} of the {name} is{}/{check}.", answer(&f, " ")));
        return;
    }
    let question = match t.r.below(3) {
        0 => format!("what is the {field} of the {name}?"),
        1 => format!("tell me the {field} of the {name}."),
        _ => format!("{name}: {field}?"),
    };
    t.user(question);
    let text = if t.r.chance(0.7) {
        format!("the {field} of the {name} is{}.", answer(&f, " "))
    } else {
        format!("it is{}.", answer(&f, " "))
    };
    t.assistant(&reasoning, text);
}

/// The user asks for many facts at once.
pub fn ask_list(t: &mut Talk, which: &[usize]) {
    ask_list_after(t, "", which);
}

/// The same behind other words of the same message.
pub(crate) fn ask_list_after(t: &mut Talk, before: &str, which: &[usize]) {
    let mut questions = Vec::new();
    let mut answers = Vec::new();
    for &i in which {
        let f = t.facts[i].clone();
        t.facts[i].asked = true;
        questions.push(format!("{} of {}", f.field.word(), f.name));
        answers.push(format!("{} of {}:{}", f.field.word(), f.name, answer(&f, " ")));
    }
    t.user(format!("{before}answer each: {}.", questions.join("; ")));
    t.assistant("the user has a list of questions.", answers.join("\n"));
}

/// The user asks for a page, stops the assistant while it writes, and says where it should go.
pub fn interrupt(t: &mut Talk, s: &mut SmallTalk, sentences: usize) {
    let name = t.name(Field::City);
    let kind = *t.r.pick(&["page", "story", "letter"]);
    t.user(format!("write a {kind} about the {name}."));
    let mut body = format!("<{kind}>\n");
    for i in 0..sentences.max(1) {
        body.push_str(&s.sentence(&mut t.r));
        body.push(if i % 4 == 3 { '\n' } else { ' ' });
    }
    // Cut anywhere, at a word.
    let words: Vec<&str> = body.trim_end().split_inclusive(' ').collect();
    let keep = t.r.between(words.len() / 2, words.len()).max(1);
    let cut = words[..keep].concat().trim_end().to_owned();
    t.interrupted.push(t.messages.len());
    t.assistant(&format!("i write the {kind}."), mark(&cut, Mark::Free));
    let order = *t.r.pick(&["to a file", "put it into a file.", "no, to a file please."]);
    t.user(order);
    let id = t.facts.len() as u16;
    let f = Fact { id, name: name.clone(), field: Field::City, value: name, kind: 4, asked: true };
    if t.tools {
        let path = format!("{}.txt", f.name.replace(' ', "_"));
        let thought = format!("the user wants the {kind} about the{} in a file.", answer(&f, " "));
        let lead = if t.thinking {
            String::new()
        } else {
            format!("i write the {kind} about the{} to a file.", answer(&f, " "))
        };
        let call = t.call(&thought, &lead, "write_file", format!("{{\"path\": \"{path}\", \"kind\": \"{kind}\"}}"));
        t.result(call, "ok".to_owned());
        t.assistant("the file is written.", "the file is written.");
    } else {
        t.assistant(
            "the user wants it in a file.",
            format!("ok, the {kind} about the{} goes to a file.", answer(&f, " ")),
        );
    }
    t.facts.push(f);
}

/// Small talk of about this many sentences.
pub fn chat(t: &mut Talk, s: &mut SmallTalk, sentences: usize) {
    let text = s.sentences(&mut t.r, sentences);
    t.user(text);
    if t.r.chance(0.3) {
        let text = s.sentences(&mut t.r, (sentences / 2).clamp(1, 4));
        t.assistant("the user talks.", mark(&text, Mark::Free));
    } else {
        t.assistant("the user talks.", "i see.");
    }
}

/// The user asks what most of the small talk was about, where that is clear.
pub fn ask_topic(t: &mut Talk, s: &SmallTalk) {
    let Some(topic) = s.leading() else { return };
    t.user("which topic came up most?");
    let said = mark(&format!(" {topic}"), Mark::Answer { fact: 9999, kind: 6 });
    t.assistant("the user asks for the main topic.", format!("most of it was about{said}."));
}
