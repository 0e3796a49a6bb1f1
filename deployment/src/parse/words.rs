//! Words of a shell's or systemd's line: quotes, escapes, operators; each with the line it stands on.

use karat_model::{Error, Result};

/// A word or an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// From 1.
    pub(super) line: usize,
    /// `;`, `&&`, `|`, ..., or a line's end: what stands after it is another command.
    pub(super) ends: bool,
}

/// Splits a script into words. Comments and what follows a backslash at a line's end are dealt with; nothing is expanded.
pub(super) fn split(label: &str, script: &str, first_line: usize) -> Result<Vec<Word>> {
    let mut out = Vec::new();
    let mut word: Option<(String, usize)> = None;
    let mut line = first_line;
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\n') => line += 1,
                Some('\r') if chars.peek() == Some(&'\n') => {
                    chars.next();
                    line += 1;
                }
                Some(next) => word.get_or_insert_with(|| (String::new(), line)).0.push(next),
                None => {}
            },
            '\'' | '"' => {
                let start = line;
                let text = &mut word.get_or_insert_with(|| (String::new(), line)).0;
                loop {
                    match chars.next() {
                        Some(q) if q == c => break,
                        Some('\\') if c == '"' && matches!(chars.peek(), Some('"' | '\\' | '$' | '`')) => {
                            text.extend(chars.next());
                        }
                        Some('\\') if c == '"' && chars.peek() == Some(&'\n') => {
                            chars.next();
                            line += 1;
                        }
                        Some(inside) => {
                            line += usize::from(inside == '\n');
                            text.push(inside);
                        }
                        None => {
                            return Err(Error::input("a quote is not closed: the command is cut")
                                .at(format!("{label}:{start}"))
                                .expected(format!("a closing {c}"))
                                .found("the end of the text"));
                        }
                    }
                }
            }
            '#' if word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            ';' | '&' | '|' | '\n' | '(' | ')' => {
                out.extend(word.take().map(|(text, line)| Word { text, line, ends: false }));
                out.push(Word { text: c.to_string(), line, ends: true });
                line += usize::from(c == '\n');
            }
            c if c.is_whitespace() => out.extend(word.take().map(|(text, line)| Word { text, line, ends: false })),
            c => word.get_or_insert_with(|| (String::new(), line)).0.push(c),
        }
    }
    out.extend(word.map(|(text, line)| Word { text, line, ends: false }));
    Ok(out)
}

#[cfg(test)]
mod tests;
