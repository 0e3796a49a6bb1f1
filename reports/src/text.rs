//! Text of a bundle as it may be shown. Names of scenarios, sequences, taps and files are other people's: they may hold
//! markup, control characters, characters that turn the writing direction around, or a megabyte.

/// Longest name in a table, in characters.
pub(crate) const NAME: usize = 80;
/// Longest sentence.
pub(crate) const TEXT: usize = 600;

/// `text` on one line of at most `max` characters: white space is a space, other control characters and those that change
/// how their neighbours are shown are written out (`\u{1b}`), what XML can't hold is replaced.
pub fn clean(text: &str, max: usize) -> String {
    let mut out = String::new();
    // Characters of `out`, and where the last one of `text` began: what is written out takes several.
    let (mut n, mut last) = (0, 0);
    for c in text.chars() {
        let start = out.len();
        push(&mut out, c);
        let more = out[start..].chars().count();
        if n + more > max {
            out.truncate(if n == max { last } else { start });
            out.push('…');
            break;
        }
        (n, last) = (n + more, start);
    }
    out
}

/// The same for a text of several lines: line feeds and tabs stay, nothing is cut.
pub fn clean_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\n' | '\t') { out.push(c) } else { push(&mut out, c) }
    }
    out
}

fn push(out: &mut String, c: char) {
    match c {
        '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => out.push(' '),
        '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
        c if c.is_control() || hides(c) => out.extend(c.escape_unicode()),
        c => out.push(c),
    }
}

/// Characters that can't be seen, or that turn the direction of what follows.
fn hides(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// For XML text and attributes, on one line.
pub(crate) fn xml(text: &str, max: usize) -> String {
    let mut out = String::new();
    for c in clean(text, max).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A sentence in markdown: nothing in it is markup, a link, a mention or html.
pub(crate) fn markdown(text: &str) -> String {
    let text = clean(text, TEXT);
    let mut out = String::new();
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let inner = before.is_alphanumeric() && chars.peek().is_some_and(|next| next.is_alphanumeric());
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '_' if inner => out.push('_'),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '!' | '$' => out.extend(['\\', c]),
            // GitHub makes mentions, issues and links of these after the markup: a space that can't be seen stops it.
            '@' | '#' => out.extend([c, '\u{200b}']),
            ':' if chars.peek() == Some(&'/') => out.push_str(":\u{200b}"),
            '.' if out.ends_with("www") => out.push_str("\u{200b}."),
            // A list, a heading's underline, a number of a list: only where a text begins.
            '-' | '+' | '=' if out.is_empty() => out.extend(['\\', c]),
            '.' | ')' if !out.is_empty() && out.bytes().all(|b| b.is_ascii_digit()) => out.extend(['\\', c]),
            c => out.push(c),
        }
        before = c;
    }
    out
}

/// A name in markdown, as code: the fence is longer than any in the name.
pub(crate) fn code(text: &str) -> String {
    let text = clean(text, NAME);
    if text.trim().is_empty() {
        return String::new();
    }
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(longest + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    // A bar ends a cell of a table even within code.
    format!("{fence}{space}{}{space}{fence}", text.replace('|', "\\|"))
}

/// A cell of a csv file: quoted where it must be, and never a formula to a spreadsheet.
pub(crate) fn cell(text: &str) -> String {
    let text = clean(text, TEXT);
    let is_number = text.parse::<f64>().is_ok();
    let guard = if !is_number && text.trim_start().starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    let text = format!("{guard}{text}");
    if text.contains([',', '"']) || text != text.trim() { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests;
