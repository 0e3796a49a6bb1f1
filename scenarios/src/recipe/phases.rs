//! Questions at every phase of the length: the answer's first token stands 0 to 3 tokens before a multiple of a group, a
//! page or a chunk, so that a prompt ends, and decoding begins, at each residue around the edge.

use karat_model::Result;

use super::edges::{position_of, sentences};
use super::{Bench, fill};
use crate::grammar::families::Drawn;
use crate::grammar::marks::Mark;
use crate::grammar::talk::Talk;
use crate::grammar::turns;

/// Tokens of the shortest filler turn.
const SHORTEST: usize = 36;

/// Facts are told in the first part; the i-th question's answer begins before a multiple of the i-th edge (round and round).
pub(super) fn make(bench: &Bench<'_>) -> Result<Drawn> {
    let (mut t, mut s) = bench.open(bench.random(), false);
    let recipe = bench.recipe;
    let edges = &recipe.edges;
    // A question takes its own tokens, the shortest filler and half an edge on average.
    let filler: usize = (0..recipe.facts).map(|i| edges[i % edges.len()] / 2 + SHORTEST + 40).sum();
    let (start, room) = (t.used, t.left().saturating_sub(filler));
    for i in 0..recipe.facts {
        fill(&mut t, &mut s, start + room * i / recipe.facts);
        turns::tell(&mut t, &mut s, 1);
    }
    fill(&mut t, &mut s, start + room);
    let mut open: Vec<usize> = (0..t.facts.len()).collect();
    t.r.shuffle(&mut open);
    for (i, fact) in open.into_iter().enumerate() {
        let (edge, before) = (edges[i % edges.len()], i / edges.len() % 4);
        at(bench, &mut t, fact, edge, before)?;
    }
    Ok(bench.close(t))
}

/// Asks a fact so that its answer begins `before` tokens before a multiple of `edge`.
fn at(bench: &Bench<'_>, t: &mut Talk, fact: usize, edge: usize, before: usize) -> Result<()> {
    let (messages, used, r) = (t.messages.len(), t.used, t.r.clone());
    let id = t.facts[fact].id;
    let mut tokens = SHORTEST;
    for _ in 0..2 {
        t.messages.truncate(messages);
        t.used = used;
        // The same question in both rounds.
        t.r = r.clone();
        turns::ask(t, fact);
        let question = t.messages.split_off(messages);
        let filler = sentences(t, tokens);
        t.user(filler);
        t.assistant("the user talks.", "i see.");
        t.messages.extend(question);
        let answers = |mark| matches!(mark, Mark::Answer { fact, kind } if fact == id && kind != 7);
        let Some(at) = position_of(bench, t, answers)? else { break };
        let short = (edge - before % edge + edge - at % edge) % edge;
        if short == 0 {
            break;
        }
        tokens += short;
    }
    Ok(())
}
