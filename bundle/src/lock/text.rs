//! A baseline as text: `karat.lock`.

use std::fmt::Write as _;
use std::path::Path;

use super::{Entry, FORMAT, Lock};
use crate::{Error, Result, cell};

const ABOUT: &str =
    "# The accepted baseline of `karat gate --baseline`. `--update-baseline` writes it; review it like code.
# metric NAME VALUE n SAMPLES from LOW to HIGH limit LIMIT
";

impl Lock {
    /// The baseline that a file holds.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.to_path_buf(), source })?;
        Self::from_text(path, &bytes)
    }

    /// Writes it: under a temporary name first, so that a half-written baseline never stands there.
    pub fn write(&self, path: &Path) -> Result<()> {
        let failed = |source| Error::Write { path: path.to_path_buf(), source };
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(parent).map_err(failed)?;
        std::io::Write::write_all(&mut file, self.to_text().as_bytes()).map_err(failed)?;
        file.persist(path).map_err(|e| failed(e.error))?;
        Ok(())
    }

    /// The baseline in the bytes of a file; `path` is for messages.
    pub fn from_text(path: &Path, bytes: &[u8]) -> Result<Self> {
        let bad = |line: usize, why: String| Error::Policy { path: path.to_path_buf(), line: line as u64 + 1, why };
        let text = std::str::from_utf8(bytes).map_err(|e| {
            let line = bytes.iter().take(e.valid_up_to()).filter(|b| **b == b'\n').count();
            bad(line, "expected UTF-8 text, found other bytes".to_string())
        })?;
        let mut out = Self::default();
        let mut lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#'));
        match lines.next() {
            Some((_, FORMAT)) => {}
            found => {
                let (at, found) = found.unwrap_or((0, "nothing"));
                return Err(bad(at, format!("expected `{FORMAT}`, found `{found}`")));
            }
        }
        let mut last = String::new();
        for (at, line) in lines {
            let mut kind = |name: &str| -> Result<()> {
                let key = format!("{} {name}", line.split(' ').next().unwrap_or_default());
                if key <= last {
                    let why = format!("expected sorted lines, each name once; `{name}` comes after `{last}`");
                    return Err(bad(at, format!("{why}: a merge gone wrong? Write it anew with --update-baseline")));
                }
                last = key;
                Ok(())
            };
            if let Some((name, hash)) = line.strip_prefix("hash ").and_then(|rest| rest.split_once(' ')) {
                kind(name)?;
                out.hashes.insert(name.to_string(), hash.to_string());
            } else if let Some((name, entry)) = line.strip_prefix("metric ").and_then(metric) {
                kind(name)?;
                out.metrics.insert(name.to_string(), entry);
            } else if let Some((name, why)) = line.strip_prefix("reason ").and_then(|rest| rest.split_once(": ")) {
                kind(name)?;
                out.reasons.insert(name.to_string(), why.to_string());
            } else {
                let what = "expected `hash NAME HASH`, `metric NAME VALUE n SAMPLES from LOW to HIGH limit LIMIT` or \
                            `reason NAME: WHY`";
                return Err(bad(at, format!("{what}, found `{line}`")));
            }
        }
        Ok(out)
    }

    /// The same as text.
    pub fn to_text(&self) -> String {
        let mut out = format!("{ABOUT}{FORMAT}\n");
        // Writing to a String cannot fail.
        for (name, hash) in &self.hashes {
            let _ = writeln!(out, "hash {name} {hash}");
        }
        for (name, Entry { value, n, interval, limit }) in &self.metrics {
            let number = |v: f64| cell::number(v);
            let limit = limit.map_or("-".to_string(), number);
            let (value, low, high) = (number(*value), number(interval.0), number(interval.1));
            let _ = writeln!(out, "metric {name} {value} n {n} from {low} to {high} limit {limit}");
        }
        for (name, why) in &self.reasons {
            let _ = writeln!(out, "reason {name}: {why}");
        }
        out
    }
}

/// `NAME VALUE n SAMPLES from LOW to HIGH limit LIMIT`; a name may hold spaces.
fn metric(rest: &str) -> Option<(&str, Entry)> {
    let mut words = rest.rsplitn(10, ' ');
    let limit = match words.next()? {
        "-" => None,
        text => Some(cell::parse_number(text)?),
    };
    let mut number = |word: &str| -> Option<f64> {
        (words.next()? == word).then_some(())?;
        cell::parse_number(words.next()?)
    };
    let high = number("limit")?;
    let low = number("to")?;
    (words.next()? == "from").then_some(())?;
    let n = words.next()?.parse().ok()?;
    (words.next()? == "n").then_some(())?;
    let value = cell::parse_number(words.next()?)?;
    let name = words.next().filter(|name| !name.is_empty())?;
    Some((name, Entry { value, n, interval: (low, high), limit }))
}
