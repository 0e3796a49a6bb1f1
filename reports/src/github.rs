//! GitHub: the step summary (verdict and top 20 first: it is cut at 1 MiB), and annotations (about ten of a kind are shown).

use karat_bundle::{Bundle, TapRow, Verdict};

use crate::facts::{as_judged, is_allowed, name, nearness};
use crate::markdown::{markdown, sentence, summary, table};
use crate::number::{option, short};
use crate::text::{TEXT, clean, code};

/// Bytes of the summary at most: GitHub takes 1 MiB of all steps of a job together.
const MOST: usize = 900 << 10;
/// Annotations of a kind.
const SHOWN: usize = 10;
/// Rows of the first table.
const TOP: usize = 20;

/// How loud an annotation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The step failed by it.
    Error,
    /// Nothing was proved.
    Warning,
    /// For information.
    Notice,
}

impl Kind {
    fn of(verdict: Verdict) -> Self {
        match verdict.exit_code() {
            0 => Self::Notice,
            1..=3 => Self::Error,
            _ => Self::Warning,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
        }
    }
}

/// Markdown for `$GITHUB_STEP_SUMMARY`: under 1 MiB, what matters first.
pub fn step_summary(bundle: &Bundle) -> String {
    // The whole report follows, less its own title and summary.
    let rest = markdown(bundle);
    let bundle = &*as_judged(bundle);
    let mut out = summary(bundle);
    let heads = ["tap", "phase", "patch set", "error", "predicted", "allowed", "verdict"];
    let line = |r: &&TapRow| {
        let verdict = r.verdict.map_or("", Verdict::name);
        let place = code(&format!("{}{}{}", name(r), if r.part.is_empty() { "" } else { " " }, r.part));
        vec![
            place,
            code(&r.phase),
            code(&r.patch_set),
            option(r.value),
            option(r.predicted),
            option(r.tolerance),
            verdict.to_string(),
        ]
    };
    let top = nearest(bundle);
    out.extend([String::new(), "## Nearest to tolerance".to_string()]);
    out.extend(table(&heads, top.iter().take(TOP).map(line).collect()));
    out.push(String::new());
    let mut text = out.join("\n") + "\n";
    let rest = rest.find("\n## ").map_or("", |at| &rest[at + 1..]);
    for line in rest.lines() {
        if text.len() + line.len() > MOST {
            text.push_str("\nThe rest is in report.md.\n");
            break;
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Judged rows, those over tolerance first, then by nearness.
fn nearest(bundle: &Bundle) -> Vec<&TapRow> {
    let mut rows: Vec<&TapRow> = bundle.taps.iter().filter(|r| r.verdict.is_some()).collect();
    rows.sort_by(|a, b| {
        a.verdict.cmp(&b.verdict).then(nearness(b).total_cmp(&nearness(a))).then(a.order.cmp(&b.order))
    });
    rows
}

/// Workflow commands, one a line: the verdict first, then failing rows and patches, ten of a kind at most.
pub fn annotations(bundle: &Bundle) -> String {
    let bundle = &*as_judged(bundle);
    let report = &bundle.verdict;
    let kind = Kind::of(report.verdict);
    let mut all = vec![(kind, format!("karat: {}", report.verdict.name()), strip(&sentence(bundle)))];
    let first_is_told = report.examination.is_none();
    all.extend(report.reasons.iter().skip(usize::from(first_is_told)).map(|r| (kind, "karat".to_string(), r.clone())));
    for p in bundle.patches.iter().filter(|p| p.verdict.is_some_and(|v| v.exit_code() != 0)) {
        let verdict = p.verdict.unwrap_or_default();
        let text =
            format!("measured {}, claimed {}, state {}", option(p.measured_error), short(p.claimed_error), p.state);
        all.push((Kind::of(verdict), format!("patch {}: {}", p.patch, verdict.name()), text));
    }
    let is_bad = |r: &&TapRow| r.verdict.is_some_and(|v| v.exit_code() != 0) && !is_allowed(bundle, r);
    for r in nearest(bundle).into_iter().filter(is_bad) {
        let verdict = r.verdict.unwrap_or_default();
        let title = format!("{}@{} of {}", name(r), r.phase, r.patch_set);
        let text = format!("{}: {} {}, allowed {}", verdict.name(), r.gate, option(r.value), option(r.tolerance));
        all.push((Kind::of(verdict), title, text));
    }
    let mut counts = [0; 3];
    let mut out = String::new();
    for (kind, title, text) in all {
        counts[kind as usize] += 1;
        if counts[kind as usize] <= SHOWN {
            out.push_str(&format!("::{} title={}::{}\n", kind.word(), property(&title), message(&text)));
        }
    }
    out
}

/// Markdown marks mean nothing in an annotation.
fn strip(text: &str) -> String {
    text.replace(['`', '\\'], "").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

fn message(text: &str) -> String {
    clean(text, TEXT).replace('%', "%25")
}

fn property(text: &str) -> String {
    clean(text, TEXT).replace('%', "%25").replace(':', "%3A").replace(',', "%2C")
}
