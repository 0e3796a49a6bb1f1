//! Tables of recall: by scenario, by context length, by golden's margin.

use karat_bundle::judge::recall::{
    Bounds, bounds, candidate_is_right, counts, golden_is_right, paired, patch_sets, upper,
};
use karat_bundle::{Bundle, RecallRow};
use serde_json::{Value, json};

use crate::output::{Style, json_number};

/// Rows that a line is about.
struct Line<'a> {
    name: String,
    rows: Vec<&'a RecallRow>,
}

impl Line<'_> {
    fn cells(&self) -> [String; 7] {
        let rows: Vec<&RecallRow> = self.rows.iter().copied().filter(|r| counts(r)).collect();
        let n = rows.len();
        let share = |f: fn(&RecallRow) -> bool| match n {
            0 => "-".to_owned(),
            n => format!("{:.1} %", 100.0 * rows.iter().filter(|r| f(r)).count() as f64 / n as f64),
        };
        let kl = rows.iter().map(|r| r.answer_kl).sum::<f64>() / n.max(1) as f64;
        let held = rows.iter().map(|r| r.worst_margin_candidate - r.worst_margin_golden).sum::<f64>() / n.max(1) as f64;
        let (lost, gained) = (lost(&rows), gained(&rows));
        [
            n.to_string(),
            share(golden_is_right),
            share(candidate_is_right),
            lost.to_string(),
            gained.to_string(),
            if n == 0 { "-".to_owned() } else { format!("{kl:.1e}") },
            if n == 0 { "-".to_owned() } else { format!("{held:+.2}") },
        ]
    }
}

fn lost(rows: &[&RecallRow]) -> usize {
    rows.iter().filter(|r| golden_is_right(r) && !candidate_is_right(r)).count()
}

fn gained(rows: &[&RecallRow]) -> usize {
    rows.iter().filter(|r| !golden_is_right(r) && candidate_is_right(r)).count()
}

fn context(row: &RecallRow) -> &'static str {
    match row.context_tokens {
        0..1024 => "under 1k",
        1024..4096 => "1k to 4k",
        4096..12_288 => "4k to 12k",
        12_288..24_576 => "12k to 24k",
        _ => "24k and more",
    }
}

const CONTEXTS: [&str; 5] = ["under 1k", "1k to 4k", "4k to 12k", "12k to 24k", "24k and more"];
const STRATA: [&str; 6] = ["wrong", "0-0.5", "0.5-1", "1-2", "2-4", "4+"];

fn margin(stratum: &str) -> String {
    format!("golden's margin {stratum}")
}

/// Rows in groups, in the order of `names` (or of first appearance), empty groups left out.
fn groups<'a>(rows: &[&'a RecallRow], names: &[&str], of: impl Fn(&RecallRow) -> String) -> Vec<Line<'a>> {
    let mut out: Vec<Line<'a>> = names.iter().map(|n| Line { name: (*n).to_owned(), rows: Vec::new() }).collect();
    for row in rows {
        let name = of(row);
        match out.iter_mut().find(|l| l.name == name) {
            Some(line) => line.rows.push(row),
            None => out.push(Line { name, rows: vec![row] }),
        }
    }
    out.retain(|l| !l.rows.is_empty());
    out
}

/// The table of one patch set.
pub(super) fn tables(bundle: &Bundle, style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    let heads = ["answers", "golden", "candid.", "lost", "gained", "KL", "margin"];
    for set in patch_sets(&bundle.recall) {
        let rows: Vec<&RecallRow> = bundle.recall.iter().filter(|r| r.patch_set == set).collect();
        let head: String = heads.iter().map(|h| format!("{h:>9}")).collect();
        lines.push(style.bold(&format!("{:<28}{head}", format!("recall under {set}"))));
        let parts = [
            groups(&rows, &[], |r| r.scenario.clone()),
            groups(&rows, &CONTEXTS, |r| context(r).to_owned()),
            groups(&rows, &STRATA.map(margin).each_ref().map(String::as_str), |r| margin(&r.margin_stratum)),
            vec![Line { name: "all".to_owned(), rows: rows.clone() }],
        ];
        for part in parts {
            for line in part {
                let cells: String = line.cells().iter().map(|c| format!("{c:>9}")).collect();
                lines.push(format!("{:<28}{cells}", line.name));
            }
        }
        lines.push(symptoms(&rows));
        lines.push(blind(&rows));
    }
    if !lines.is_empty() {
        lines.push(
            "KL: mean over answers; margin: how much the candidate's worst margin is above golden's, nats".to_owned(),
        );
    }
    lines
}

