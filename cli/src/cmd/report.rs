//! `karat report BUNDLE`: a bundle judged again and shown, or written in the formats of `karat-reports`; `--explain TAP`: how
//! the tolerance of a row came about; `karat report A B`: what moved between two. From bundles alone.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use karat_bundle::{Bundle, Verdict, gate};

use crate::args::{Globals, Report};
use crate::failure::{Failure, Result};
use crate::{output, summary};

pub(crate) fn run(args: &Report, globals: Globals) -> Result<u8> {
    if let Some(other) = &args.other {
        return compare(args, other, globals);
    }
    let mut bundle = karat_bundle::read(&args.bundle)?;
    if let Some(tap) = &args.explain {
        let rows = summary::explain::rows(&bundle, tap);
        if rows.is_empty() {
            return Err(unknown(&bundle, tap));
        }
        if globals.json {
            output::json(&summary::explain::json(&bundle, &rows));
        } else {
            output::page(&summary::explain::text(&bundle, &rows, output::Style::of_stdout()));
        }
        return Ok(0);
    }
    judge_again(&mut bundle);
    let is_shown = !write_formats(args, &bundle, globals.json)?;
    if globals.json {
        output::json(&summary::json(&bundle));
    } else if is_shown {
        output::page(&summary::of(&bundle, Some(&args.bundle), output::Style::of_stdout()));
    }
    Ok(bundle.verdict.exit_code)
}

/// Writes every format that was asked for; true when stdout has its result by that.
fn write_formats(args: &Report, bundle: &Bundle, json: bool) -> Result<bool> {
    let formats: [(&Option<PathBuf>, fn(&Bundle) -> String); 4] = [
        (&args.html, karat_reports::html),
        (&args.markdown, karat_reports::markdown),
        (&args.junit, karat_reports::junit),
        (&args.csv, karat_reports::csv),
    ];
    let mut lines = Vec::new();
    for (file, make) in formats {
        if let Some(file) = file {
            lines.extend(write(file, &make(bundle))?);
        }
    }
    if args.github {
        github(&karat_reports::step_summary(bundle), json)?;
        if !json {
            output::stdout(&karat_reports::annotations(bundle));
        }
    }
    let any = args.github || formats.iter().any(|(file, _)| file.is_some());
    if any {
        lines.insert(0, summary::headline(bundle, output::Style::of_stdout()));
        if !json && !formats.iter().any(|(file, _)| file.as_deref() == Some(Path::new("-"))) {
            output::page(&lines.join("\n"));
        }
    }
    Ok(any)
}

/// Writes a whole file or none; `-` is stdout. The line that says so.
fn write(file: &Path, text: &str) -> Result<Option<String>> {
    if file == Path::new("-") {
        output::stdout(text);
        return Ok(None);
    }
    let failed = |e: &std::io::Error| Failure::usage(format!("{}: can't be written: {e}", file.display()));
    if file.is_dir() {
        return Err(Failure::usage(format!("{}: is a folder; name a file", file.display())));
    }
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(".karat-partial");
    let partial = file.with_file_name(name);
    fs::write(&partial, text).and_then(|()| fs::rename(&partial, file)).map_err(|e| {
        let _ = fs::remove_file(&partial);
        failed(&e)
    })?;
    Ok(Some(format!("written: {}", file.display())))
}

/// Adds to the summary of the step; to stdout where there is no such file and stdout is not json's.
fn github(text: &str, json: bool) -> Result<()> {
    let Some(file) = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|f| !f.is_empty()).map(PathBuf::from) else {
        if !json {
            output::stdout(text);
        }
        return Ok(());
    };
    let opened = fs::OpenOptions::new().append(true).create(true).open(&file);
    let failed = |e| Failure::usage(format!("GITHUB_STEP_SUMMARY={}: can't be written: {e}", file.display()));
    opened.and_then(|mut f| f.write_all(text.as_bytes())).map_err(failed)
}

/// `karat report A B`.
fn compare(args: &Report, other: &Path, globals: Globals) -> Result<u8> {
    let given = [("--html", args.html.is_some()), ("--junit", args.junit.is_some()), ("--csv", args.csv.is_some())];
    if let Some((name, _)) = given.iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::usage(format!("{name}: of two bundles there is --markdown, --github and --json")));
    }
    let (before, after) = (karat_bundle::read(&args.bundle)?, karat_bundle::read(other)?);
    let moved = karat_reports::moved(&before, &after);
    let mut lines = Vec::new();
    if let Some(file) = &args.markdown {
        lines.extend(write(file, &moved.markdown())?);
    }
    if args.github {
        github(&moved.markdown(), globals.json)?;
    }
    if globals.json {
        output::json(&summary::moved::json(&moved));
    } else if args.markdown.as_deref() != Some(Path::new("-")) {
        lines.insert(0, summary::moved::text(&moved, output::Style::of_stdout()));
        output::page(&lines.join("\n"));
    }
    Ok(moved.verdict.exit_code())
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
