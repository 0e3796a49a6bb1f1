//! Conversations that begin alike and go apart: what a prefix cache shares, and what it must not.

use super::{Bench, ask_all, fill, reserve};
use crate::grammar::families::Drawn;
use crate::grammar::random::Random;
use crate::grammar::turns;

/// The first half is the same in every conversation of the recipe, the second has its own facts and values.
pub(super) fn make(bench: &Bench<'_>) -> Drawn {
    let recipe = bench.recipe;
    let (mut t, mut s) = bench.open(Random::new(recipe.seed, 0), true);
    let (start, facts) = (t.used, recipe.facts);
    let room = t.left().saturating_sub(reserve(recipe));
    for i in 0..facts {
        if i == facts / 2 {
            t.r = Random::new(recipe.seed, bench.number + 1);
        }
        fill(&mut t, &mut s, start + room * i / facts);
        // The same names may come again with another field or value: they are told apart by what stands in this branch.
        turns::tell(&mut t, &mut s, 1);
    }
    fill(&mut t, &mut s, start + room);
    ask_all(&mut t);
    bench.close(t)
}
