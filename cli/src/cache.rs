//! Where audits keep what they found out: from the environment, asked once.

use std::path::PathBuf;

use karat_audit::{Cache, DEFAULT_LIMIT};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};

/// A cache folder and its bound in bytes.
pub(crate) struct Place {
    dir: PathBuf,
    limit: u64,
}

/// `$KARAT_CACHE_DIR`, else `$XDG_CACHE_HOME/karat`, else `~/.cache/karat`; nothing with `--no-cache`, `KARAT_NO_CACHE`
/// or where none of these is set. `KARAT_CACHE_LIMIT` is the bound (`500MB`, `2GiB`, or bytes).
pub(crate) fn place(no_cache: bool) -> Result<Option<Place>> {
    let given = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    if no_cache || given("KARAT_NO_CACHE").is_some_and(|v| v != "0") {
        return Ok(None);
    }
    let absolute = |name: &str| given(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let xdg = || absolute("XDG_CACHE_HOME").map(|p| p.join("karat"));
    let home = || absolute("HOME").map(|p| p.join(".cache/karat"));
    let Some(dir) = given("KARAT_CACHE_DIR").map(PathBuf::from).or_else(xdg).or_else(home) else { return Ok(None) };
    let limit = match given("KARAT_CACHE_LIMIT") {
        None => DEFAULT_LIMIT,
        Some(text) => bytes(&text.to_string_lossy()).ok_or_else(|| {
            let found = text.to_string_lossy().into_owned();
            Failure::usage(format!("KARAT_CACHE_LIMIT: expected a size such as 500MB or 2GiB, found `{found}`"))
        })?,
    };
    Ok(Some(Place { dir, limit }))
}

impl Place {
    /// Opens it; the error says why there is no cache.
    pub(crate) fn open(&self) -> std::result::Result<Cache, String> {
        Cache::open(&self.dir, self.limit)
    }
}

/// One line about the cache: where, how full.
pub(crate) fn line(place: Option<&Place>) -> String {
    let Some(place) = place else { return "off".to_string() };
    let holding = Cache::holding(&place.dir);
    let dir = karat_model::Plain(&place.dir.display().to_string()).to_string();
    format!("{dir}, {} entries, {} of {}", holding.entries, size(holding.bytes), size(place.limit))
}

/// The same for a script.
pub(crate) fn json(place: Option<&Place>) -> Value {
    let Some(place) = place else { return json!({"on": false}) };
    let holding = Cache::holding(&place.dir);
    json!({
        "on": true, "dir": place.dir.display().to_string(), "entries": holding.entries, "bytes": holding.bytes,
        "limit_bytes": place.limit,
    })
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes / 1000),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// What may wait in memory between layers: what was asked for, or a quarter of what is available; no bound where nobody knows.
pub(crate) fn hold(asked: Option<&str>) -> Result<Option<u64>> {
    let Some(text) = asked else { return Ok(available().map(|bytes| bytes / 4)) };
    let wrong = || Failure::usage(format!("--hold: expected a size such as 500MB or 2GiB, found `{text}`"));
    bytes(text).map(Some).ok_or_else(wrong)
}

/// Memory that can be had without taking any from others, where Linux says so.
fn available() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    bytes(&line.trim().replace("kB", "KiB"))
}

/// A whole number with an optional unit.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1u64 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_read_with_and_without_a_unit() {
        for (text, want) in [
            ("0", Some(0)),
            ("1500", Some(1500)),
            ("500MB", Some(500_000_000)),
            ("2 GiB", Some(2 << 30)),
            ("3k", Some(3000)),
            ("", None),
            ("MB", None),
            ("-1", None),
            ("1.5GB", None),
            ("99999999999999999999", None),
            ("20000000TB", None),
        ] {
            assert_eq!(bytes(text), want, "{text}");
        }
    }
}
