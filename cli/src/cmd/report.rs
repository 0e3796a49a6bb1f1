//! `karat report BUNDLE`: a bundle judged again and shown as the audit showed it; `--explain TAP`: how the tolerance of a
//! row came about. From the bundle alone.

use karat_bundle::{Bundle, judge};

use crate::args::{Globals, Report};
use crate::failure::{Failure, Result};
use crate::later::refuse_given;
use crate::{output, summary};

pub(crate) fn run(args: &Report, globals: Globals) -> Result<u8> {
    refuse_given(&[
        ("karat report A B", args.other.is_some()),
        ("karat report --html", args.html),
        ("karat report --csv", args.csv),
        ("karat report --markdown", args.markdown),
        ("karat report --junit", args.junit),
        ("karat report --github", args.github),
    ])?;
    let mut bundle = karat_bundle::read(&args.bundle)?;
    if let Some(tap) = &args.explain {
        let rows = summary::explain::rows(&bundle, tap);
        if rows.is_empty() {
            return Err(unknown(&bundle, tap));
        }
        if globals.json {
            output::json(&summary::explain::json(&bundle, &rows));
        } else {
            output::stdout(&summary::explain::text(&bundle, &rows, output::Style::of_stdout()));
        }
        return Ok(0);
    }
    judge_again(&mut bundle);
    if globals.json {
        output::json(&summary::json(&bundle));
    } else {
        output::stdout(&summary::text(&bundle, Some(&args.bundle), output::Style::of_stdout()));
    }
    Ok(bundle.verdict.exit_code)
}

/// The verdict follows from the tables; what an examination found beside them is kept as it was written.
fn judge_again(bundle: &mut Bundle) {
    let again = judge(&bundle.evidence(), &bundle.run.policy);
    let stored = &mut bundle.verdict;
    if again.verdict != stored.verdict {
        let was = stored.verdict.name();
        bundle.run.notes.push(format!("the bundle says {was}: its tables say {}", again.verdict.name()));
    }
    let (signature, examination) = (stored.signature.take(), stored.examination.take());
    let forward_equivalents = stored.forward_equivalents;
    let same = again.first_bad == stored.first_bad;
    // The order by effect is the examination's.
    let suspects = if same { std::mem::take(&mut stored.suspects) } else { again.suspects.clone() };
    let next_step = if same { std::mem::take(&mut stored.next_step) } else { again.next_step.clone() };
    bundle.verdict = karat_bundle::Report { signature, examination, forward_equivalents, next_step, suspects, ..again };
}

fn unknown(bundle: &Bundle, tap: &str) -> Failure {
    let mut names: Vec<String> = bundle.taps.iter().filter(|r| r.value.is_some()).map(summary::explain::name).collect();
    names.sort_unstable();
    names.dedup();
    let near: Vec<&String> = names.iter().filter(|n| n.contains(tap)).take(4).collect();
    let hint = match near.as_slice() {
        [] => names.iter().take(4).cloned().collect::<Vec<_>>().join(", "),
        near => near.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let of = bundle.run.scenarios.first().map_or("", |s| s.name.as_str());
    Failure::usage(format!("--explain {tap}: the bundle ({of}) judges no such tap; it has {hint}, ..."))
}
