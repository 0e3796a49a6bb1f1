//! Every number of a report is found in the bundle: a cell as it stands, or the answer to a question that the number
//! carries, asked again here from the tables alone.

use std::collections::{BTreeMap, BTreeSet};

use karat_bundle::gate::gate;
use karat_bundle::judge::recall::{bounds, paired};
use karat_bundle::policy::Policy;
use karat_bundle::{Bundle, Row, Verdict, history_verdict};
use serde_json::Value;

use super::fixture;
use super::xml::{Element, parse};

/// A table as text.
struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

struct Tables {
    bundle: Bundle,
    files: BTreeMap<&'static str, Table>,
    numbers: BTreeSet<u64>,
    texts: String,
}

fn table<R: Row>(rows: &[R]) -> (&'static str, Table) {
    let columns = R::COLUMNS.iter().map(|c| c.name).collect();
    (R::FILE, Table { columns, rows: rows.iter().map(Row::cells).collect() })
}

impl Tables {
    fn of(bundle: &Bundle) -> Self {
        let files: BTreeMap<&str, Table> = BTreeMap::from([
            table(&bundle.taps),
            table(&bundle.derivations),
            table(&bundle.tokens),
            table(&bundle.flips),
            table(&bundle.recall),
            table(&bundle.patches),
            table(&bundle.histories),
        ]);
        let mut out = Self { bundle: bundle.clone(), files, numbers: BTreeSet::new(), texts: String::new() };
        let cells: Vec<String> = out.files.values().flat_map(|t| t.rows.iter().flatten().cloned()).collect();
        for cell in cells {
            out.add(&cell);
        }
        for file in [serde_json::to_value(&bundle.run).unwrap(), serde_json::to_value(&bundle.verdict).unwrap()] {
            out.add_json(&file);
        }
        let names: Vec<String> = bundle.taps.iter().map(crate::facts::name).collect();
        names.iter().for_each(|n| out.add(n));
        out.add(&bundle.run.command.join(" "));
        // Allowed is the tolerance of the row times what the policy makes of it.
        let policy = &bundle.run.policy;
        for row in &bundle.taps {
            out.numbers.extend(row.tolerance.map(|t| (t * policy.scale(row)).to_bits()));
        }
        out
    }

    fn add(&mut self, text: &str) {
        if let Ok(v) = text.parse::<f64>() {
            self.numbers.insert(v.to_bits());
        }
        self.texts.push_str(&crate::clean(text, 10_000));
        self.texts.push('\n');
    }

    fn add_json(&mut self, value: &Value) {
        match value {
            Value::Number(n) => self.add(&n.to_string()),
            Value::String(s) => self.add(s),
            Value::Array(all) => all.iter().for_each(|v| self.add_json(v)),
            Value::Object(all) => all.iter().for_each(|(name, v)| {
                self.add(name);
                self.add_json(v);
            }),
            _ => {}
        }
    }

    /// Cells of a column in rows where other columns hold these values.
    fn select(&self, file: &str, column: &str, filter: &[(&str, &str)]) -> Vec<&str> {
        let table = &self.files[file];
        let at = |name: &str| table.columns.iter().position(|c| *c == name).unwrap_or_else(|| panic!("{file}: {name}"));
        let fits = |row: &&Vec<String>| filter.iter().all(|(name, value)| row[at(name)] == *value);
        table.rows.iter().filter(fits).map(|row| row[at(column)].as_str()).collect()
    }

    /// Answers a question.
    fn answer(&self, question: &str) -> f64 {
        let (what, filter) = question.split_once("; ").unwrap_or((question, ""));
        let words: Vec<&str> = what.split(' ').collect();
        let parts: Vec<&str> = filter.split("; ").collect();
        let pairs: Vec<(&str, &str)> = parts.iter().filter_map(|p| p.split_once('=')).collect();
        match words[..] {
            ["count", file, column] => {
                self.select(file, column, &pairs).iter().filter(|c| !c.is_empty()).count() as f64
            }
            ["changed", file, _] => {
                let (a, b) = (self.select(file, "top1_golden", &pairs), self.select(file, "top1_candidate", &pairs));
                a.iter().zip(b).filter(|(a, b)| **a != *b).count() as f64
            }
            ["rows", file, which] => self.rows(file, which, &pairs),
            ["recall", _, what] => self.recall(what, pairs.first().map(|p| p.1)),
            ["limit", _, what] => self.limit(what, pairs[0].1, pairs[1].1),
            ["grid" | "phase" | "stratum"] => self.field(words[0], &parts),
            ["detectable"] => self.detectable(parts[0], parts.get(1).copied().unwrap_or("")),
            ["most", "changed"] => self.most_changed(pairs[0].1.parse().unwrap(), pairs[1].1),
            ["distinct", file, column] => {
                self.select(file, column, &[]).into_iter().collect::<BTreeSet<_>>().len() as f64
            }
            ["differing", "histories"] => {
                let judged = self.bundle.histories.iter().filter_map(|r| history_verdict(r, &self.bundle.run.policy));
                judged.filter(|v| !matches!(v, Verdict::Pass | Verdict::Improved)).count() as f64
            }
            ["positions", "a", "column"] => (self.last_position() / 64 + 1) as f64,
            [how, file, column] => number(how, &self.select(file, column, &pairs)),
            _ => panic!("{question}"),
        }
    }

