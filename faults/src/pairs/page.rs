//! docs/fault-pairs.md.

use std::fmt::Write as _;

use super::{Said, Told};
use crate::{Fault, catalogue};

impl Told {
    /// The word in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Not => "no",
            Self::NotApart => "not apart",
            Self::Row => "row",
            Self::Suspect => "suspect",
            Self::First => "first",
        }
    }
}

/// The whole page; `None` while something is missing.
pub fn page(pairs: &[[&'static Fault; 2]], seed: u64, said: &[Said]) -> Option<String> {
    let of = |faults: &[&'static Fault]| said.iter().find(|s| s.is_of(faults));
    let mut rows = String::new();
    let (mut seen, mut right, mut both, mut apart) = (0, 0, 0, 0);
    let mut lacking = Vec::new();
    for pair in pairs {
        let [a, b] = *pair;
        let (alone, said) = ([of(&[a])?, of(&[b])?], of(pair)?);
        let told = [said.tells(a, alone[1]), said.tells(b, alone[0])];
        let at: Vec<&str> = pair.iter().filter(|f| said.is_first(f)).map(|f| f.id).collect();
        seen += usize::from(said.first.is_some());
        right += usize::from(!at.is_empty());
        both += usize::from(told.iter().all(|t| *t > Told::NotApart));
        apart += usize::from(told.iter().all(|t| *t >= Told::Suspect));
        for (fault, t) in pair.iter().zip(told).filter(|(_, t)| *t <= Told::NotApart) {
            let other = if fault.id == a.id { b } else { a };
            lacking.push(format!("{} beside {} ({})", fault.id, other.id, t.name()));
        }
        let first = said.first.as_ref().map_or("-".to_string(), |[layer, tap, phase, part, _]| {
            let part = if part.is_empty() { String::new() } else { format!(" ({part})") };
            format!("{layer}: {tap} {phase}{part}")
        });
        let place = if at.is_empty() { "neither".to_string() } else { at.join(" and ") };
        let what = |f: &Fault| format!("{} ({}: {})", f.id, f.layer(), taps(f));
        let told = told.map(Told::name);
        let _ = writeln!(rows, "| {} | {} | {first} | {place} | {} | {} |", what(a), what(b), told[0], told[1]);
    }
    let lacking = if lacking.is_empty() { "none".to_string() } else { lacking.join(", ") };
    let n = pairs.len();
    let mut out = HEAD.replace("{n}", &n.to_string()).replace("{seed}", &seed.to_string());
    let _ = writeln!(
        out,
        "{n} pairs: {seen} detected, in {right} the first bad place is one where one of the two must show. Both are told of by rows of \
         their own in {both}, both as first bad place or suspect in {apart}.\n\nNot told of: {lacking}.\n"
    );
    out.push_str(TABLE);
    Some(out + &rows)
}

fn taps(fault: &Fault) -> String {
    let report = catalogue::report(fault.id);
    match report.as_ref().and_then(catalogue::expected) {
        Some(catalogue::Expected::Taps(taps)) => taps.iter().map(|t| t.name()).collect::<Vec<_>>().join(", "),
        _ => "ids".to_string(),
    }
}

const HEAD: &str = "# Two known bugs at once

Written by `cargo xtask faults --pairs {n} --seed {seed}`. Random pairs of faults of [faults.md](faults.md), of different families, both in one
candidate; bench, base and expected places as there, all taps shown. Faults of ids are not drawn: with other ids nothing is compared,
and the second fault shows when the first is gone.

*First bad*: what the audit names. *Told* of each fault: **first** (that place is its own), **suspect** (its place is among the suspects,
the first bad tap of each layer), **row** (a row at its place fails that passes with the other fault alone), **not apart** (rows at its
place fail, all of which fail with the other alone: no evidence of two faults), **no** (nothing fails there).

";

const TABLE: &str = "| one | other | first bad | which is the place of | one told | other told |
|---|---|---|---|---|---|
";
