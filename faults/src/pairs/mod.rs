//! Two faults at once: is one audit still right about where, and does it say of both?

mod page;

use karat_audit::Result;
use karat_bundle::judge::row_verdict;
use karat_bundle::{Evidence, FlipRow, Policy, TapRow, Verdict, judge};
use serde_json::{Value, json};

use crate::bench::{CONTROL, STOCK, is_expected};
use crate::kept::{Kept, digest};
use crate::sizes::sized;
use crate::{Bench, Fault, Size, catalogue};

pub use page::page;

/// Candidates of one pass of golden.
const BATCH: usize = 12;

/// A row of taps.csv that fails: layer, tap, phase, part, gate.
pub type Row = [String; 5];

/// What one audit with all taps said about some faults at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The faults, in the order of the list.
    pub ids: Vec<String>,
    /// The first bad place.
    pub first: Option<Row>,
    /// The first bad (layer, tap) of each layer, as the report names them.
    pub suspects: Vec<(String, String)>,
    /// Every row that fails.
    pub failing: Vec<Row>,
}

/// How a report tells of one fault of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    /// Nothing at its place fails.
    Not,
    /// Rows at its place fail, but all of them would with the other one alone.
    NotApart,
    /// A row at its place fails that passes with the other one alone.
    Row,
    /// So, and its place is among the suspects (the first bad tap of each layer).
    Suspect,
    /// So, and its place is the first bad one.
    First,
}

/// Numeric faults of one request that are no controls. With other ids nothing is compared: whatever else is wrong shows only when they are right.
fn drawable() -> Vec<&'static Fault> {
    sized().into_iter().filter(|f| f.ids.is_none() && !f.together).collect()
}

/// `n` different pairs of faults of different families, drawn by a seed (splitmix64).
pub fn draw(n: usize, seed: u64) -> Vec<[&'static Fault; 2]> {
    let all = drawable();
    let family = |f: &Fault| catalogue::report(f.id).map(|r| r.family);
    let mut state = seed;
    let mut random = |below: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    };
    let mut out: Vec<[&'static Fault; 2]> = Vec::new();
    let most = all.len() * (all.len() - 1) / 4;
    while out.len() < n.min(most) {
        let (i, j) = (random(all.len()), random(all.len()));
        let pair = [all[i.min(j)], all[i.max(j)]];
        let is_new = !out.iter().any(|p| p[0].id == pair[0].id && p[1].id == pair[1].id);
        if family(pair[0]) != family(pair[1]) && is_new {
            out.push(pair);
        }
    }
    out
}

/// All that was said so far.
pub fn said(kept: &Kept) -> Vec<Said> {
    kept.lines().iter().filter_map(Said::of_json).collect()
}

