//! Names out of other people's files inject nothing, in any format.

use karat_bundle::Bundle;

use super::fixture;
use super::junit::check;
use super::xml::parse;

/// What somebody may call a sequence.
fn names() -> Vec<String> {
    let mut names: Vec<String> = [
        "</code><script>window.pwned=1</script>",
        "\"><img src=x onerror=window.pwned=1>",
        "]]><!--",
        "a\u{1b}[2J\u{7}\u{0}b\r\n::error::pwned",
        "%0A::warning::pwned",
        "| cell | `x` ``y`` | [a](https://evil) ![p](https://evil) @everyone #1",
        "# heading\n- list\n<details>",
        "=HYPERLINK(\"https://evil\")",
        "+cmd,|' /C calc'!A0",
        "\u{202e}txt.exe\u{2066}",
        "'; DROP",
        "\u{ffff}\u{feff}\u{d7ff}",
        "",
        "--",
    ]
    .map(String::from)
    .to_vec();
    names.push("long ".repeat(40_000));
    names.push("x".repeat(100_000));
    names
}

/// Every text of the bundle made hostile.
fn hostile() -> Bundle {
    let mut bundle = fixture::bundle();
    let names = names();
    let mut at = 0;
    let mut next = || {
        at += 1;
        names[at % names.len()].clone()
    };
    let run = &mut bundle.run;
    (run.producer, run.model.label, run.backend, run.device) = (next(), next(), next(), next());
    (run.model.config_sha256, run.scenarios[0].name, run.candidate.name, run.candidate.claims) =
        (next(), next(), next(), next());
    (run.command, run.notes) = (names.clone(), names.clone());
    run.kernels = names.iter().map(|n| (n.clone(), n.clone())).collect();
    run.seeds = names.iter().map(|n| (n.clone(), 1)).collect();
    run.candidate.patch_sets = names.clone();
    for r in &mut bundle.taps {
        (r.scenario, r.sequence, r.patch_set) = (next(), next(), next());
        (r.phase, r.layer, r.op, r.tap, r.part) = (next(), next(), next(), next(), next());
        if r.gate == "rel_l2" {
            r.gate = next();
        }
    }
    for r in &mut bundle.tokens {
        (r.sequence, r.patch_set, r.phase, r.history) = (next(), next(), next(), next());
    }
    for r in &mut bundle.flips {
        (r.sequence, r.layer, r.patch_set, r.phase) = (next(), next(), next(), next());
    }
    for r in &mut bundle.recall {
        (r.scenario, r.conversation, r.patch_set, r.margin_stratum) = (next(), next(), next(), next());
        (r.expected, r.said, r.symptom, r.length_phase) = (next(), next(), next(), next());
        r.matched_candidate = 0;
    }
    for r in &mut bundle.patches {
        (r.patch, r.profile, r.phases, r.risk, r.state) = (next(), next(), next(), next(), next());
    }
    for r in &mut bundle.histories {
        (r.scenario, r.sequence, r.history, r.what, r.layer) = (next(), next(), next(), next(), next());
        (r.tensor, r.pool, r.minimal, r.missing, r.read_by) = (next(), next(), next(), next(), next());
    }
    let report = &mut bundle.verdict;
    (report.reasons, report.next_step, report.signature) = (names.clone(), next(), Some(next()));
    if let Some(found) = &mut report.examination {
        (found.summary, found.op, found.tap) = (next(), next(), next());
        found.signatures.iter_mut().for_each(|s| (s.name, s.fits) = (next(), Some(next())));
        found.effects.iter_mut().for_each(|e| e.layer = next());
    }
    if let Some(bad) = &mut report.first_bad {
        (bad.tap, bad.layer, bad.phase) = (next(), next(), next());
    }
    bundle
}

/// No control character, and nothing that turns the direction of writing.
fn shown(text: &str) {
    let bad = |c: &char| {
        (c.is_control() && *c != '\n') || ('\u{202a}'..='\u{202e}').contains(c) || ('\u{2066}'..='\u{2069}').contains(c)
    };
    assert_eq!(text.chars().find(bad), None);
}

