//! JUnit: each gate a test case with a stable name (`layers.12.attn.out@decode`), one suite a scenario.
//!
//! Written by hand: the format is four elements, and a writer for it brings a calendar and an XML library along, half a
//! minute of a cold build. Its elements, their order and attributes are those of Jenkins' junit-10.xsd (`tests/junit.rs`).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use karat_bundle::judge::recall::{candidate_is_right, counts, golden_is_right};
use karat_bundle::{Bundle, TapRow, Verdict, history_verdict};

use crate::facts::{as_judged, gated, is_allowed, name, nearness};
use crate::number::short;
use crate::text::{TEXT, xml};

/// Longest name of a case.
const NAME: usize = 240;

/// A test case.
struct Case {
    class: String,
    name: String,
    verdict: Verdict,
    /// Why it failed; of a case that passed what is to be said all the same.
    message: String,
}

/// The report as JUnit XML.
pub fn junit(bundle: &Bundle) -> String {
    let mut suites: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    for (scenario, case) in taps(&as_judged(bundle)).into_iter().chain(histories(bundle)).chain(recall(bundle)) {
        suites.entry(scenario).or_default().push(case);
    }
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let mut all: Vec<(String, Vec<Case>)> = vec![("karat".to_string(), run(bundle))];
    all.extend(suites);
    let cases = || all.iter().flat_map(|(_, cases)| cases);
    // The schema counts skipped cases in suites only.
    let total = numbers(cases());
    let total = total.split(" skipped").next().unwrap_or_default();
    let _ = writeln!(out, "<testsuites name=\"karat\" {total}>");
    for (name, cases) in &all {
        let _ = writeln!(out, "  <testsuite name=\"{}\" {}>", xml(name, NAME), numbers(cases.iter()));
        cases.iter().for_each(|case| write(&mut out, case));
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

fn numbers<'a>(cases: impl Iterator<Item = &'a Case>) -> String {
    let (mut tests, mut failures, mut errors, mut skipped) = (0, 0, 0, 0);
    for case in cases {
        tests += 1;
        match kind(case.verdict) {
            "failure" => failures += 1,
            "error" => errors += 1,
            "skipped" => skipped += 1,
            _ => {}
        }
    }
    format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\"")
}

/// The element that says so. What proves nothing is an error: a skipped case would look like a pass.
fn kind(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass | Verdict::Improved => "",
        Verdict::Fail | Verdict::Regressed => "failure",
        Verdict::Skipped => "skipped",
        _ => "error",
    }
}

fn write(out: &mut String, case: &Case) {
    let head = format!("    <testcase classname=\"{}\" name=\"{}\"", xml(&case.class, NAME), xml(&case.name, NAME));
    let _ = match kind(case.verdict) {
        "" if case.message.is_empty() => writeln!(out, "{head}/>"),
        "" => writeln!(out, "{head}>\n      <system-out>{}</system-out>\n    </testcase>", xml(&case.message, TEXT)),
        kind => {
            let (word, message) = (case.verdict.name(), xml(&case.message, TEXT));
            writeln!(out, "{head}>\n      <{kind} type=\"{word}\" message=\"{message}\"/>\n    </testcase>")
        }
    };
}

/// What is about the run as a whole.
fn run(bundle: &Bundle) -> Vec<Case> {
    let report = &bundle.verdict;
    let case = |class: &str, name: String, verdict, message| Case { class: class.to_string(), name, verdict, message };
    let mut out = vec![case("karat", "verdict".into(), report.verdict, report.reasons.join("; "))];
    for p in &bundle.patches {
        let message = format!(
            "state {}, measured {}, claimed {}",
            p.state,
            crate::number::option(p.measured_error),
            short(p.claimed_error)
        );
        out.push(case("patch", p.patch.clone(), p.verdict.unwrap_or(Verdict::Unproven), message));
    }
    for j in gated(bundle).limits.judged {
        let message = format!("{}: {}, limit {}", j.metric, short(j.value), short(j.bound));
        let verdict = if j.allowed { Verdict::Pass } else { j.verdict };
        out.push(case("limit", format!("{}@{}", j.limit, j.patch_set), verdict, message));
    }
    out
}

/// One case a tap, phase and patch set: the row nearest to its tolerance over all sequences; a failing one before others.
fn taps(bundle: &Bundle) -> Vec<(String, Case)> {
    let mut worst: BTreeMap<(&str, u64, &str, &str, &str), &TapRow> = BTreeMap::new();
    for row in &bundle.taps {
        let Some(verdict) = row.verdict else { continue };
        let entry = worst.entry((&row.scenario, row.order, &row.patch_set, &row.phase, &row.part)).or_insert(row);
        let before = entry.verdict.unwrap_or_default();
        if verdict < before || (verdict == before && nearness(row) > nearness(entry)) {
            *entry = row;
        }
    }
    let case = |row: &TapRow| {
        let part = if row.part.is_empty() { String::new() } else { format!("#{}", row.part) };
        let number = crate::number::option;
        let position = row.max_abs_position.map(|p| format!(", largest at {p}")).unwrap_or_default();
        let message = format!(
            "{} {}, predicted {}, allowed {}, floor {}; sequence {}{position}",
            row.gate,
            number(row.value),
            number(row.predicted),
            number(row.tolerance),
            number(row.floor),
            row.sequence,
        );
        let name = format!("{}{part}@{}", name(row), row.phase);
        let (verdict, message) = match row.verdict.unwrap_or_default() {
            Verdict::Fail if is_allowed(bundle, row) => {
                (Verdict::Pass, format!("over tolerance, allowed for now: {message}"))
            }
            Verdict::Pass => (Verdict::Pass, String::new()),
            other => (other, message),
        };
        Case { class: row.patch_set.clone(), name, verdict, message }
    };
    worst.into_values().map(|row| (row.scenario.clone(), case(row))).collect()
}

fn histories(bundle: &Bundle) -> Vec<(String, Case)> {
    let judged = bundle.histories.iter().filter_map(|r| Some((r, history_verdict(r, &bundle.run.policy)?)));
    judged
        .map(|(r, verdict)| {
            let name = format!("{}/{}@{}", r.against, r.what, r.sequence);
            let place = crate::facts::place(&r.layer, &r.tensor);
            let message = match verdict {
                Verdict::Pass => String::new(),
                _ => format!("{} {}, first at {place}; {}", r.gate, crate::number::option(r.value), r.missing),
            };
            (r.scenario.clone(), Case { class: format!("history {}", r.history), name, verdict, message })
        })
        .collect()
}

/// One case an answer that golden gives. A lost one is told; whether so many may be lost, a limit judges.
fn recall(bundle: &Bundle) -> Vec<(String, Case)> {
    let asked = bundle.recall.iter().filter(|r| golden_is_right(r));
    asked
        .map(|r| {
            let verdict = if counts(r) { Verdict::Pass } else { Verdict::Skipped };
            let message = match candidate_is_right(r) {
                true => String::new(),
                false => format!("lost: expected {:?}, said {:?} ({})", r.expected, r.said, r.symptom),
            };
            let name = format!("recall {}/{}@{}", r.conversation, r.question, r.history);
            (r.scenario.clone(), Case { class: r.patch_set.clone(), name, verdict, message })
        })
        .collect()
}
