//! The report for people: aligned, and short where nothing was found.

use crate::evidence::Evidence;
use crate::map::DiffMap;
use crate::report::{Claim, PatchRow, Report, Requested, State, Verdict};

/// Evidences of one statement that are shown; json has all.
const SHOWN: usize = 2;

/// The verdict's sentence, without its first word.
fn sentence(report: &Report) -> String {
    let inert = report.patches.iter().filter(|r| r.requested == Requested::Yes && r.state == State::Inert);
    let mut parts: Vec<String> = inert.map(|r| format!("{} is requested and inert", r.patch)).collect();
    parts.extend(report.contradictions.iter().map(|c| format!("{} contradict each other", c.between.join(" and "))));
    match report.verdict {
        Verdict::Fail => parts.join("; "),
        Verdict::Unproven if report.patches.iter().any(|r| r.state != State::Unknown) => {
            "the process is none of an engine's, as far as its command line tells".into()
        }
        Verdict::Unproven => "no patch's state can be seen in these sources".into(),
        Verdict::Pass => "nothing requested is inert or contradictory".into(),
    }
}

/// The whole report, verdict first.
pub fn report_text(report: &Report) -> String {
    let mut out = format!("{}: {}\n", report.verdict.name(), sentence(report));
    let width = report.sources.iter().map(|s| s.kind.name().len()).max().unwrap_or(0);
    out.push('\n');
    for source in &report.sources {
        out.push_str(&format!("{:width$}  {}\n", source.kind.name(), karat_model::Plain(&source.file)));
    }
    patches(report, &mut out);
    for c in &report.contradictions {
        out.push_str(&format!("\ncontradiction: {}\n  {}: {}\n", c.between.join(", "), c.rule, c.says));
        evidence(&c.evidence, &mut out);
    }
    if !report.conflicts.is_empty() {
        out.push_str("\nsources disagree\n");
    }
    for c in &report.conflicts {
        let value = |v: &Option<String>| v.clone().unwrap_or_else(|| "a value the engine can't read".into());
        out.push_str(&format!("  {} = {}  [{}]\n", c.setting, value(&c.wins.value), c.wins.evidence.place()));
        for other in &c.others {
            out.push_str(&format!("    not {}  [{}]\n", value(&other.value), other.evidence.place()));
        }
        out.push_str(&format!("    {}\n", c.why));
    }
    files(report, &mut out);
    if let Some(diff) = &report.diff {
        out.push('\n');
        out.push_str(&diff_text(diff));
    }
    if !report.not_in_tables.is_empty() {
        out.push_str("\nvariables that no table knows, so not judged\n");
        for note in &report.not_in_tables {
            let at = note.evidence.as_ref().map_or(String::new(), |e| format!("  [{}]", e.place()));
            out.push_str(&format!("  {}{at}\n", note.text));
        }
    }
    if !report.notes.is_empty() {
        out.push_str("\nnotes\n");
        for note in &report.notes {
            out.push_str(&format!("  {}\n", note.text));
            evidence(note.evidence.as_slice(), &mut out);
        }
    }
    journal(report, &mut out);
    out
}

fn patches(report: &Report, out: &mut String) {
    // What nobody asked for is told only where a rule makes it inert.
    let is_told = |r: &&PatchRow| r.requested == Requested::Yes || r.state == State::Inert;
    let (told, rest): (Vec<&PatchRow>, Vec<&PatchRow>) = report.patches.iter().partition(is_told);
    if !told.is_empty() {
        let width = told.iter().map(|r| r.patch.len()).max().unwrap_or(0).max(5);
        out.push_str(&format!("\n{:width$}  {:10}  {}\n", "patch", "requested", "state"));
        for row in told {
            let contract = if row.contract { "" } else { " (no contract in this version)" };
            out.push_str(&format!(
                "{:width$}  {:10}  {}{contract}\n",
                row.patch,
                row.requested.name(),
                row.state.name()
            ));
            row.why.iter().for_each(|claim| said(claim, out));
        }
    }
    let lists = [(State::CanBeActive, "by default, can be active"), (State::Off, "off"), (State::Unknown, "unknown")];
    for (state, word) in lists {
        let names: Vec<&str> = rest.iter().filter(|r| r.state == state).map(|r| r.patch.as_str()).collect();
        if !names.is_empty() {
            out.push_str(&wrapped(&format!("\n{word}: "), &names));
        }
    }
    if rest.iter().any(|r| r.state == State::Unknown) {
        out.push_str("unknown is not inactive: these sources don't show it (--json says what is missing)\n");
    }
}

