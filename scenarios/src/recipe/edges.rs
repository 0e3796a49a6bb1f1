//! Facts laid across edges: the value begins 0 to 3 tokens before a multiple of a group, a page or a chunk.

use karat_model::Result;
use karat_model::prompt::Role;

use super::{Bench, ask_all, fill, reserve};
use crate::grammar::families::Drawn;
use crate::grammar::marks::{Mark, clean};
use crate::grammar::talk::{Fact, Field, Talk};
use crate::grammar::turns;

/// Tokens of the shortest filler turn.
const SHORTEST: usize = 36;

/// The i-th fact lies across a multiple of the i-th edge (round and round), its value beginning 0 to 3 tokens before it.
pub(super) fn make(bench: &Bench<'_>) -> Result<Drawn> {
    let (mut t, mut s) = bench.open(bench.random(), false);
    let recipe = bench.recipe;
    let edges = &recipe.edges;
    let (start, room) = (t.used, t.left().saturating_sub(reserve(recipe)));
    for i in 0..recipe.facts {
        // A chunk's edge is far: whatever lies before it is small talk.
        fill(&mut t, &mut s, start + room * i / recipe.facts);
        let (edge, before) = (edges[i % edges.len()], i / edges.len() % 4);
        across(bench, &mut t, edge, before)?;
    }
    ask_all(&mut t);
    Ok(bench.close(t))
}

/// Tells a code whose first token stands `before` tokens before a multiple of `edge`.
fn across(bench: &Bench<'_>, t: &mut Talk, edge: usize, before: usize) -> Result<()> {
    let name = t.name(Field::Code);
    let value = t.value(Field::Code);
    let fact = Fact { id: t.facts.len() as u16, name, field: Field::Code, value, kind: 0, asked: false };
    let text = turns::told(t, &fact);
    let kept = (t.messages.len(), t.used);
    let mut tokens = SHORTEST;
    for _ in 0..2 {
        t.messages.truncate(kept.0);
        t.used = kept.1;
        let filler = sentences(t, tokens);
        t.user(filler);
        t.assistant("the user talks.", "i see.");
        t.user(text.clone());
        t.assistant("the user tells me something to keep.", "noted.");
        let planted = |mark| mark == Mark::Plant { fact: fact.id };
        let Some(at) = position_of(bench, t, planted)? else { break };
        // One more round with so many tokens more puts it where it belongs.
        let short = (edge - before % edge + edge - at % edge) % edge;
        if short == 0 {
            break;
        }
        tokens += short;
    }
    t.facts.push(fact);
    Ok(())
}

/// Sentences of seven tokens and, for the remainder, of six: `tokens` in all, at least 30.
pub(super) fn sentences(t: &mut Talk, tokens: usize) -> String {
    let sixes = (7 - tokens % 7) % 7;
    let sevens = (tokens - 6 * sixes) / 7;
    let mut out = Vec::new();
    for i in 0..sevens + sixes {
        out.push(plain(t, i < sixes));
    }
    out.join(" ")
}

fn plain(t: &mut Talk, short: bool) -> String {
    use crate::grammar::words::{QUALITIES, TOPICS, VERBS};
    let mut noun = || {
        let topic = t.r.pick(&TOPICS).1;
        *t.r.pick(&topic)
    };
    let (a, b) = (noun(), noun());
    let (q, v) = (*t.r.pick(&QUALITIES), *t.r.pick(&VERBS));
    if short { format!("the {a} {v} the {b}.") } else { format!("the {q} {a} {v} the {b}.") }
}

/// Position of the first token of the last stretch with a mark like this.
pub(super) fn position_of(bench: &Bench<'_>, t: &Talk, wanted: impl Fn(Mark) -> bool) -> Result<Option<usize>> {
    let options = karat_model::prompt::EncodeOptions { thinking: t.thinking, drop_thinking: true, effort: None };
    let assistant: Vec<bool> = t.messages.iter().map(|m| m.role == Role::Assistant).collect();
    let (prompt, labels) = clean(&bench.encoder.encode(&t.messages, &options)?, &assistant);
    let encoded = bench.tokenizer.encode_prompt(&prompt)?;
    let marked = |i: Option<usize>| i.and_then(|i| labels.get(i)).and_then(|l| l.mark).is_some_and(&wanted);
    Ok(encoded.spans.iter().rfind(|s| marked(s.message)).map(|s| s.range.start))
}
