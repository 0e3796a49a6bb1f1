//! `karat report BUNDLE`: a bundle judged again and shown as the audit showed it; `--explain TAP`: how the tolerance of a
//! row came about. From the bundle alone.

use karat_bundle::{Bundle, Verdict, gate};

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

/// The verdict follows from the tables; where the file says another, the tables win. What a gate took from elsewhere (the
/// day, a baseline) is not in them: its verdict stays.
fn judge_again(bundle: &mut Bundle) {
    if !bundle.run.policy.allow.is_empty() {
        return;
    }
    let mut again = bundle.clone();
    gate::settle(&mut again, None, &[]);
    let (stored, tables) = (bundle.verdict.verdict, again.verdict.verdict);
    let is_by_baseline = matches!(stored, Verdict::Regressed | Verdict::Unproven | Verdict::Improved);
    if tables == stored || (tables > stored && is_by_baseline) {
        return;
    }
    again.run.notes.push(format!("the bundle says {}: its tables say {}", stored.name(), tables.name()));
    *bundle = again;
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
