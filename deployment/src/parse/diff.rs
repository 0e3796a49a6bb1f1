//! A unified diff: files, hunks, and the function that each hunk is in. Counts of lines are held to.

use karat_model::{Error, Result};

/// A hunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Hunk {
    /// Path of the new file (the old one's where it is deleted), without `a/` and `b/`.
    pub(crate) file: String,
    /// Line of the hunk's head in the diff, from 1.
    pub(crate) line: usize,
    /// Functions and classes that changed lines are in, as far as the hunk's head and lines show them; inner ones last.
    pub(crate) scopes: Vec<String>,
    /// Added and removed lines with their line in the diff.
    pub(crate) changed: Vec<(usize, char, String)>,
    /// What changed, where the file has no text hunks (binary, renamed, mode only).
    pub(crate) without_text: Option<&'static str>,
}

/// Reads every hunk of a diff.
pub(crate) fn read(label: &str, text: &str) -> Result<Vec<Hunk>> {
    let lines: Vec<&str> = text.lines().collect();
    let cut = |at: usize, expected: &str, found: &str| {
        Error::input("this is no whole unified diff").at(format!("{label}:{at}")).expected(expected).found(found)
    };
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut file: Option<String> = None;
    let mut pending: Option<Hunk> = None;
    // Line of a +++ that no hunk has followed yet.
    let mut bare: Option<usize> = None;
    let none = |at: usize| cut(at, "at least one @@ hunk", "--- and +++ without a hunk");
    let mut i = 0;
    while i < lines.len() {
        let line = lines[i];
        if let Some(names) = line.strip_prefix("diff --git ") {
            if let Some(at) = bare {
                return Err(none(at));
            }
            hunks.extend(pending.take());
            let new = names.rsplit_once(" b/").map_or(names, |(_, new)| new).to_owned();
            file = None;
            pending = Some(Hunk { file: new, line: i + 1, without_text: Some("no text hunk"), ..Hunk::default() });
        } else if let Some(old) =
            line.strip_prefix("--- ").filter(|_| lines.get(i + 1).is_some_and(|n| n.starts_with("+++ ")))
        {
            if let Some(at) = bare {
                return Err(none(at));
            }
            pending = None;
            bare = Some(i + 2);
            let new = path(&lines[i + 1][4..]);
            file = Some(if new == "/dev/null" { path(old) } else { new });
            i += 1;
        } else if line.starts_with("--- a/") {
            return Err(cut(
                i + 2,
                "+++ after ---",
                lines.get(i + 1).map_or("the end of the file", |_| "another line"),
            ));
        } else if line.starts_with("@@@") {
            return Err(cut(i + 1, "a diff against one parent", "a combined diff"));
        } else if let Some(head) = line.strip_prefix("@@ ") {
            let Some((range, section)) = head.split_once(" @@") else {
                return Err(cut(i + 1, "@@ -LINE,COUNT +LINE,COUNT @@", "another head"));
            };
            let Some((old, new)) = counts(range) else {
                return Err(cut(i + 1, "@@ -LINE,COUNT +LINE,COUNT @@", "another head"));
            };
            let Some(name) = file.clone() else {
                return Err(cut(i + 1, "--- and +++ before the first hunk", "a hunk"));
            };
            bare = None;
            let mut hunk = Hunk { file: name, line: i + 1, ..Hunk::default() };
            let scopes = Scopes::of_head(section);
            i = body(&lines, i + 1, (old, new), scopes, &mut hunk).map_err(|at| {
                let found = if at > lines.len() { "the end of the file" } else { "a line that is none of the hunk's" };
                cut(at, "as many lines as the hunk's head says", found)
            })?;
            while lines.get(i).is_some_and(|l| l.starts_with('\\')) {
                i += 1;
            }
            // A line that still looks like the hunk's; only a mail's signature begins with two hyphens.
            if lines.get(i).is_some_and(|l| l.starts_with(['+', ' ', '-']) && !l.starts_with("--")) {
                return Err(cut(i + 1, "as many lines as the hunk's head says", "one more"));
            }
            hunks.push(hunk);
            continue;
        } else if line.starts_with("GIT binary patch") || line.starts_with("Binary files ") {
            if let Some(p) = &mut pending {
                p.without_text = Some("binary");
            }
        } else if line.starts_with("rename to ")
            && let Some(p) = &mut pending
        {
            p.without_text = Some("renamed");
        }
        i += 1;
    }
    if let Some(at) = bare {
        return Err(none(at));
    }
    hunks.extend(pending);
    if hunks.is_empty() {
        return Err(cut(lines.len().max(1), "at least one @@ hunk", "no hunk"));
    }
    Ok(hunks)
}