    fn last_position(&self) -> u64 {
        let all = [self.select("tokens.csv", "position", &[]), self.select("flips.csv", "position", &[])].concat();
        all.iter().map(|p| p.parse::<u64>().unwrap()).max().unwrap()
    }

    fn rows(&self, file: &str, which: &str, pairs: &[(&str, &str)]) -> f64 {
        let tap = pairs[0].1;
        let layer = pairs[2].1;
        let tap = tap.strip_prefix(&format!("layers.{layer}.")).unwrap_or(tap);
        let verdicts = self.select(file, "verdict", &[("tap", tap), pairs[1], pairs[2]]);
        verdicts.iter().filter(|v| which == "all" || **v == which).count() as f64
    }

    /// Right answers by hand: matched of asked.
    fn right(&self, row: &[String], who: &str) -> bool {
        let at = |name: &str| self.files["recall.csv"].columns.iter().position(|c| *c == name).unwrap();
        row[at(who)] == row[at("answer_tokens")]
    }

    fn answers(&self, set: Option<&str>) -> Vec<&Vec<String>> {
        let table = &self.files["recall.csv"];
        let at = |name: &str| table.columns.iter().position(|c| *c == name).unwrap();
        table
            .rows
            .iter()
            .filter(|r| set.is_none_or(|set| r[at("patch_set")] == set) && r[at("symptom")] != "truncated")
            .collect()
    }

    fn recall(&self, what: &str, set: Option<&str>) -> f64 {
        let rows = self.answers(set);
        let golden = |r: &&&Vec<String>| self.right(r, "matched_golden");
        let candidate = |r: &&&Vec<String>| self.right(r, "matched_candidate");
        (match what {
            "answers" => rows.len(),
            "golden" => rows.iter().filter(golden).count(),
            "candidate" => rows.iter().filter(candidate).count(),
            "lost" => rows.iter().filter(|r| golden(r) && !candidate(r)).count(),
            "gained" => rows.iter().filter(|r| !golden(r) && candidate(r)).count(),
            _ => {
                return bounds(&paired(self.bundle.recall.iter().filter(|r| set.is_none_or(|set| r.patch_set == set))))
                    .upper;
            }
        }) as f64
    }

    fn field(&self, grid: &str, parts: &[&str]) -> f64 {
        let set = parts[0].split_once('=').unwrap().1;
        let columns = &self.files["recall.csv"].columns;
        let cell = |r: &Vec<String>, name: &str| r[columns.iter().position(|c| *c == name).unwrap()].clone();
        let fits = |r: &&&Vec<String>| match grid {
            "grid" => {
                let length: u64 = cell(r, "context_tokens").parse().unwrap();
                let bucket = [1024, 4096, 12_288, 24_576].iter().filter(|end| length >= **end).count();
                let depth = cell(r, "depth").parse::<f64>().map_or(4, |d| ((d * 4.0).floor() as usize).min(3));
                (bucket.to_string(), depth.to_string()) == (parts[1].to_string(), parts[2].to_string())
            }
            "phase" => {
                let i: usize = parts[1].parse().unwrap();
                let phase = cell(r, "length_phase").split('|').nth(i).unwrap().parse::<f64>().unwrap();
                let quarter = (phase / [4.0, 128.0, 256.0, 8192.0][i] * 4.0).floor().min(3.0);
                quarter.to_string() == parts[2]
            }
            _ => cell(r, "margin_stratum") == parts[1],
        };
        let rows = self.answers(Some(set));
        let mut rows: Vec<&&Vec<String>> = rows.iter().filter(fits).collect();
        match *parts.last().unwrap() {
            "golden" => rows.retain(|r| self.right(r, "matched_golden")),
            "candidate" => rows.retain(|r| self.right(r, "matched_candidate")),
            _ => {}
        }
        rows.len() as f64
    }

