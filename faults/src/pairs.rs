//! Two faults at once: is the first place that is named one of theirs, and the other's when that is mended?

use std::fmt::Write as _;

use karat_audit::Result;
use karat_bundle::FirstBad;

use crate::bench::is_at;
use crate::{Bench, Fault, catalogue};

/// What audits of two faults name.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The two.
    pub faults: [&'static Fault; 2],
    /// The first bad place with both.
    pub both: Option<FirstBad>,
    /// Which of the two it is.
    pub named: Option<usize>,
    /// The first bad place once that one is mended, and whether it is the other's.
    pub rest: Option<(Option<FirstBad>, bool)>,
}

/// So many random pairs of different faults that edit taps or files, by a seed.
pub fn pairs(n: usize, seed: u64) -> Vec<[&'static Fault; 2]> {
    let is_alone = |f: &&'static Fault| catalogue::report(f.id).is_some_and(|r| r.kind != "control") && f.ids.is_none();
    let all: Vec<&'static Fault> = crate::faults().into_iter().filter(is_alone).collect();
    let mut state = seed;
    let mut below = |n: usize| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    };
    let mut out: Vec<[&'static Fault; 2]> = Vec::new();
    while out.len() < n {
        let (a, b) = (below(all.len()), below(all.len()));
        let is_new = !out.iter().any(|p| [p[0].id, p[1].id] == [all[a].id, all[b].id]);
        if a != b && is_new {
            out.push([all[a], all[b]]);
        }
    }
    out
}

/// Audits each pair, and what is left of it when the fault that was named is mended.
///
/// # Errors
/// A path can't run.
pub fn audit(bench: &Bench, pairs: &[[&'static Fault; 2]]) -> Result<Vec<Pair>> {
    let sets: Vec<Vec<&'static Fault>> = pairs.iter().map(|pair| pair.to_vec()).collect();
    let mut out = Vec::new();
    for (pair, both) in pairs.iter().zip(bench.first_bad(&sets)?) {
        let named = both.as_ref().and_then(|bad| pair.iter().position(|fault| is_at(fault, bad)));
        out.push(Pair { faults: *pair, both, named, rest: None });
    }
    let open: Vec<usize> = (0..out.len()).filter(|i| out[*i].named.is_some()).collect();
    let other = |i: &usize| out[*i].named.map(|n| out[*i].faults[1 - n]);
    let rest: Vec<Vec<&'static Fault>> = open.iter().filter_map(other).map(|fault| vec![fault]).collect();
    for (i, bad) in open.into_iter().zip(bench.first_bad(&rest)?) {
        let is_other = out[i].named.zip(bad.as_ref()).is_some_and(|(n, bad)| is_at(out[i].faults[1 - n], bad));
        out[i].rest = Some((bad, is_other));
    }
    Ok(out)
}

/// The page.
pub fn page(pairs: &[Pair], seed: u64) -> String {
    let named = pairs.iter().filter(|p| p.named.is_some()).count();
    let both = pairs.iter().filter(|p| p.rest.as_ref().is_some_and(|(_, is_other)| *is_other)).count();
    let mut out = format!(
        "{HEAD}{} pairs (seed {seed}): in {named} the first place that is named is one of the two; in {both} the other is named \
         once that one is mended.\n\n| faults | named first | then |\n|---|---|---|\n",
        pairs.len()
    );
    let place =
        |bad: &Option<FirstBad>| bad.as_ref().map_or("nothing".to_string(), |b| format!("{}: {}", b.layer, b.tap));
    for pair in pairs {
        let [a, b] = pair.faults.map(|f| f.id);
        let who = pair.named.map_or("neither".to_string(), |n| pair.faults[n].id.to_string());
        let then = match &pair.rest {
            Some((bad, true)) => format!("{} ({})", pair.named.map_or("", |n| pair.faults[1 - n].id), place(bad)),
            Some((bad, false)) => format!("neither ({})", place(bad)),
            None => "-".to_string(),
        };
        let _ = writeln!(out, "| {a}, {b} | {who} ({}) | {then} |", place(&pair.both));
    }
    out
}

const HEAD: &str = "# Two faults at once

Written by `cargo xtask faults --pairs N`. Random pairs of the seeded faults ([faults.md](faults.md)) in one candidate, one audit
each with all taps: is the first bad place one of theirs (layer, and tap or another result of the same op), and the other's
once the first is mended? Mini geometry, random weights, stock `official` with the accepted patches.

";
