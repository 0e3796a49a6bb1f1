//! A server's log or its journal: the dump of its arguments, lines that tell a setting, paths of loaded files, words.

use std::borrow::Cow;

use karat_model::Result;

use crate::data::data;
use crate::evidence::{Evidence, Kind};
use crate::facts::Facts;
use crate::parse::python;
use crate::scan::Scan;

/// Marks of the line that dumps every argument.
const DUMPS: &[&str] = &["server_args=", "server_args: "];

#[expect(clippy::unnecessary_wraps, reason = "the signature of every reader: any text is a log")]
pub(super) fn read(label: &str, text: &str, facts: &mut Facts) -> Result<()> {
    let mut scan = Scan::default();
    for (i, line) in text.lines().enumerate() {
        let number = i + 1;
        let line = &*uncoloured(line);
        let dump = DUMPS.iter().find_map(|mark| Some(&line[line.find(mark)? + mark.len()..]));
        let dump = dump.filter(|d| d.starts_with("ServerArgs(") || d.starts_with('{'));
        if let Some(dump) = dump {
            arguments(label, number, dump, facts);
            continue;
        }
        scan.line(label, number, line);
        clues(label, number, line, facts);
        paths(label, number, line, facts);
    }
    let words = scan.done();
    match &mut facts.words {
        None => facts.words = Some(words),
        Some(seen) => {
            for (a, b) in seen.iter_mut().zip(words) {
                a.count += b.count;
                a.first.extend(b.first);
            }
        }
    }
    Ok(())
}

/// A line without the colours of a terminal, `ESC [ 31 m`, which would hide where a word begins. syslog writes ESC as #033.
fn uncoloured(line: &str) -> Cow<'_, str> {
    const STARTS: [&str; 2] = ["\u{1b}[", "#033["];
    if !STARTS.iter().any(|start| line.contains(start)) {
        return Cow::Borrowed(line);
    }
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((at, start)) = STARTS.iter().filter_map(|s| Some((rest.find(s)?, s.len()))).min() {
        out.push_str(&rest[..at]);
        let code = &rest[at + start..];
        let end = code.find(|c: char| !(c.is_ascii_digit() || matches!(c, ';' | '?' | ' '))).unwrap_or(code.len());
        let letter = code[end..].chars().next().map_or(0, char::len_utf8);
        rest = &code[end + letter..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The dump that every start writes. One that is cut tells what it still has.
fn arguments(label: &str, number: usize, dump: &str, facts: &mut Facts) {
    let (settings, whole) = python::settings(dump);
    for (name, value) in &settings {
        facts.argument(name, value, Evidence::new(Kind::Log, label, number, &format!("{name}={value}")));
    }
    let evidence = Evidence::new(Kind::Log, label, number, "the server's dump of its arguments");
    facts.told("engine", "sglang", evidence.clone());
    if whole {
        facts.arguments = Some(evidence);
    } else {
        let last = settings.last().map_or("", |(name, _)| name);
        facts.note(
            &format!("the dump of arguments is cut after {last}: what stood behind it is unknown"),
            Some(evidence),
        );
    }
}

fn clues(label: &str, number: usize, line: &str, facts: &mut Facts) {
    let evidence = || Evidence::new(Kind::Log, label, number, line);
    for clue in &data().clues {
        let Some(at) = line.find(&clue.before) else { continue };
        let rest = &line[at + clue.before.len()..];
        let value = match &clue.value {
            Some(value) => Some(value.as_str()),
            None => rest.split_once(&clue.after).map(|(value, _)| value),
        };
        if let Some(value) = value.filter(|v| !v.is_empty() && !v.contains(char::is_whitespace)) {
            facts.told(&clue.setting, value, evidence());
        }
    }
    for device in &data().devices {
        if device.names.iter().any(|name| line.contains(name.as_str()))
            && facts.about("arch").last().is_none_or(|f| f.value.as_deref() != Some(&device.arch))
        {
            facts.told("arch", &device.arch, evidence());
        }
    }
}

/// Files of tracebacks and warnings: `File "PATH", line N` and `PATH.py:N:`.
fn paths(label: &str, number: usize, line: &str, facts: &mut Facts) {
    let evidence = || Evidence::new(Kind::Log, label, number, line);
    let framed = line.split("File \"").nth(1).and_then(|rest| rest.split('"').next());
    if let Some(path) = framed {
        facts.path(path, "ran (a traceback names it)", evidence());
    }
    for word in line.split_whitespace() {
        if let Some((path, rest)) = word.split_once(".py:")
            && path.contains('/')
            && rest.starts_with(|c: char| c.is_ascii_digit())
        {
            facts.path(&format!("{path}.py"), "ran (a warning names it)", evidence());
        }
    }
}

#[cfg(test)]
mod tests;