    fn limit(&self, what: &str, name: &str, set: &str) -> f64 {
        let mut bundle = self.bundle.clone();
        let policy = bundle.run.policy.clone();
        let gated = gate(&mut bundle, &policy, None, fixture::day());
        let found = gated.limits.judged.into_iter().find(|j| j.limit == name && j.patch_set == set).unwrap();
        match what {
            "value" => found.value,
            "bound" => found.bound,
            "upper" => found.upper.unwrap(),
            _ => found.n as f64,
        }
    }

    fn detectable(&self, what: &str, which: &str) -> f64 {
        let mut bundle = self.bundle.clone();
        let policy = bundle.run.policy.clone();
        let gated = gate(&mut bundle, &policy, None, fixture::day());
        let judged = |r: &&karat_bundle::TapRow| r.gate == which && r.verdict.is_some() && r.tolerance.is_some();
        let scaled = || bundle.taps.iter().filter(judged).map(|r| r.tolerance.unwrap() * policy.scale(r));
        match what {
            "rows" => scaled().count() as f64,
            "tightest" => scaled().fold(f64::INFINITY, f64::min),
            "loosest" => scaled().fold(0.0, f64::max),
            "tests" => gated.limits.tests as f64,
            "answers" => gated.detectable.recall.unwrap().0 as f64,
            "loss" => 1.0 - 0.05_f64.powf(1.0 / gated.detectable.recall.unwrap().0 as f64),
            "floors" => gated.detectable.tensors.iter().find(|t| t.unit == which).unwrap().floors.unwrap(),
            "n" => gated.detectable.means.iter().find(|m| m.0 == which).unwrap().1 as f64,
            _ => gated.detectable.means.iter().find(|m| m.0 == which).unwrap().2,
        }
    }

    fn most_changed(&self, step: u64, set: &str) -> f64 {
        let mut fields: BTreeMap<(&str, u64), f64> = BTreeMap::new();
        let of = |column: &str| self.select("flips.csv", column, &[("patch_set", set)]);
        for ((layer, kind), position) in of("layer").into_iter().zip(of("kind")).zip(of("position")) {
            if kind != "argmax" {
                *fields.entry((layer, position.parse::<u64>().unwrap() / step)).or_default() += 1.0;
            }
        }
        fields.into_values().fold(0.0, f64::max)
    }
}

/// A statistic of cells.
fn number(how: &str, cells: &[&str]) -> f64 {
    let mut values: Vec<f64> = cells.iter().filter(|c| !c.is_empty()).map(|c| c.parse().unwrap()).collect();
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    match how {
        "mean" => values.iter().sum::<f64>() / n,
        "sum" => values.iter().sum(),
        "max" => values[values.len() - 1],
        _ => values[(how[1..].parse::<f64>().unwrap() / 100.0 * n).ceil() as usize - 1],
    }
}

