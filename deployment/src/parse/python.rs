//! Python's spelling of settings in a log: `ServerArgs(name='value', ...)` or `{'name': 'value', ...}`.

/// Top-level settings of a dump, as name and value, and whether its closing bracket was found.
pub(super) fn settings(dump: &str) -> (Vec<(&str, &str)>, bool) {
    let Some(open) = dump.find(['(', '{']) else { return (Vec::new(), false) };
    let inside = &dump[open + 1..];
    let mut out = Vec::new();
    let mut depth = 0usize;
    let mut quote: Option<char> = None;
    let mut escaped = false;
    let mut start = 0;
    for (at, c) in inside.char_indices() {
        if let Some(q) = quote {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == q => quote = None,
                _ => {}
            }
            continue;
        }
        match c {
            '\'' | '"' => quote = Some(c),
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => {
                out.extend(setting(&inside[start..at]));
                return (out, true);
            }
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                out.extend(setting(&inside[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    // The last setting may be cut: it is left out.
    (out, false)
}

fn setting(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let (name, value) = if text.starts_with(['\'', '"']) { text.split_once(':')? } else { text.split_once('=')? };
    let name = bare(name);
    let fine = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    fine.then(|| (name, bare(value)))
}

/// Without blanks and one pair of quotes.
fn bare(text: &str) -> &str {
    let text = text.trim();
    let inside = |q: char| text.strip_prefix(q).and_then(|t| t.strip_suffix(q));
    inside('\'').or_else(|| inside('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests;
