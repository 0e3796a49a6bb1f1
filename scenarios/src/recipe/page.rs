//! One turn with a long answer: the check that looks green while every conversation of more turns is broken.

use super::Bench;
use crate::grammar::families::Drawn;
use crate::grammar::turns;

/// Facts and the questions about all of them stand in one message; the answer is one long list.
pub(super) fn make(bench: &Bench<'_>) -> Drawn {
    let (mut t, mut s) = bench.open(bench.random(), false);
    let parts: Vec<String> = (0..bench.recipe.facts)
        .map(|_| {
            let f = t.fact(0);
            let told = turns::told(&mut t, &f);
            t.facts.push(f);
            format!("{told} {}", s.sentence(&mut t.r))
        })
        .collect();
    let all: Vec<usize> = (0..t.facts.len()).collect();
    turns::ask_list_after(&mut t, &(parts.join(" ") + " "), &all);
    bench.close(t)
}
