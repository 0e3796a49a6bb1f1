//! A search as text and as json.

use karat_audit::{BisectReport, Ended};
use serde_json::Value;

use super::wrap;
use crate::output::Style;

/// Questions that are printed; all stand in the json.
const SHOWN: usize = 60;

/// The whole result for people.
pub(crate) fn text(report: &BisectReport, style: Style) -> String {
    let word = match (report.exit_code(), report.stages.iter().any(|s| s.ended == Ended::Found)) {
        (1, _) => "found",
        (125, _) => "undecided",
        (_, true) => "where it comes from",
        _ => "nothing bad",
    };
    let main: Vec<&str> =
        report.stages.iter().filter(|s| s.ended == Ended::Found).map(|s| s.sentence.as_str()).collect();
    let first = report.stages.first().map_or("", |s| s.sentence.as_str());
    let mut lines = wrap(&format!("{word}: {}", main.first().copied().unwrap_or(first)), "");
    lines[0] = lines[0].replacen(word, &style.verdict(report.exit_code(), word), 1);
    lines.push(String::new());
    if report.stock.is_empty() {
        lines.extend(wrap(&format!("command    {}", report.subject), ""));
    } else {
        lines.push(format!("model      {}", report.subject));
        lines.extend(report.scenarios.iter().map(|s| format!("scenario   {s}")));
        lines.push(format!("candidate  optimized, stock {}", report.stock));
    }
    let patches = if report.patches.is_empty() { "none".to_owned() } else { report.patches.join(", ") };
    lines.extend(wrap(&format!("patches    {patches}"), ""));
    for stage in &report.stages {
        lines.push(String::new());
        lines.push(style.bold(&format!("over {}: {}", stage.over.name(), stage.criterion)));
        lines.extend(wrap(&stage.sentence, "  "));
    }
    lines.push(String::new());
    let name = report.questions.iter().take(SHOWN).map(|q| q.question.chars().count()).max().unwrap_or(8).clamp(8, 60);
    lines.push(style.bold(&format!("{:<name$}  answer     value", "question")));
    for q in report.questions.iter().take(SHOWN) {
        let value =
            q.value.as_ref().map_or("-".to_owned(), |v| v.as_f64().map_or(v.to_string(), |v| format!("{v:.3e}")));
        let again = if q.answers > 1 { format!("  {} answers", q.answers) } else { String::new() };
        let replayed = if q.replayed { "  replayed" } else { "" };
        let question: String = q.question.chars().take(name).collect();
        lines.push(format!("{question:<name$}  {:<6}{value:>10}{again}{replayed}", q.answer));
    }
    if report.questions.len() > SHOWN {
        lines.push(format!("and {} more (--json has them)", report.questions.len() - SHOWN));
    }
    if !report.notes.is_empty() {
        lines.push(String::new());
        lines.push(style.bold("what this is no evidence for"));
        lines.extend(report.notes.iter().flat_map(|note| wrap(note, "  ")));
    }
    lines.push(String::new());
    lines.extend(wrap(&work(report), ""));
    lines.join("\n")
}

fn work(report: &BisectReport) -> String {
    let w = &report.work;
    let mut line = match report.stock.is_empty() {
        true => format!("{} runs of the command", w.commands),
        false => format!("{:.1} forward-equivalents", w.forward_equivalents),
    };
    line.push_str(&format!(", {} questions, {} answers", w.questions, w.answers));
    if w.replayed > 0 {
        line.push_str(&format!(
            " ({} from the replay file, which had taken {:.1} forward-equivalents)",
            w.replayed, w.forward_equivalents_replayed
        ));
    }
    format!("{line}, {:.1} s", report.seconds)
}

/// The same for programs.
pub(crate) fn json(report: &BisectReport) -> Value {
    let mut value = serde_json::to_value(report).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        fields.insert("exit_code".to_owned(), report.exit_code().into());
    }
    value
}