/// Audits each fault of the pairs alone, and each pair, until all are done (then true) or `goes_on` says no.
///
/// # Errors
/// A path can't run, what was kept is of other numbers, or nothing can be kept.
pub fn audit_pairs(
    bench: &Bench,
    pairs: &[[&'static Fault; 2]],
    kept: &mut Kept,
    goes_on: &dyn Fn() -> bool,
    say: &dyn Fn(&str),
) -> std::result::Result<bool, Box<dyn std::error::Error>> {
    let mut sets: Vec<Vec<&'static Fault>> = Vec::new();
    let mut want = |set: Vec<&'static Fault>| {
        let ids = |set: &[&'static Fault]| set.iter().map(|f| f.id).collect::<Vec<_>>();
        if !sets.iter().any(|s| ids(s) == ids(&set)) {
            sets.push(set);
        }
    };
    for pair in pairs {
        want(vec![pair[0]]);
        want(vec![pair[1]]);
        want(pair.to_vec());
    }
    loop {
        let so_far = said(kept);
        let is_open = |set: &&Vec<&'static Fault>| !so_far.iter().any(|s| s.is_of(set));
        let open: Vec<&Vec<&'static Fault>> = sets.iter().filter(is_open).collect();
        say(&format!("{} of {} candidates done", sets.len() - open.len(), sets.len()));
        if open.is_empty() {
            return Ok(true);
        }
        if !goes_on() {
            return Ok(false);
        }
        let (made, control) = bench.audit_sets(&open[..open.len().min(BATCH)])?;
        kept.add(control, made.iter().map(Said::to_json))?;
    }
}

impl Bench {
    /// Audits candidates with these faults in them in one pass of golden. Gives the digest of the candidate without a
    /// fault too.
    ///
    /// # Errors
    /// A path can't run.
    pub fn audit_sets(&self, sets: &[&Vec<&'static Fault>]) -> Result<(Vec<Said>, u64)> {
        let (base, stock) = (self.path(&self.checkpoint, &[])?, self.stock()?);
        let whole = |set: &&Vec<&'static Fault>| set.iter().map(|f| (*f, Size::Whole)).collect::<Vec<_>>();
        let seeded = sets.iter().map(|set| self.seeded(&whole(set))).collect::<Result<Vec<_>>>()?;
        let faulty: Vec<_> = seeded.iter().map(|s| s.faulty(&base)).collect();
        let names: Vec<String> = (0..sets.len()).map(|i| format!("set {i}")).collect();
        let mut candidates = vec![self.candidate(STOCK, &stock, &stock), self.candidate(CONTROL, &base, &base)];
        candidates.extend(faulty.iter().zip(&names).map(|(f, name)| self.candidate(name, f, f.inner)));
        let run = self.run(candidates)?;
        let rows_of = |name: &str| run.taps.iter().filter(|r| r.patch_set == name).cloned().collect::<Vec<TapRow>>();
        let said = |(set, name): (&&Vec<&'static Fault>, &String)| {
            let taps = rows_of(name);
            let flips: Vec<FlipRow> = run.flips.iter().filter(|r| r.patch_set == *name).cloned().collect();
            let policy = Policy::default();
            let report = judge(&Evidence { taps: &taps, flips: &flips, ..Evidence::default() }, &policy);
            let fails = |r: &&TapRow| row_verdict(r, &policy) == Some(Verdict::Fail);
            let key = |r: &TapRow| [&r.layer, &r.tap, &r.phase, &r.part, &r.gate].map(Clone::clone);
            Said {
                ids: set.iter().map(|f| f.id.to_string()).collect(),
                first: report.first_bad.map(|b| [b.layer, b.tap, b.phase, b.part, b.gate]),
                suspects: report.suspects.into_iter().map(|s| (s.layer, s.tap)).collect(),
                failing: taps.iter().filter(fails).map(key).collect(),
            }
        };
        Ok((sets.iter().zip(&names).map(said).collect(), digest(&rows_of(CONTROL), &self.requests.seqs[0].id)))
    }
}

/// True where this is the fault's layer, and a tap where it must show (or of the same op).
fn is_place(fault: &Fault, layer: &str, tap: &str) -> bool {
    fault.layer() == layer && is_expected(fault, tap)
}

impl Said {
    fn is_of(&self, faults: &[&'static Fault]) -> bool {
        self.ids.iter().map(String::as_str).eq(faults.iter().map(|f| f.id))
    }

    /// Whether the first bad place is one where this fault must show.
    pub fn is_first(&self, fault: &Fault) -> bool {
        self.first.as_ref().is_some_and(|[layer, tap, ..]| is_place(fault, layer, tap))
    }

    /// How it tells of one of its faults; `other`: what was said about the other one alone.
    pub fn tells(&self, fault: &Fault, other: &Said) -> Told {
        let here: Vec<&Row> = self.failing.iter().filter(|[layer, tap, ..]| is_place(fault, layer, tap)).collect();
        let own = here.iter().any(|row| !other.failing.contains(row));
        match (here.is_empty(), own) {
            (true, _) => Told::Not,
            (false, false) => Told::NotApart,
            _ if self.is_first(fault) => Told::First,
            _ if self.suspects.iter().any(|(layer, tap)| is_place(fault, layer, tap)) => Told::Suspect,
            _ => Told::Row,
        }
    }

    fn to_json(&self) -> Value {
        json!({ "ids": self.ids, "first": self.first, "suspects": self.suspects, "failing": self.failing })
    }

    fn of_json(v: &Value) -> Option<Self> {
        let text = |v: &Value| v.as_str().map(str::to_string);
        let row = |v: &Value| Some([text(&v[0])?, text(&v[1])?, text(&v[2])?, text(&v[3])?, text(&v[4])?]);
        let all = |field: &str| v[field].as_array();
        Some(Self {
            ids: all("ids")?.iter().map(text).collect::<Option<_>>()?,
            first: row(&v["first"]),
            suspects: all("suspects")?.iter().map(|s| Some((text(&s[0])?, text(&s[1])?))).collect::<Option<_>>()?,
            failing: all("failing")?.iter().map(row).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests;
