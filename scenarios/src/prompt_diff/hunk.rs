//! Differences between two prompts in atoms, laid where people would lay them.

use karat_model::prompt::special;

use super::align::{self, Hunk};
use super::atoms::Kind;
use super::side::Side;

/// Hunks of atoms, in order.
pub(super) fn hunks(expected: &Side, found: &Side) -> Vec<Hunk> {
    let a: Vec<&str> = (0..expected.atoms.len()).map(|i| expected.of(i)).collect();
    let b: Vec<&str> = (0..found.atoms.len()).map(|i| found.of(i)).collect();
    let mut hunks = align::hunks(&a, &b);
    let mut floor = (0, 0);
    for hunk in &mut hunks {
        if hunk.found.is_empty() {
            let n = slide(&a, hunk.expected.clone(), floor.0, |i| expected.kind(i));
            shift(hunk, n);
        } else if hunk.expected.is_empty() {
            let n = slide(&b, hunk.found.clone(), floor.1, |i| found.kind(i));
            shift(hunk, n);
        }
        floor = (hunk.expected.end, hunk.found.end);
    }
    hunks
}

fn shift(hunk: &mut Hunk, n: usize) {
    hunk.expected = hunk.expected.start - n..hunk.expected.end - n;
    hunk.found = hunk.found.start - n..hunk.found.end - n;
}

/// How far to the left a stretch that is on one side only should move: `b a b [a b]` can as well be `b [a b] a b`. A
/// whole turn begins with its token.
fn slide(texts: &[&str], range: std::ops::Range<usize>, floor: usize, kind: impl Fn(usize) -> Kind) -> usize {
    let rank = |start: usize| match kind(start) {
        Kind::Token(token) if token == special::USER => 2,
        Kind::Token(token) if token == special::ASSISTANT => 1,
        _ => 0,
    };
    let mut best = (rank(range.start), 0);
    let mut n = 0;
    while range.start - n > floor && texts[range.start - n - 1] == texts[range.end - n - 1] {
        n += 1;
        if rank(range.start - n) > best.0 {
            best = (rank(range.start - n), n);
        }
    }
    best.1
}