/// The page of hostile names, for the browser's test too.
pub(super) fn page() -> String {
    crate::html(&hostile())
}

#[test]
fn html_holds_no_element_of_theirs() {
    let text = page();
    shown(&text);
    assert!(text.len() < 3_000_000, "{} bytes", text.len());
    let page = parse(&text, true).unwrap_or_else(|e| panic!("{e}"));
    let all = page.all();
    assert!(all.iter().all(|e| !["script", "img"].contains(&e.name.as_str())));
    assert!(all.iter().flat_map(|e| e.attributes.keys()).all(|name| !name.starts_with("on")));
    let titles = all.iter().filter(|e| e.text.contains("<script>window.pwned=1</script>")).count();
    assert!(titles > 0, "the name is shown as text");
}

#[test]
fn junit_stays_valid() {
    let text = crate::junit(&hostile());
    shown(&text);
    let root = check(&text);
    assert!(root.all().iter().flat_map(|e| e.attributes.values()).all(|v| v.chars().count() <= 600));
}

#[test]
fn markdown_holds_no_markup_of_theirs() {
    for text in [crate::markdown(&hostile()), crate::step_summary(&hostile())] {
        shown(&text);
        for line in text.lines() {
            // What a backslash stands before is text.
            let outside = without_code(line).replace("\\]", "");
            for banned in ["<script", "<img", "<details", "](", "@everyone", " #1", "https://"] {
                assert!(!outside.contains(banned), "{banned}: {line}");
            }
            assert!(!line.starts_with("::"), "{line}");
        }
        // Each table keeps its columns: bars of names are no cells.
        let mut columns = 0;
        for line in text.lines() {
            let cells = line.replace("\\|", "").matches('|').count();
            match line.starts_with('|') {
                true if columns == 0 => columns = cells,
                true => assert_eq!(cells, columns, "{line}"),
                false => columns = 0,
            }
        }
    }
}

/// What stands outside of code spans.
fn without_code(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let escaped = rest[..start].ends_with('\\');
        out.push_str(&rest[..start]);
        let run = rest[start..].len() - rest[start..].trim_start_matches('`').len();
        let after = &rest[start + run..];
        if escaped {
            rest = after;
            continue;
        }
        let fence = "`".repeat(run);
        let mut from = 0;
        let end = loop {
            let at = after[from..].find(&fence).unwrap_or_else(|| panic!("a span without end: {line}")) + from;
            let longer = after[at + run..].starts_with('`');
            if !longer && !after[..at].ends_with('`') {
                break at;
            }
            from = at + 1 + after[at + 1..].len() - after[at + 1..].trim_start_matches('`').len();
        };
        rest = &after[end + run..];
    }
    out + rest
}

#[test]
fn annotations_are_the_only_commands() {
    let text = crate::annotations(&hostile());
    shown(&text);
    for line in text.lines() {
        let (kind, rest) = line.strip_prefix("::").and_then(|l| l.split_once(" title=")).expect("an annotation");
        assert!(["error", "warning", "notice"].contains(&kind), "{line}");
        let (title, _) = rest.split_once("::").expect("a message");
        assert!(!title.contains([':', ',']) && !line.contains("%0"), "{line}");
    }
}

#[test]
fn csv_cells_are_text() {
    let text = crate::csv(&hostile());
    shown(&text);
    let mut reader = read_csv(&text);
    let head = reader.remove(0);
    assert_eq!(head.len(), crate::csv::COLUMNS.len());
    for cells in reader {
        assert_eq!(cells.len(), head.len(), "{cells:?}");
        let formula =
            cells.iter().find(|c| c.trim_start().starts_with(['=', '+', '-', '@']) && c.parse::<f64>().is_err());
        assert_eq!(formula, None);
    }
}

/// RFC 4180, by hand.
fn read_csv(text: &str) -> Vec<Vec<String>> {
    let line = |line: &str| {
        let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' if quoted && chars.peek() == Some(&'"') => cell.extend(chars.next()),
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(std::mem::take(&mut cell)),
                c => cell.push(c),
            }
        }
        assert!(!quoted, "{line}");
        cells.push(cell);
        cells
    };
    text.lines().map(line).collect()
}
