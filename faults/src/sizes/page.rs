//! docs/fault-sizes.md.

use std::fmt::Write as _;

use super::{Added, Amount, Tried, sized};
use crate::kept::number;
use crate::{Fault, catalogue};

/// One fault's line: the smallest size that is seen, and the largest that is missed under it.
struct Line<'a> {
    fault: &'static Fault,
    family: &'static str,
    whole: &'a Tried,
    seen: Option<&'a Tried>,
    missed: Option<&'a Tried>,
}

impl Line<'_> {
    /// What the smallest seen size adds to a tap that has a tolerance, where a smaller one is missed.
    fn added(&self) -> Option<&Added> {
        self.missed?;
        self.seen.filter(|_| !self.whole.by_rows)?.added.as_ref().filter(|a| a.tolerance.is_some())
    }

    fn rows(&self) -> Option<usize> {
        self.seen.filter(|_| self.whole.by_rows).map(|t| rows(t, self.whole))
    }
}

fn rows(t: &Tried, whole: &Tried) -> usize {
    if let Amount::Rows(n) = t.amount { n } else { whole.rows.len() }
}

fn order(t: &Tried) -> f64 {
    match t.amount {
        Amount::Share(share) => f64::from(share),
        Amount::Rows(n) => n as f64 * 1e-9,
    }
}

/// The whole page. Faults of which nothing was tried are left out.
pub fn page(tried: &[Tried]) -> String {
    let line = |fault: &'static Fault| {
        let own = || tried.iter().filter(|t| t.id == fault.id);
        let whole = own().next()?;
        let least = own().filter(|t| t.is_seen()).min_by(|a, b| order(a).total_cmp(&order(b)));
        // Several shares may be the same size: the largest of them.
        let same = |t: &&Tried| t.is_seen() && t.added.is_some() && t.added == least.and_then(|l| l.added.clone());
        let seen = own().filter(same).max_by(|a, b| order(a).total_cmp(&order(b))).or(least);
        let missed = own().filter(|t| !t.is_seen()).max_by(|a, b| order(a).total_cmp(&order(b)));
        let family = catalogue::report(fault.id)?.family;
        Some(Line { fault, family, whole, seen, missed })
    };
    let lines: Vec<Line<'_>> = sized().into_iter().filter_map(line).collect();
    let mut out = HEAD.to_string();
    out.push_str(&families(&lines));
    out.push_str(LIST);
    for l in &lines {
        let how = match (l.whole.by_rows, l.fault.ids.is_some(), l.fault.files.is_some(), l.fault.edit.is_some()) {
            (true, true, ..) => "ids",
            (true, ..) => "rows",
            (_, _, true, true) => "tap and files",
            (_, _, true, false) => "files",
            (_, _, false, true) => "tap",
            _ => "-",
        };
        let size = |t: Option<&Tried>| t.map_or("-".to_string(), |t| amount(t, l.whole));
        let added = |t: Option<&Tried>| t.and_then(|t| t.added.as_ref()).map_or("-".to_string(), |a| number(a.rel_l2));
        let at = l.seen.and_then(|t| t.added.as_ref());
        let place = at.map_or("-".to_string(), |a| {
            let part = if a.part.is_empty() { String::new() } else { format!(" ({})", a.part) };
            format!("{} {}{part}", a.tap, a.phase)
        });
        let tolerance = at.and_then(|a| a.tolerance).map_or("-".to_string(), number);
        let outcome = l.seen.map_or("missed", |t| t.outcome.name());
        let named = l.seen.and_then(|t| t.named.as_deref()).unwrap_or("-");
        let _ = writeln!(
            out,
            "| {} | {how} | {} | {} | {place} | {tolerance} | {outcome} | {named} | {} | {} |",
            l.fault.id,
            size(l.seen),
            added(l.seen),
            if l.seen.is_some() && l.missed.is_none() { "nothing smaller".to_string() } else { size(l.missed) },
            added(l.missed),
        );
    }
    out
}

