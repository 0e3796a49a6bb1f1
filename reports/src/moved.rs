//! What moved between two bundles, before and after a change, beyond noise.

use karat_bundle::lock::{Change, Entry, compare, measure};
use karat_bundle::{Bundle, Verdict};

use crate::markdown::table;
use crate::number::{option, short, signed};
use crate::text::{code, markdown as plain};

/// What moved.
#[derive(Debug, Clone)]
pub struct Moved {
    /// Verdict of the comparison: regressed, improved, pass (nothing beyond noise), or unproven (can't be compared).
    pub verdict: Verdict,
    /// Verdicts of the two runs.
    pub verdicts: (Verdict, Verdict),
    /// Why the two can't be compared, if so.
    pub unlike: Vec<String>,
    /// What moved beyond noise, the worst first.
    pub changes: Vec<Change>,
    /// Metrics compared.
    pub compared: usize,
    /// Metrics that only the first, and only the second has.
    pub only: (Vec<String>, Vec<String>),
    /// Speed-ups of a patch before and after, where one is known.
    pub speed: Vec<(String, Option<f64>, Option<f64>)>,
    /// Metrics that moved most without being beyond noise: name, before, after.
    pub within: Vec<(String, Entry, Entry)>,
}

/// Metrics within noise that are shown.
const WITHIN: usize = 5;

/// Compares two bundles under the policy of the second: a metric has moved when both intervals don't explain it (Holm over
/// all metrics, as against a baseline).
pub fn moved(before: &Bundle, after: &Bundle) -> Moved {
    let mut before = before.clone();
    before.run.policy = after.run.policy.clone();
    let (old, new) = (measure(&before), measure(after));
    let compared = compare(&old, after);
    let beyond = |name: &String| compared.changes.iter().any(|c| c.name == *name);
    let mut within: Vec<(String, Entry, Entry)> = old
        .metrics
        .iter()
        .filter(|(name, _)| compared.unlike.is_empty() && !beyond(name))
        .filter_map(|(name, old)| Some((name.clone(), *old, *new.metrics.get(name)?)))
        .filter(|(_, old, new)| old.value != new.value && (new.value - old.value).is_finite())
        .collect();
    let by = |m: &(String, Entry, Entry)| {
        let error = |e: &Entry| e.interval.1 - e.interval.0;
        (m.2.value - m.1.value).abs() / error(&m.1).hypot(error(&m.2))
    };
    within.sort_by(|a, b| by(b).total_cmp(&by(a)).then(a.0.cmp(&b.0)));
    within.truncate(WITHIN);
    let verdict = if !compared.unlike.is_empty() || compared.compared == 0 {
        Verdict::Unproven
    } else if compared.changes.iter().any(|c| c.is_worse) {
        Verdict::Regressed
    } else if !compared.missing.is_empty() {
        Verdict::Unproven
    } else if compared.changes.is_empty() {
        Verdict::Pass
    } else {
        Verdict::Improved
    };
    Moved {
        verdict,
        verdicts: (before.verdict.verdict, after.verdict.verdict),
        unlike: compared.unlike,
        changes: compared.changes,
        compared: compared.compared,
        only: (compared.missing, compared.added),
        speed: speeds(&before, after),
        within,
    }
}

fn speeds(before: &Bundle, after: &Bundle) -> Vec<(String, Option<f64>, Option<f64>)> {
    let speed = |bundle: &Bundle, patch: &str| bundle.patches.iter().find(|p| p.patch == patch).and_then(|p| p.speedup);
    let names = after.patches.iter().map(|p| p.patch.clone());
    names
        .map(|name| (name.clone(), speed(before, &name), speed(after, &name)))
        .filter(|s| s.1.or(s.2).is_some())
        .collect()
}

impl Moved {
    /// The sentence after the verdict.
    pub fn sentence(&self) -> String {
        let worse = self.changes.iter().filter(|c| c.is_worse).count();
        let better = self.changes.len() - worse;
        if let Some(why) = self.unlike.first() {
            return format!("the two can't be compared: {why}");
        }
        let missing = self.only.0.len();
        let lacks =
            if missing > 0 { format!("; the second lacks {missing} metrics of the first") } else { String::new() };
        format!("beyond noise {worse} of {} metrics are worse, {better} better{lacks}", self.compared)
    }

    /// What moved as markdown.
    pub fn markdown(&self) -> String {
        let mut out =
            vec![format!("# karat: {}", self.verdict.name()), String::new(), format!("{}.", plain(&self.sentence()))];
        out.extend([
            String::new(),
            format!("Verdicts: {} before, {} after.", self.verdicts.0.name(), self.verdicts.1.name()),
        ]);
        out.extend(self.unlike.iter().skip(1).map(|why| format!("- {}", plain(why))));
        let interval = |e: &Entry| format!("{} to {}", short(e.interval.0), short(e.interval.1));
        let line = |name: &str, old: &Entry, new: &Entry, word: &str| {
            vec![
                code(name),
                short(old.value),
                interval(old),
                short(new.value),
                interval(new),
                signed(new.value - old.value),
                word.to_string(),
            ]
        };
        let heads = ["metric", "before", "95 %", "after", "95 %", "by", ""];
        let changes =
            self.changes.iter().map(|c| line(&c.name, &c.old, &c.new, if c.is_worse { "worse" } else { "better" }));
        let rows: Vec<Vec<String>> = changes.take(200).collect();
        if !rows.is_empty() {
            out.extend([String::new(), "## Moved beyond noise".to_string()]);
            out.extend(table(&heads, rows));
        }
        let rows: Vec<Vec<String>> = self.within.iter().map(|(n, old, new)| line(n, old, new, "noise")).collect();
        if !rows.is_empty() {
            out.extend([String::new(), "## Moved most within noise".to_string()]);
            out.extend(table(&heads, rows));
        }
        let rows = self.speed.iter().map(|(patch, old, new)| vec![code(patch), option(*old), option(*new)]).collect();
        out.extend(table(&["patch", "speed-up before", "after"], rows));
        for (names, whose) in [(&self.only.0, "Only before"), (&self.only.1, "Only after")] {
            if !names.is_empty() {
                let shown: Vec<String> = names.iter().take(10).map(|n| code(n)).collect();
                let more = if names.len() > shown.len() { ", ..." } else { "" };
                out.extend([String::new(), format!("{whose}: {}{more}.", shown.join(", "))]);
            }
        }
        out.join("\n") + "\n"
    }
}