fn said(claim: &Claim, out: &mut String) {
    out.push_str(&format!("  {}: {}\n", claim.rule, claim.says));
    evidence(&claim.evidence, out);
}

fn evidence(all: &[Evidence], out: &mut String) {
    for e in all.iter().take(SHOWN) {
        out.push_str(&format!("    [{}] {}\n", e.place(), e.text));
    }
    if all.len() > SHOWN {
        out.push_str(&format!("    and {} more\n", all.len() - SHOWN));
    }
}

/// Names with commas between, in lines of at most 100 characters.
fn wrapped(head: &str, names: &[&str]) -> String {
    let mut out = head.to_owned();
    let mut column = head.trim_start().len();
    for (i, name) in names.iter().enumerate() {
        let last = i + 1 == names.len();
        if i > 0 && column + name.len() + 2 > 100 {
            out.push_str("\n  ");
            column = 2;
        } else if i > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(name);
        column += name.len() + 1;
        out.push_str(if last { "\n" } else { "," });
    }
    out
}

fn files(report: &Report, out: &mut String) {
    let (seen, unseen): (Vec<_>, Vec<_>) = report.files.iter().partition(|f| !f.copies.is_empty());
    if !seen.is_empty() {
        out.push_str("\nfiles that were really loaded\n");
    }
    for file in seen {
        for copy in &file.copies {
            out.push_str(&format!("  {}: {}\n", copy.path, copy.how));
            evidence(std::slice::from_ref(&copy.evidence), out);
        }
        let mut paths: Vec<&str> = file.copies.iter().map(|c| c.path.as_str()).collect();
        paths.dedup();
        if paths.len() > 1 {
            out.push_str(&format!("  {} copies of {}: the sources name more than one\n", paths.len(), file.file));
        }
    }
    if !unseen.is_empty() {
        let names: Vec<&str> = unseen.iter().map(|f| f.file).collect();
        out.push_str(&wrapped("\nwhich copy was loaded is unknown: ", &names));
    }
}

fn journal(report: &Report, out: &mut String) {
    let Some(words) = &report.journal else { return };
    let (found, none): (Vec<_>, Vec<_>) = words.iter().partition(|w| w.count > 0);
    out.push_str("\njournal\n");
    let width = found.iter().map(|w| w.word.len()).max().unwrap_or(0);
    for word in found {
        out.push_str(&format!(
            "  {:width$}  {:5} line{}\n",
            word.word,
            word.count,
            if word.count == 1 { "" } else { "s" }
        ));
        word.first.iter().for_each(|e| out.push_str(&format!("    [{}] {}\n", e.place(), e.text)));
    }
    if !none.is_empty() {
        let names: Vec<&str> = none.iter().map(|w| w.word).collect();
        out.push_str(&wrapped("  none: ", &names));
    }
}

/// A mapped diff: what is known, then what isn't.
pub fn diff_text(diff: &DiffMap) -> String {
    let unknown = diff.unknown().count();
    let mut out = format!("diff: {} hunks, {unknown} of them in no table\n", diff.hunks.len());
    for hunk in diff.hunks.iter().filter(|h| h.is_known()) {
        let function = hunk.function.as_ref().map_or(String::new(), |f| format!(", {f}"));
        out.push_str(&format!("  {}{function}\n", hunk.file));
        if hunk.comments_only {
            out.push_str("    comments and blank lines only\n");
            continue;
        }
        let list = |set: &std::collections::BTreeSet<&str>| set.iter().copied().collect::<Vec<_>>().join(", ");
        out.push_str(&format!("    ops {}\n", list(&hunk.ops)));
        if !hunk.patches.is_empty() {
            out.push_str(&format!("    known as {}\n", list(&hunk.patches)));
        }
        out.push_str(&format!("    by {}\n", hunk.because.join("; ")));
        evidence(std::slice::from_ref(&hunk.evidence), &mut out);
    }
    if unknown > 0 {
        out.push_str("  not known\n");
    }
    for hunk in diff.unknown() {
        let function = hunk.function.as_ref().map_or(String::new(), |f| format!(", {f}"));
        out.push_str(&format!("    {}{function}: [{}] {}\n", hunk.file, hunk.evidence.place(), hunk.evidence.text));
    }
    out
}
