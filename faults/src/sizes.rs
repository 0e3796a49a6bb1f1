//! How small a fault may be and still be seen: each that has a natural scale, made in ever smaller shares.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use karat_audit::Result;

use crate::{Bench, Fault, catalogue};

/// The smallest share that is tried is 1/2^10.
pub const HALVINGS: i32 = 10;

/// The smallest share of one fault that is seen.
#[derive(Debug, Clone, Copy)]
pub struct Threshold {
    /// Which fault.
    pub fault: &'static Fault,
    /// Halvings of the share that is still seen, by evidence (all taps; layer outputs alone); `None` where the whole fault is
    /// not.
    pub seen: [Option<i32>; 2],
}

/// Faults that have a natural scale: they edit numbers, and a share of the edit is a smaller fault of the same kind.
pub fn scalable() -> Vec<&'static Fault> {
    let is_number = |f: &&'static Fault| {
        let report = catalogue::report(f.id);
        f.edit.is_some() && f.taps.iter().all(|t| !t.is_discrete()) && report.is_some_and(|r| r.kind != "control")
    };
    crate::faults().into_iter().filter(is_number).collect()
}

/// Scales each down by halves until neither evidence shows it.
///
/// # Errors
/// A path can't run.
pub fn thresholds(bench: &Bench, faults: &[&'static Fault]) -> Result<Vec<Threshold>> {
    let mut out: Vec<Threshold> = faults.iter().map(|fault| Threshold { fault, seen: [None; 2] }).collect();
    for halvings in 0..=HALVINGS {
        // A level of evidence that missed a larger share is not asked about a smaller one.
        let is_open = |t: &Threshold| t.seen.iter().any(|seen| *seen == (halvings > 0).then_some(halvings - 1));
        let open: Vec<usize> = (0..out.len()).filter(|i| is_open(&out[*i])).collect();
        if open.is_empty() {
            break;
        }
        let asked: Vec<&'static Fault> = open.iter().map(|i| out[*i].fault).collect();
        let found = bench.seen_at(&asked, 0.5f32.powi(halvings))?;
        for (i, found) in open.into_iter().zip(found) {
            for (seen, found) in out[i].seen.iter_mut().zip(found) {
                if found && *seen == (halvings > 0).then_some(halvings - 1) {
                    *seen = Some(halvings);
                }
            }
        }
    }
    Ok(out)
}

fn share(halvings: Option<i32>) -> String {
    match halvings {
        None => "missed".to_string(),
        Some(HALVINGS) => format!("1/{} or less", 1 << HALVINGS),
        Some(0) => "1".to_string(),
        Some(n) => format!("1/{}", 1 << n),
    }
}

/// The page.
pub fn page(thresholds: &[Threshold]) -> String {
    let mut out = HEAD.to_string();
    let mut families: BTreeMap<&str, Vec<&Threshold>> = BTreeMap::new();
    for t in thresholds {
        families.entry(catalogue::report(t.fault.id).map_or("", |r| r.family)).or_default().push(t);
    }
    for (family, all) in families {
        let of = |level: usize| {
            let mut sizes: Vec<Option<i32>> = all.iter().map(|t| t.seen[level]).collect();
            sizes.sort_unstable();
            (share(sizes[sizes.len() / 2]), share(sizes[0]))
        };
        let ((median, worst), (median_l, worst_l)) = (of(0), of(1));
        let _ = writeln!(out, "| {family} | {} | {median} | {worst} | {median_l} | {worst_l} |", all.len());
    }
    out.push_str("\n| fault | what is changed | all taps | layer outputs alone |\n|---|---|---|---|\n");
    for t in thresholds {
        let _ = writeln!(out, "| {} | {} | {} | {} |", t.fault.id, t.fault.change, share(t.seen[0]), share(t.seen[1]));
    }
    out
}

const HEAD: &str = "# How small a fault may be

Written by `cargo xtask faults --sizes`. Every seeded fault that edits numbers ([faults.md](faults.md)) is made in shares of a
half, a quarter and so on: what the op leaves is so far on the way from right to wrong. The table has the smallest share that
an audit still sees (and all larger ones), with all taps and with layer outputs alone; faults of decisions, files and ids have no
such scale. A fault that ends in numbers that are none is seen at any share. Mini geometry, random weights, stock `official` with
the accepted patches, two turns of 300 ids.

| family | faults | all taps: median | worst | layer outputs: median | worst |
|---|---|---|---|---|---|
";