fn amount(t: &Tried, whole: &Tried) -> String {
    match t.amount {
        Amount::Share(1.0) if !whole.by_rows => "1".to_string(),
        Amount::Share(share) if !whole.by_rows => format!("1/{}", (1.0 / share).round()),
        _ => format!("{} of {}", rows(t, whole), whole.rows.len()),
    }
}

/// Middle and largest of some numbers.
fn middle_and_most(mut all: Vec<f64>) -> (String, String) {
    all.sort_by(f64::total_cmp);
    let n = all.len();
    match all.last() {
        None => ("-".to_string(), "-".to_string()),
        Some(most) => {
            let middle = if n.is_multiple_of(2) { f64::midpoint(all[n / 2 - 1], all[n / 2]) } else { all[n / 2] };
            (number(middle), number(*most))
        }
    }
}

fn families(lines: &[Line<'_>]) -> String {
    let mut out = FAMILIES.to_string();
    let mut names: Vec<&str> = lines.iter().map(|l| l.family).collect();
    names.sort_unstable();
    names.dedup();
    let mut row = |name: &str, is_in: &dyn Fn(&Line<'_>) -> bool| {
        let some: Vec<&Line<'_>> = lines.iter().filter(|l| is_in(l)).collect();
        let added: Vec<&Added> = some.iter().filter_map(|l| l.added()).collect();
        let (middle, most) = middle_and_most(added.iter().map(|a| a.rel_l2).collect());
        let (middle_over, most_over) = middle_and_most(added.iter().map(|a| a.over()).collect());
        let rows: Vec<usize> = some.iter().filter_map(|l| l.rows()).collect();
        let most_rows = rows.iter().max().map_or("-".to_string(), usize::to_string);
        let _ = writeln!(
            out,
            "| {name} | {} | {} | {middle} | {most} | {middle_over} | {most_over} | {} | {most_rows} | {} |",
            some.len(),
            added.len(),
            rows.len(),
            some.iter().filter(|l| l.seen.is_some() && l.missed.is_none()).count(),
        );
    };
    for name in names {
        row(name, &|l| l.family == name);
    }
    row("all", &|_| true);
    out
}

const HEAD: &str = "# How small a known bug can be

Written by `cargo xtask faults --sizes`. Each fault of [faults.md](faults.md) (controls left out) is made a quarter as large until
an audit with all taps misses it, then once more in between: the smallest size that is seen is at most twice the largest that is
missed, unless nothing smaller can be made. Stock `official` with the accepted patches, mini geometry, random weights, two turns of 300
ids, as there; only whether anything is over its tolerance counts as *seen*.

*Made smaller by*: **tap**: right + s (wrong - right), value by value, where the fault edits a tap (rounded to bf16 where
bf16 values stood); **files**: the same for stored
numbers (F32, BF16, fields of the config), and for codes and scales, which have nothing in between, so large a share of the rows that
the fault changes; **rows**: where decisions change or numbers are none, so many of the rows that the whole fault changes, evenly
spread; **ids**: so many of the positions at which the whole fault has another id.

*Added* is |wrong - right| / |right| over all rows of the phase at the tap, the path with the fault against the same path without it,
up to there on the same operands: the unit of the tap's tolerance. It is given where the fault edits a tap, of wrong files at the expected tap where it is nearest to
its tolerance, or furthest over it (part `op`: the tolerance of the op alone); for decisions it is the share of rows that changed, and
has no tolerance.

## By family

A fault is counted under *numbers* where what it adds has a tolerance and a smaller size is missed, under *rows* where it is made
smaller by rows or ids. *Always seen*: nothing smaller can be made of it, and that is still seen (one row, one id, one row of codes; a sink
that is gone is gone at any share).

";

const FAMILIES: &str = "| family | faults | numbers | added, median | added, worst | of the tolerance, median | worst | rows | most rows needed | always seen |
|---|---|---|---|---|---|---|---|---|---|
";

const LIST: &str = "
A fault under 1 of its tolerance is seen because the path's own roundings come on top of it, or by another row than the one that its
size is given at: by units of the last place, a changed decision, or a later tap.

## By fault

| fault | made smaller by | smallest seen | added | at | tolerance | outcome | named | largest missed | added |
|---|---|---|---|---|---|---|---|---|---|
";
