//! A policy as a TOML file, both ways.

use std::fmt::Write as _;
use std::path::Path;

use super::{Policy, Scale, Select};
use crate::{Error, Result};

impl Policy {
    /// The policy that a file holds.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.to_path_buf(), source })?;
        Self::from_toml(path, &bytes)
    }

    /// The policy in the bytes of a TOML file; `path` is for messages.
    pub fn from_toml(path: &Path, bytes: &[u8]) -> Result<Self> {
        let bad = |line: u64, why: String| Error::Policy { path: path.to_path_buf(), line, why };
        let text = std::str::from_utf8(bytes)
            .map_err(|e| bad(line_at(bytes, e.valid_up_to()), "expected UTF-8 text, found other bytes".to_string()))?;
        let policy: Self = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            bad(line_at(bytes, at), e.message().replace('\n', " "))
        })?;
        match policy.wrong() {
            Some(wrong) => Err(bad(line_of(text, wrong.section, wrong.index), wrong.why)),
            None => Ok(policy),
        }
    }

    /// The policy as a TOML file.
    pub fn to_toml(&self) -> String {
        let mut out = format!("format = {}\n\n", quoted(&self.format));
        let mut number = |key: &str, value: f64| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{key} = {value:?}");
        };
        number("tolerance_scale", self.tolerance_scale);
        number("min_floors", self.min_floors);
        number("delta", self.delta);
        self.recall_margin.iter().for_each(|margin| number("recall_margin", *margin));
        for Scale { on, scale, reason } in &self.tolerance {
            let _ = write!(out, "\n[[tolerance]]\n{}scale = {scale:?}\n{}", place(on), line("reason", reason));
        }
        for limit in &self.limit {
            let _ = write!(out, "\n[[limit]]\nname = {}\nmetric = \"{}\"\n", quoted(&limit.name), limit.metric.name());
            out.push_str(&place(&limit.on));
            for (key, value) in [("max", limit.max), ("min", limit.min)] {
                value.iter().for_each(|v| out.push_str(&format!("{key} = {v:?}\n")));
            }
            for (key, value) in [("prove", limit.prove), ("if_present", limit.if_present)] {
                if value {
                    out.push_str(&format!("{key} = true\n"));
                }
            }
            out.push_str(&line("reason", &limit.reason));
        }
        for allow in &self.allow {
            let _ = write!(out, "\n[[allow]]\nlimit = {}\n{}", quoted(&allow.limit), place(&allow.on));
            for (key, value) in
                [("owner", &allow.owner), ("reason", &allow.reason), ("expires", &allow.expires.to_string())]
            {
                out.push_str(&line(key, value));
            }
        }
        out
    }
}

fn place(on: &Select) -> String {
    let given: Vec<String> = on.given().map(|(key, value)| format!("{key} = {}", quoted(value))).collect();
    if given.is_empty() { String::new() } else { format!("where = {{ {} }}\n", given.join(", ")) }
}

fn line(key: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{key} = {}\n", quoted(text)) }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Line (from 1) of a byte.
fn line_at(bytes: &[u8], at: usize) -> u64 {
    1 + bytes.iter().take(at).filter(|b| **b == b'\n').count() as u64
}

/// Line of the `index`-th `[[section]]`, or of the key `section`; 1 where the file writes it another way.
fn line_of(text: &str, section: &str, index: usize) -> u64 {
    let header = format!("[[{section}]]");
    let is_header = |l: &str| l.split_whitespace().collect::<String>().starts_with(&header);
    let mut headers = text.lines().enumerate().filter(|(_, l)| is_header(l));
    let mut keys = text
        .lines()
        .enumerate()
        .filter(|(_, l)| l.trim_start().strip_prefix(section).is_some_and(|rest| rest.trim_start().starts_with('=')));
    headers.nth(index).or_else(|| keys.next()).map_or(1, |(i, _)| i as u64 + 1)
}