/// Lines of a hunk from `i` on. Gives the index after it, or the line where it breaks off.
fn body(
    lines: &[&str],
    mut i: usize,
    (mut old, mut new): (usize, usize),
    mut scopes: Scopes,
    hunk: &mut Hunk,
) -> std::result::Result<usize, usize> {
    while old > 0 || new > 0 {
        let line = lines.get(i).ok_or(lines.len() + 1)?;
        let (mark, text) = match line.chars().next() {
            // Editors take blanks away at a line's end: an empty line is an empty line of context.
            None => (' ', ""),
            Some(c) => (c, &line[c.len_utf8()..]),
        };
        let needs = match mark {
            ' ' => (1, 1),
            '-' => (1, 0),
            '+' => (0, 1),
            '\\' => (0, 0),
            _ => return Err(i + 1),
        };
        old = old.checked_sub(needs.0).ok_or(i + 1)?;
        new = new.checked_sub(needs.1).ok_or(i + 1)?;
        if mark != '\\' {
            scopes.line(text);
        }
        if matches!(mark, '-' | '+') {
            for (name, ..) in scopes.open.iter().filter(|_| !text.trim().is_empty()) {
                if !hunk.scopes.contains(name) {
                    hunk.scopes.push(name.clone());
                }
            }
            hunk.changed.push((i + 1, mark, text.to_owned()));
        }
        i += 1;
    }
    Ok(i)
}

/// `-1,5 +1,6` as counts of lines; a count that isn't given is 1.
fn counts(range: &str) -> Option<(usize, usize)> {
    let (old, new) = range.trim().split_once(' ')?;
    let count = |part: &str, sign: char| {
        let part = part.strip_prefix(sign)?;
        let (start, count) = part.split_once(',').unwrap_or((part, "1"));
        start.parse::<usize>().ok()?;
        count.parse::<usize>().ok()
    };
    Some((count(old, '-')?, count(new.trim(), '+')?))
}

/// `b/path` without its first part and without a time behind it.
fn path(text: &str) -> String {
    let path = text.split('\t').next().unwrap_or_default().trim().trim_matches('"');
    path.strip_prefix("a/").or_else(|| path.strip_prefix("b/")).unwrap_or(path).to_owned()
}

/// Functions and classes around the line that is read: name, indent, and whether the hunk's head gave it.
struct Scopes {
    open: Vec<(String, usize, bool)>,
}

impl Scopes {
    /// What a hunk's head names. Its indent is lost: a class stands at the margin, a function mostly in a class.
    fn of_head(section: &str) -> Self {
        let other = || {
            let name = section.trim().split('(').next()?.split_whitespace().next_back()?;
            let name = name.trim_start_matches(['*', '&']);
            let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            (!name.is_empty()).then_some(name)
        };
        let indent = if section.trim_start().starts_with("class ") { 0 } else { 4 };
        Self { open: definition(section).or_else(other).map(|name| (name, indent, true)).into_iter().collect() }
    }

    /// A line of code closes what it is not in, and may open one more.
    fn line(&mut self, text: &str) {
        let code = text.trim_start();
        if code.is_empty() || code.starts_with(['#', ')']) {
            return;
        }
        let indent = text.len() - code.len();
        let defined = definition(text);
        self.open.retain(|(_, at, head)| indent > *at || (*head && defined.is_none()));
        self.open.extend(defined.map(|name| (name, indent, false)));
    }
}

/// The name that a line of Python defines.
fn definition(line: &str) -> Option<String> {
    let line = line.trim_start();
    let line = line.strip_prefix("async ").unwrap_or(line);
    let rest = line.strip_prefix("def ").or_else(|| line.strip_prefix("class "))?;
    let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests;
