//! Facts that change again and again: the model must find the latest value, which takes order in time.

use super::{Bench, ask_all, fill};
use crate::grammar::families::Drawn;
use crate::grammar::turns;

/// Corrections for each fact.
const CHANGES: usize = 3;

/// Tells the facts, changes them over the length of the conversation, asks some on the way and all at the end.
pub(super) fn make(bench: &Bench<'_>) -> Drawn {
    let (mut t, mut s) = bench.open(bench.random(), true);
    let facts = bench.recipe.facts;
    while t.facts.len() < facts {
        let missing = facts - t.facts.len();
        turns::tell(&mut t, &mut s, missing);
    }
    let start = t.used;
    // A question is about 26 tokens; half as many again are asked on the way.
    let room = t.left().saturating_sub(facts * 40 + 20);
    let changes = facts * CHANGES;
    for i in 0..changes {
        fill(&mut t, &mut s, start + room * i / changes);
        turns::correct(&mut t);
        if i % 6 == 5 {
            let known: Vec<usize> = (0..t.facts.len()).filter(|&i| t.facts[i].kind != 4).collect();
            let i = *t.r.pick(&known);
            turns::ask(&mut t, i);
            // It is asked again at the end.
            t.facts[i].asked = false;
        }
    }
    fill(&mut t, &mut s, start + room);
    ask_all(&mut t);
    bench.close(t)
}
