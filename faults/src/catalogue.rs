//! The reports that the faults are made after, and where each must show.

use std::collections::BTreeMap;

use karat_seam::Tap;

const CATALOGUE: &str = include_str!("../catalogue.tsv");
const TAPS: &str = include_str!("../taps.tsv");
const UNSEEDED: &str = include_str!("../unseeded.tsv");

/// One public report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// FAMILY-NN.
    pub id: &'static str,
    /// ROUTE, ACT, QUANT, ...
    pub family: &'static str,
    /// What was reported.
    pub title: &'static str,
    /// Where; several are separated by ` ; `.
    pub url: &'static str,
    /// When it happens.
    pub phase: &'static str,
    /// Where it shows first, in the words of the reports.
    pub tap: &'static str,
    /// How large it was.
    pub size: &'static str,
    /// What is expected to see it.
    pub catching: &'static str,
    /// What is expected not to see it.
    pub blind: &'static str,
    /// 1 (harmless) to 5 (silent wrong answers).
    pub severity: u8,
    /// op, load, state, sched, encoding, control.
    pub kind: &'static str,
    /// Cheap and unambiguous in a small model.
    pub core: bool,
}

/// Where a fault must show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// At one of these taps.
    Taps(Vec<Tap>),
    /// In the ids, before any number is compared.
    Ids,
}

fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines().filter(|l| !l.starts_with('#')).skip(1).map(|line| line.split('\t').collect())
}

/// Every report, in the order of the catalogue.
pub fn reports() -> Vec<Report> {
    let report = |c: Vec<&'static str>| Report {
        id: c[0],
        family: c[1],
        title: c[2],
        url: c[3],
        phase: c[4],
        tap: c[5],
        size: c[6],
        catching: c[7],
        blind: c[8],
        severity: c[10].parse().unwrap_or(0),
        kind: c[11],
        core: c[12] == "Y",
    };
    rows(CATALOGUE).map(report).collect()
}

/// Reports that no fault is made after: id, and why.
pub fn unseeded() -> Vec<(&'static str, &'static str)> {
    rows(UNSEEDED).map(|c| (c[0], c[1])).collect()
}

/// The report with this id.
pub fn report(id: &str) -> Option<Report> {
    reports().into_iter().find(|r| r.id == id)
}

/// Where a report's tap stands among ours; `None` where the table has no line.
pub fn expected(report: &Report) -> Option<Expected> {
    let table: BTreeMap<&str, &str> = rows(TAPS).map(|c| (c[0], c[1])).collect();
    // What several reports call the same (`unknown`) is settled report by report.
    let ours = table.get(report.id).or_else(|| table.get(report.tap))?;
    if *ours == "ids" {
        return Some(Expected::Ids);
    }
    Some(Expected::Taps(ours.split('|').filter_map(Tap::from_name).collect()))
}

#[cfg(test)]
mod tests;
