//! A process environment: `/proc/PID/environ` (NUL between entries) or the output of `env` and `export -p`.

use karat_model::{Error, Result};

use crate::evidence::{Evidence, Kind};
use crate::facts::Facts;
use crate::parse::text;

/// Why a process may have no environment to read.
const RENAMED: &str = "a process that names itself overwrites its environment: take the one that started it";

pub(super) fn read(label: &str, bytes: &[u8], facts: &mut Facts) -> Result<()> {
    let from_proc = bytes.contains(&0);
    let mut entries: Vec<(usize, String, String)> = Vec::new();
    if from_proc {
        for (i, entry) in bytes.split(|b| *b == 0).enumerate().filter(|(_, e)| !e.is_empty()) {
            let entry = text(entry);
            let (name, value) = pair(&entry).ok_or_else(|| none_here(label, "entry", i + 1).hint(RENAMED))?;
            entries.push((i + 1, name.to_owned(), value.to_owned()));
        }
    } else {
        for (i, line) in text(bytes).lines().enumerate() {
            let bare = line.strip_prefix("declare -x ").or_else(|| line.strip_prefix("export ")).unwrap_or(line);
            match (pair(bare), entries.last_mut()) {
                (Some((name, value)), _) => {
                    let value = if bare.len() < line.len() { unquoted(value) } else { value };
                    entries.push((i + 1, name.to_owned(), value.to_owned()));
                }
                (None, _) if bare.trim().is_empty() || bare.trim_start().starts_with('#') => {}
                // `env` doesn't quote line ends: this is the rest of the value before.
                (None, Some(last)) => {
                    last.2.push('\n');
                    last.2.push_str(line);
                }
                (None, None) => return Err(none_here(label, "line", i + 1)),
            }
        }
    }
    if entries.is_empty() {
        let error = Error::input("the environment has no variable").at(label).expected("NAME=VALUE");
        return Err(if from_proc { error.hint(RENAMED) } else { error });
    }
    let whole = from_proc || entries.iter().any(|(_, name, _)| name == "PATH");
    let says = format!("{} variables", entries.len());
    if whole {
        facts.environment = Some(Evidence::new(Kind::Environment, label, 1, &format!("{says}, the whole environment")));
    } else {
        let note = format!("{says} without PATH: taken for a part of an environment, so what isn't there is unknown");
        facts.note(&note, Some(Evidence::new(Kind::Environment, label, 1, &says)));
    }
    for (line, name, value) in &entries {
        facts.variable(name, value, (Kind::Environment, label, *line));
    }
    Ok(())
}

/// The broken text itself is not shown: it may be a secret.
fn none_here(label: &str, unit: &str, number: usize) -> Error {
    Error::input("this is no environment")
        .at(format!("{label}: {unit} {number}"))
        .expected("NAME=VALUE")
        .found("no such pair")
}

/// `NAME=VALUE` with a name that a shell could have set, or a function that bash exports.
pub(super) fn pair(entry: &str) -> Option<(&str, &str)> {
    let (name, value) = entry.split_once('=')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let exported = name.starts_with("BASH_FUNC_");
    let fine = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && (exported || name.chars().all(plain));
    fine.then_some((name, value))
}

/// A value without the quotes that `export -p` puts around it.
fn unquoted(value: &str) -> &str {
    let inside = |q| value.strip_prefix(q).and_then(|v: &str| v.strip_suffix(q));
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests;
