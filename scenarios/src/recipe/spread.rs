//! Facts spread over a conversation, told in one way or another, and asked at its end.

use super::{Bench, ask_all, fill, reserve};
use crate::grammar::families::Drawn;
use crate::grammar::small_talk::SmallTalk;
use crate::grammar::talk::Talk;
use crate::grammar::turns;

/// Tells `facts` facts at even depths from the start to just before the questions.
fn spread(bench: &Bench<'_>, mut tell: impl FnMut(&mut Talk, &mut SmallTalk)) -> Drawn {
    let (mut t, mut s) = bench.open(bench.random(), false);
    let (start, facts) = (t.used, bench.recipe.facts);
    let room = t.left().saturating_sub(reserve(bench.recipe));
    for i in 0..facts {
        fill(&mut t, &mut s, start + room * i / facts);
        tell(&mut t, &mut s);
    }
    fill(&mut t, &mut s, start + room);
    ask_all(&mut t);
    bench.close(t)
}

/// Facts that the user tells.
pub(super) fn needle(bench: &Bench<'_>) -> Drawn {
    spread(bench, |t, s| turns::tell(t, s, 1))
}

/// Values that the model chose itself, aloud or (where reasoning is kept) in its thoughts.
pub(super) fn own(bench: &Bench<'_>) -> Drawn {
    spread(bench, |t, _| turns::invent(t))
}

/// Values that a tool gave, with another call behind each.
pub(super) fn result(bench: &Bench<'_>) -> Drawn {
    spread(bench, |t, s| {
        turns::look_up(t);
        turns::other_call(t, s);
    })
}

/// One value told in the first turn and asked in the second, as often as facts are wanted.
pub(super) fn turn_two(bench: &Bench<'_>) -> Drawn {
    let (mut t, mut s) = bench.open(bench.random(), false);
    turns::tell(&mut t, &mut s, 1);
    ask_all(&mut t);
    bench.close(t)
}
