//! What a terminal may be told, and how wide it is.

use std::process::{Command, Stdio};

/// Narrower terminals get lines of this length: shorter ones hold no table.
const NARROWEST: usize = 40;
/// How far a folded line's rest is set in.
const INDENT: usize = 4;

/// Columns of the terminal: `COLUMNS`, or what `stty` says of it.
pub(super) fn width() -> Option<usize> {
    let named = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    named.or_else(asked).filter(|columns| *columns > 0)
}

fn asked() -> Option<usize> {
    let terminal = std::fs::File::open("/dev/tty").ok()?;
    let said = Command::new("stty").arg("size").stdin(terminal).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(said.stdout).ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// The page as it may be shown: control characters written out, long lines folded at a space. With `in_actions` no line
/// begins like a workflow command.
pub(super) fn page(text: &str, width: Option<usize>, colour: bool, in_actions: bool) -> String {
    let lines = text.split('\n').flat_map(|line| {
        let clean = clean(line, colour);
        let clean = if in_actions && is_command(&clean) { format!("\\{clean}") } else { clean };
        match width {
            Some(width) => fold(&clean, width.max(NARROWEST)),
            None => vec![clean],
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What a runner of GitHub Actions takes for a command.
fn is_command(line: &str) -> bool {
    line.trim_start().starts_with("::") || line.contains("##[")
}

/// Length of the colour code that begins here.
fn code(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("\x1b[")?;
    let end = rest.find('m')?;
    let is_code = rest[..end].split(';').all(|n| n.len() <= 2 && n.bytes().all(|b| b.is_ascii_digit()));
    is_code.then_some(end + 3)
}

fn clean(line: &str, colour: bool) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('\x1b') {
        out.push_str(&karat_reports::clean_lines(&rest[..at]));
        let taken = code(&rest[at..]).filter(|_| colour);
        match taken {
            Some(n) => out.push_str(&rest[at..at + n]),
            None => out.push_str("\\u{1b}"),
        }
        rest = &rest[at + taken.unwrap_or(1)..];
    }
    out + &karat_reports::clean_lines(rest)
}

/// Lines of at most `width` columns, colour codes not counted; without a space to fold at, a line stays as long as it is.
fn fold(line: &str, width: usize) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = line.to_string();
    while let Some(at) = fold_at(&rest, width) {
        let tail = format!("{:INDENT$}{}", "", rest[at..].trim_start());
        rest.truncate(at);
        out.push(std::mem::replace(&mut rest, tail).trim_end().to_string());
    }
    out.push(rest);
    out
}

/// Where to fold: before the last word that begins within the width and doesn't end in it.
fn fold_at(line: &str, width: usize) -> Option<usize> {
    let indent = line.len() - line.trim_start().len();
    let (mut columns, mut last, mut at) = (0, None, 0);
    while at < line.len() {
        if let Some(n) = code(&line[at..]) {
            at += n;
            continue;
        }
        let c = line[at..].chars().next()?;
        if c == ' ' && at > indent.max(INDENT) {
            last = Some(at);
        }
        columns += 1;
        if columns > width && c != ' ' {
            return last;
        }
        at += c.len_utf8();
    }
    None
}

#[cfg(test)]
mod tests;
