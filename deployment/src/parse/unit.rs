//! systemd unit text: a unit file, `systemctl cat` or `systemctl show`.

use karat_model::{Error, Result};

use crate::evidence::{Evidence, Kind};
use crate::facts::{Facts, MOUNTED};
use crate::parse::command::{self, Runs};
use crate::parse::environment::pair;
use crate::parse::words;

/// An assignment of a unit with the lines that it goes on over.
struct Line<'a> {
    number: usize,
    key: &'a str,
    value: String,
}

pub(super) fn read(label: &str, text: &str, facts: &mut Facts) -> Result<()> {
    let lines = lines(label, text)?;
    let mut variables: Vec<(usize, String, String)> = Vec::new();
    let mut starts: Vec<&Line> = Vec::new();
    for line in &lines {
        let evidence = || Evidence::new(Kind::Unit, label, line.number, &format!("{}={}", line.key, line.value.trim()));
        match line.key {
            // Given empty, a list starts again.
            "Environment" if line.value.trim().is_empty() => variables.clear(),
            "Environment" => {
                for word in words::split(label, &line.value, line.number)?.iter().filter(|w| !w.ends) {
                    if let Some((name, value)) = pair(&word.text) {
                        variables.push((word.line, name.to_owned(), value.to_owned()));
                    }
                }
            }
            "UnsetEnvironment" => {
                let names: Vec<&str> = line.value.split_whitespace().collect();
                variables.retain(|(_, name, _)| !names.contains(&name.as_str()));
            }
            "EnvironmentFile" if !line.value.trim().is_empty() => {
                let text = "EnvironmentFile= is not read here, and what it sets goes before Environment=: give the process environment with --env";
                facts.note(text, Some(evidence()));
            }
            "PassEnvironment" if !line.value.trim().is_empty() => {
                facts.note("PassEnvironment= hands variables on that the unit doesn't show", Some(evidence()));
            }
            "BindPaths" | "BindReadOnlyPaths" => {
                for bound in line.value.split_whitespace() {
                    let inside = bound.trim_start_matches('-').split(':').nth(1).unwrap_or_default();
                    facts.path(inside, MOUNTED, evidence());
                }
            }
            "ExecStart" if line.value.trim().is_empty() => starts.clear(),
            "ExecStart" => starts.push(line),
            _ => {}
        }
    }
    let mut runs = None;
    let mut handed_on: Vec<String> = Vec::new();
    for start in starts {
        // `systemctl show` wraps the words: { path=... ; argv[]=... ; ignore_errors=... }
        let shown = start.value.split_once("argv[]=").map(|(_, argv)| argv.split(" ; ").next().unwrap_or_default());
        let line = shown.unwrap_or(&start.value).trim_start().trim_start_matches(['@', '-', ':', '+', '!', '|']);
        let mut words = words::split(label, line, start.number)?;
        for word in &mut words {
            word.text = expanded(&word.text, &variables);
        }
        let names =
            words.windows(2).filter(|w| matches!(w[0].text.as_str(), "-e" | "--env")).map(|w| w[1].text.clone());
        handed_on.extend(names.chain(words.iter().filter_map(|w| Some(w.text.strip_prefix("--env=")?.to_owned()))));
        runs = command::script(&words, (Kind::Unit, label), facts, 4)?.or(runs);
    }
    for (line, name, value) in &variables {
        if runs == Some(Runs::Container) && !handed_on.contains(name) {
            let text = format!("{name}: set for the container tool, not handed on to the server inside");
            facts.note(&text, Some(Evidence::new(Kind::Unit, label, *line, &format!("{name}={value}"))));
        } else {
            facts.variable(name, value, (Kind::Unit, label, *line));
        }
    }
    Ok(())
}

/// The unit's assignments. A line that is neither section, comment nor assignment is an error.
fn lines<'a>(label: &str, text: &'a str) -> Result<Vec<Line<'a>>> {
    let mut out: Vec<Line<'a>> = Vec::new();
    let mut sections = 0;
    let mut open = false;
    for (i, raw) in text.lines().enumerate() {
        let line = raw.trim();
        let comment = line.starts_with('#') || line.starts_with(';');
        let goes_on = raw.trim_end().ends_with('\\');
        if open {
            // A comment inside doesn't end the value; its line still counts.
            if let Some(last) = out.last_mut() {
                last.value.push('\n');
                last.value.push_str(if comment { "\\" } else { raw });
            }
            open = goes_on || comment;
        } else if line.is_empty() || comment {
        } else if line.starts_with('[') && line.ends_with(']') {
            sections += 1;
        } else if let Some((key, value)) = line.split_once('=')
            && key.trim().chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        {
            out.push(Line { number: i + 1, key: key.trim(), value: value.to_owned() });
            open = goes_on;
        } else {
            return Err(Error::input("this is no unit text")
                .at(format!("{label}:{}", i + 1))
                .expected("[Section], Key=value or a comment")
                .found("another line"));
        }
    }
    let known = ["Environment", "EnvironmentFile", "ExecStart", "PassEnvironment"];
    if sections == 0 && !out.iter().any(|l| known.contains(&l.key)) {
        return Err(Error::input("this is no unit text")
            .at(label)
            .expected("[Service], ExecStart= or Environment=")
            .found("none of them"));
    }
    Ok(out)
}

/// `$NAME` and `${NAME}` replaced by what the unit sets.
fn expanded(word: &str, variables: &[(usize, String, String)]) -> String {
    if !word.contains('$') {
        return word.to_owned();
    }
    let mut out = word.to_owned();
    for (_, name, value) in variables.iter().rev() {
        out = out.replace(&format!("${{{name}}}"), value);
        if out == format!("${name}") {
            out.clone_from(value);
        }
    }
    out
}

#[cfg(test)]
mod tests;