/// The short form of an audit: one line a patch set.
pub(super) fn short(bundle: &Bundle, style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    let name = patch_sets(&bundle.recall).iter().map(|set| set.len() + 1).fold(24, usize::max);
    for set in patch_sets(&bundle.recall) {
        let rows: Vec<&RecallRow> = bundle.recall.iter().filter(|r| r.patch_set == set && counts(r)).collect();
        let right = |f: fn(&RecallRow) -> bool| rows.iter().filter(|r| f(r)).count();
        let worst = rows.iter().map(|r| r.worst_margin_candidate).fold(f64::INFINITY, f64::min);
        lines.push(format!(
            "{set:<name$}{:>9}{:>9}{:>11}{:>10}{worst:>14.2}",
            rows.len(),
            right(golden_is_right),
            right(candidate_is_right),
            format!("{:.1e}", rows.iter().map(|r| r.answer_kl).sum::<f64>() / rows.len().max(1) as f64),
        ));
    }
    if lines.is_empty() {
        return lines;
    }
    let head = format!(
        "{:<name$}{:>9}{:>9}{:>11}{:>10}{:>14}",
        "recall", "answers", "golden", "candidate", "KL", "worst margin"
    );
    std::iter::once(style.bold(&head)).chain(lines).collect()
}

fn symptoms(rows: &[&RecallRow]) -> String {
    let found = groups(rows, &["repetition", "amnesia", "token salad", "truncated", "wrong value", "fine"], |r| {
        r.symptom.clone()
    });
    let words: Vec<String> = found.iter().map(|l| format!("{} {}", l.rows.len(), l.name)).collect();
    format!("answers look: {}", words.join(", "))
}

/// Measures of the surface, means over right answers beside those over wrong ones: to show that they are blind.
fn blind(rows: &[&RecallRow]) -> String {
    let rows = || rows.iter().copied().filter(|r| counts(r));
    let pair = |of: &dyn Fn(&RecallRow) -> Option<f64>| {
        [true, false].map(|right| {
            let found: Vec<f64> = rows().filter(|r| candidate_is_right(r) == right).filter_map(of).collect();
            match found.len() {
                0 => "-".to_owned(),
                n => format!("{:.2}", found.iter().sum::<f64>() / n as f64),
            }
        })
    };
    let cells: [(&str, &dyn Fn(&RecallRow) -> Option<f64>); 4] = [
        ("gzip", &|r| r.gzip_ratio),
        ("unique words", &|r| r.unique_word_ratio),
        ("word run", &|r| r.max_word_run.map(|v| v as f64)),
        ("line repeat", &|r| r.max_line_repeat.map(|v| v as f64)),
    ];
    let cells: Vec<String> = cells.iter().map(|(name, of)| format!("{name} {}", pair(of).join("|"))).collect();
    format!("blind to it, right|wrong: {}", cells.join(", "))
}

/// The same as json.
pub(super) fn data(bundle: &Bundle) -> Value {
    let one = |set: &&str| {
        let rows: Vec<&RecallRow> = bundle.recall.iter().filter(|r| r.patch_set == **set).collect();
        let Bounds { answers, lost, gained, mean, lower, .. } = bounds(&paired(rows.iter().copied()));
        let upper = upper(&rows, &bundle.run.policy);
        let strata: Vec<Value> = groups(&rows, &STRATA, |r| r.margin_stratum.clone()).iter().map(group).collect();
        let contexts: Vec<Value> = groups(&rows, &CONTEXTS, |r| context(r).to_owned()).iter().map(group).collect();
        let scenarios: Vec<Value> = groups(&rows, &[], |r| r.scenario.clone()).iter().map(group).collect();
        json!({
            "patch_set": set, "answers": answers, "lost": lost, "gained": gained, "mean": json_number(mean),
            "lower": json_number(lower), "upper": json_number(upper), "by_margin": strata, "by_context": contexts,
            "by_scenario": scenarios,
        })
    };
    json!(patch_sets(&bundle.recall).iter().map(one).collect::<Vec<_>>())
}

fn group(line: &Line<'_>) -> Value {
    let rows: Vec<&RecallRow> = line.rows.iter().copied().filter(|r| counts(r)).collect();
    let right = |f: fn(&RecallRow) -> bool| rows.iter().filter(|r| f(r)).count();
    json!({
        "name": line.name, "answers": rows.len(), "golden": right(golden_is_right),
        "candidate": right(candidate_is_right), "lost": lost(&rows), "gained": gained(&rows),
    })
}
