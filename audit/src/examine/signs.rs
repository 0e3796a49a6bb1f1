//! Signatures of the suspected op's error.

use karat_bundle::SignatureTest;
use karat_diff::signature::{self, Parts, Rows};
use karat_seam::{Data, Phase, Recorded, RowId, Site};

use super::{Look, OpError, cut, test};
use crate::align;
use crate::lockstep::Lockstep;
use crate::storage::storage;

/// What was tested on golden's op and the candidate's on the same operands, all rows of the sequence.
pub(super) fn of(setup: &Lockstep<'_>, look: &Look<'_>, op: &OpError) -> Vec<SignatureTest> {
    let tap = op.tap;
    let Some(theirs) = look.seen.get(Site::layer(look.l, tap), look.seq) else { return Vec::new() };
    let Some(golden) = op.golden.get(&tap) else { return Vec::new() };
    let recorded = Recorded { rows: theirs.rows.clone(), tensor: golden.clone() };
    let width = theirs.tensor.width().max(golden.width());
    let take = |of: &Recorded| align::take(tap, of, &theirs.rows, width).map(std::borrow::Cow::into_owned);
    let (Some(ours), Some(candidate)) = (take(&recorded), take(theirs)) else { return Vec::new() };
    let (Data::F32(x), Data::F32(y)) = (&ours.data, &candidate.data) else { return Vec::new() };
    if x.len() != y.len() {
        return Vec::new();
    }
    let rows: &[RowId] = &theirs.rows;
    let positions: Vec<u32> = rows.iter().map(|r| r.pos).collect();
    let decode: Vec<bool> = rows.iter().map(|r| look.phase(tap, *r) == Phase::Decode).collect();
    let boundaries = if tap.is_per_entry() { Vec::new() } else { boundaries(setup, look) };
    let boundaries: Vec<(u32, &str)> = boundaries.iter().map(|(at, what)| (*at, what.as_str())).collect();
    let labels = cut::labels(look, tap, rows);
    let parts: Vec<Parts<'_>> = cut::kind(tap, &candidate.shape)
        .map(|(kind, count)| Parts { kind, count, labels: &labels })
        .into_iter()
        .collect();
    let constants: Vec<(&str, f64)> = setup.facts.constants.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    let mantissa = match storage(look.candidate.claims, tap) {
        karat_diff::Storage::Bf16 => 7,
        _ => 23,
    };
    let rows = Rows {
        golden: x,
        candidate: y,
        width,
        positions: &positions,
        decode: &decode,
        boundaries: &boundaries,
        parts: &parts,
        constants: &constants,
        mantissa,
    };
    signature::all(&rows).into_iter().map(test).collect()
}

/// Where turns begin, where decoding begins, and where the first window is full.
fn boundaries(setup: &Lockstep<'_>, look: &Look<'_>) -> Vec<(u32, String)> {
    let sequence = &setup.golden.requests().seqs[look.seq as usize];
    let mut out = Vec::new();
    for (i, turn) in sequence.turns.iter().enumerate().skip(1) {
        out.extend(turn.spans.first().map(|s| (s.start, format!("turn {}", i + 1))));
    }
    let window = setup.facts.window as u32;
    if window > 0 && (window as usize) < sequence.ids.len() {
        out.push((window, format!("past the first window of {window}")));
    }
    out.sort();
    out
}