fn near(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a == b || (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

/// Words of the page itself that have a digit.
const OURS: [&str; 12] = [
    "sha256",
    "95 %",
    "90 %",
    "99 %",
    "under 1k",
    "1k to 4k",
    "4k to 12k",
    "12k to 24k",
    "24k and more",
    "KARAT",
    "f32",
    "rel-L2",
];

/// Walks an element: numbers must be found, texts of the bundle must be its, and nothing else may have a digit.
fn walk(element: &Element, tables: &Tables, found: &mut Vec<String>) {
    match element.name.as_str() {
        "style" | "svg" | "title" => return,
        "data" => {
            let value: f64 = element.attribute("value").parse().unwrap();
            match element.attribute("data-of") {
                "" => assert!(tables.numbers.contains(&value.to_bits()), "{value} is in no cell"),
                "modulus" => assert!([4.0, 128.0, 256.0, 8192.0].contains(&value)),
                question => {
                    let answer = tables.answer(question);
                    assert!(near(value, answer), "{question}: {value}, the tables say {answer}");
                }
            }
            assert!(shows(&element.text, value), "{} shows {value}", element.text);
            found.push(element.text.clone());
            return;
        }
        "code" => {
            let text = element.text.replace("karat report BUNDLE --explain ", "");
            assert!(!digits(&text) || tables.texts.contains(&text), "{text} is not in the bundle");
        }
        "span" if element.attribute("class") == "s" => {
            assert!(
                tables.texts.contains(&element.text) || !digits(&element.text) || is_ours(&element.text),
                "{}",
                element.text
            );
        }
        _ => {
            let text = OURS.iter().fold(element.text.clone(), |text, ours| text.replace(ours, ""));
            assert!(!digits(&text), "<{}> {text}", element.name);
        }
    }
    element.children.iter().for_each(|child| walk(child, tables, found));
}

/// Notes that the report itself adds.
fn is_ours(text: &str) -> bool {
    text.starts_with("no kernel ran: nothing is known of sm_90, sm_120")
}

fn digits(text: &str) -> bool {
    text.bytes().any(|b| b.is_ascii_digit())
}

/// True when the short text is the value, to the digits that it has.
fn shows(text: &str, value: f64) -> bool {
    match text.parse::<f64>() {
        Ok(v) if value.is_finite() => (v - value).abs() <= 0.051 * value.abs().max(f64::MIN_POSITIVE) || v == value,
        Ok(v) => v.to_bits() == value.to_bits() || v == value || (v.is_nan() && value.is_nan()),
        Err(_) => false,
    }
}

/// Numbers of the page.
fn numbers_of_html(bundle: &Bundle) -> (Tables, Vec<String>) {
    let tables = Tables::of(bundle);
    let page = parse(&crate::html(bundle), true).unwrap();
    let mut found = Vec::new();
    walk(&page, &tables, &mut found);
    (tables, found)
}

#[test]
fn every_number_of_the_page_is_found_in_the_bundle() {
    let (_, found) = numbers_of_html(&fixture::bundle());
    assert!(found.len() > 800, "{} numbers", found.len());
    numbers_of_html(&fixture::passing());
    numbers_of_html(&fixture::recalling());
    numbers_of_html(&fixture::serving());
}

/// A row that fails by a tighter policy is shown with the tolerance that it was judged by, in every format.
#[test]
fn what_is_allowed_is_what_was_judged_by() {
    let mut bundle = fixture::passing();
    let nearest = bundle.taps.iter().map(crate::facts::nearness).fold(0.0, f64::max);
    let policy = Policy { tolerance_scale: 0.5 * nearest, ..Policy::default() };
    gate(&mut bundle, &policy, None, fixture::day());
    numbers_of_html(&bundle);
    let judged = crate::facts::as_judged(&bundle);
    let failing = judged.taps.iter().filter(|r| r.verdict == Some(Verdict::Fail));
    let failing: Vec<_> = failing.filter(|r| r.value > Some(0.0) && r.tolerance > Some(0.0)).collect();
    assert!(!failing.is_empty() && failing.iter().all(|r| r.value > r.tolerance));
    let (whole, short) = (format!("{:?}", failing[0].tolerance.unwrap()), crate::number::option(failing[0].tolerance));
    assert!(crate::csv(&bundle).contains(&whole));
    for text in [crate::markdown(&bundle), crate::step_summary(&bundle), crate::junit(&bundle)] {
        assert!(text.contains(&short), "{short}: {text}");
    }
}

/// The other formats show numbers of the page, or cells.
#[test]
fn the_other_formats_show_the_same_numbers() {
    let bundle = fixture::bundle();
    let (tables, found) = numbers_of_html(&bundle);
    let mut shown: BTreeSet<String> = found.into_iter().collect();
    shown.extend(tables.numbers.iter().map(|bits| crate::number::short(f64::from_bits(*bits))));
    for (name, text) in [
        ("markdown", crate::markdown(&bundle)),
        ("summary", crate::step_summary(&bundle)),
        ("annotations", crate::annotations(&bundle)),
    ] {
        for line in text.lines() {
            for word in numbers(line) {
                let known = shown.contains(word.trim_start_matches('+')) || tables.texts.contains(word);
                assert!(known, "{name}: {word} in {line}");
            }
        }
    }
    // The csv has the whole numbers.
    for line in crate::csv(&bundle).lines().skip(1).filter(|l| !l.starts_with("limit")) {
        for cell in line.split(',').filter_map(|c| c.parse::<f64>().ok()) {
            assert!(tables.numbers.contains(&cell.to_bits()), "{cell} in {line}");
        }
    }
}

/// Words of a line that are numbers.
fn numbers(line: &str) -> Vec<&str> {
    let words = line.split(|c: char| c.is_whitespace() || "|,;:()`".contains(c)).map(|w| w.trim_end_matches('.'));
    words.filter(|w| w.parse::<f64>().is_ok() && digits(w) && !["90", "99"].contains(w)).collect()
}

/// The walk itself notices a number that is not there.
#[test]
fn a_wrong_number_is_noticed() {
    let bundle = fixture::bundle();
    let mut other = bundle.clone();
    other.tokens[5].kl *= 1.5;
    let page = parse(&crate::html(&bundle), true).unwrap();
    let walked = std::panic::catch_unwind(|| walk(&page, &Tables::of(&other), &mut Vec::new()));
    assert!(walked.is_err());
}
