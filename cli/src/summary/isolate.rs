//! The synthesis of an isolation as text and as json.

use karat_audit::Synthesis;
use serde_json::Value;

use super::wrap;
use crate::output::Style;

/// The whole result for people.
pub(crate) fn text(synthesis: &Synthesis, style: Style) -> String {
    let name = synthesis.verdict.name();
    let mut lines = wrap(&format!("{name}: {}", synthesis.sentence), "");
    lines[0] = lines[0].replacen(name, &style.verdict(synthesis.verdict.exit_code(), name), 1);
    lines.push(String::new());
    lines.push(format!("model      {}", synthesis.model));
    lines.extend(synthesis.scenarios.iter().map(|s| format!("scenario   {s}")));
    lines.extend(wrap(&format!("candidate  {}", synthesis.candidate), ""));
    let mut part = |title: &str, body: Vec<String>| {
        lines.push(String::new());
        lines.push(style.bold(title));
        if body.is_empty() {
            lines.push("  none".to_owned());
        }
        lines.extend(body);
    };
    let facts = synthesis.facts.iter().flat_map(|m| wrap(&format!("[{}] {}", m.step, m.what), "  "));
    part("facts, and where they were measured", facts.collect());
    let suspects = (1..).zip(&synthesis.suspects).flat_map(|(i, s)| {
        let mut all = wrap(&format!("{i}. {} (weight {:.2})", s.what, s.weight), "  ");
        all.extend(s.evidence.iter().flat_map(|e| wrap(e, "     ")));
        all
    });
    part("suspects, the heaviest first", suspects.collect());
    let ruled_out = synthesis.ruled_out.iter().flat_map(|m| wrap(&format!("{} [{}]", m.what, m.step), "  "));
    part("ruled out, and by which measurement", ruled_out.collect());
    part("what can't be known from here", synthesis.unknown.iter().flat_map(|u| wrap(u, "  ")).collect());
    let next = synthesis.next.iter().flat_map(|n| {
        let mut all = wrap(&format!("{}:", n.why), "  ");
        // A command is never broken: it is to be copied.
        all.push(format!("    {}", n.command));
        all
    });
    part("next", next.collect());
    let steps: Vec<String> = synthesis.steps.iter().map(|s| format!("{} {:.1} s", s.name, s.seconds)).collect();
    lines.push(String::new());
    let all = format!(
        "{:.1} s ({}); {:.1} forward-equivalents, those of recall not counted",
        synthesis.seconds,
        steps.join(", "),
        synthesis.forward_equivalents
    );
    lines.extend(wrap(&all, ""));
    lines.join("\n")
}

/// The same for programs.
pub(crate) fn json(synthesis: &Synthesis) -> Value {
    let mut value = serde_json::to_value(synthesis).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        fields.insert("exit_code".to_owned(), synthesis.verdict.exit_code().into());
    }
    value
}
