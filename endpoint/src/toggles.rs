//! `karat-ab/1`: how a server is started under each set of toggles.

use std::path::{Path, PathBuf};
use std::time::Duration;

use karat_model::{Error, Result};
use serde::Deserialize;

use crate::process::Start;

/// Name and version of the format.
const FORMAT: &str = "karat-ab/1";

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    command: Vec<String>,
    #[serde(default = "health")]
    health: String,
    #[serde(default = "ready")]
    ready_seconds: u64,
    #[serde(default = "end")]
    end_seconds: u64,
    log: Option<PathBuf>,
    #[serde(default)]
    env: toml::Table,
    #[serde(default)]
    toggle: Vec<Toggle>,
}

fn health() -> String {
    "/health".to_owned()
}

fn ready() -> u64 {
    900
}

fn end() -> u64 {
    30
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Toggle {
    name: String,
    #[serde(default)]
    on: Half,
    #[serde(default)]
    off: Half,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Half {
    #[serde(default)]
    env: toml::Table,
    #[serde(default)]
    args: Vec<String>,
}

/// A server with switches.
#[derive(Debug, Clone)]
pub struct Toggles {
    file: File,
}

/// One set of toggles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// stock (all off), stock+NAME, stock+all, as patch sets are called.
    pub name: String,
    /// Toggles that are on.
    pub on: Vec<String>,
}

impl Toggles {
    /// Reads a file.
    ///
    /// # Errors
    /// An input error with file and line for what isn't `karat-ab/1`.
    pub fn load(path: &Path) -> Result<Self> {
        let label = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|e| Error::input("the file can't be read").at(&label).found(e))?;
        Self::from_toml(&label, &text)
    }

    fn from_toml(label: &str, text: &str) -> Result<Self> {
        let file: File = toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
            Error::input(e.message().trim().replace('\n', " ")).at(format!("{label}:{line}"))
        })?;
        let refuse = |what: &str| Error::input(what.to_owned()).at(label);
        if file.format != FORMAT {
            return Err(refuse("unknown format").expected(FORMAT).found(format!("{:?}", file.format)));
        }
        if file.command.is_empty() || !file.health.starts_with('/') {
            return Err(refuse(
                "a server needs a command (a list of words) and a health path that begins with a slash",
            ));
        }
        for (i, toggle) in file.toggle.iter().enumerate() {
            let named = !toggle.name.is_empty()
                && toggle.name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
            if !named || toggle.name == "all" || toggle.name == "none" {
                let what = "not a name for a toggle (letters, digits, `.`, `_`, `-`; not all or none)";
                return Err(refuse(what).found(format!("{:?}", toggle.name)));
            }
            if file.toggle[..i].iter().any(|t| t.name == toggle.name) {
                return Err(refuse("two toggles have the same name").found(&toggle.name));
            }
        }
        let tables = file.toggle.iter().flat_map(|t| [&t.on.env, &t.off.env]).chain([&file.env]);
        for (name, value) in tables.flatten() {
            if word(value).is_none() {
                return Err(refuse("a variable is a text, a number or a boolean").at(format!("env.{name}")));
            }
        }
        Ok(Self { file })
    }

    /// The sets to run: all off, each alone, all on; or the one that `only` names (`none`, `all`, names with commas).
    ///
    /// # Errors
    /// A usage error for a name that the file doesn't have.
    pub fn sets(&self, only: Option<&str>) -> Result<Vec<Set>> {
        let all: Vec<String> = self.file.toggle.iter().map(|t| t.name.clone()).collect();
        let stock = Set { name: "stock".to_owned(), on: Vec::new() };
        let whole = Set { name: "stock+all".to_owned(), on: all.clone() };
        match only {
            Some("none") => Ok(vec![stock]),
            Some("all") => Ok(vec![whole]),
            Some(names) => {
                let on: Vec<String> = names.split(',').map(|n| n.trim().to_owned()).filter(|n| !n.is_empty()).collect();
                if let Some(unknown) = on.iter().find(|n| !all.contains(n)) {
                    return Err(Error::usage("the file has no such toggle")
                        .at("--toggles")
                        .expected(all.join(", "))
                        .found(unknown));
                }
                Ok(vec![if on.is_empty() { stock } else { Set { name: format!("stock+{}", on.join("+")), on } }])
            }
            None => {
                let each = all.iter().map(|n| Set { name: format!("stock+{n}"), on: vec![n.clone()] });
                let several = (all.len() > 1).then(|| whole.clone());
                Ok(std::iter::once(stock).chain(each).chain(several).collect())
            }
        }
    }

    /// How the server is started under a set.
    pub fn start(&self, set: &Set) -> Start {
        let file = &self.file;
        let mut command = file.command.clone();
        let mut env: Vec<(String, String)> = Vec::new();
        let mut take = |table: &toml::Table| {
            env.extend(table.iter().filter_map(|(name, value)| Some((name.clone(), word(value)?))));
        };
        take(&file.env);
        for toggle in &file.toggle {
            let half = if set.on.contains(&toggle.name) { &toggle.on } else { &toggle.off };
            take(&half.env);
            command.extend(half.args.iter().cloned());
        }
        Start {
            command,
            env,
            health: file.health.clone(),
            ready: Duration::from_secs(file.ready_seconds),
            end: Duration::from_secs(file.end_seconds),
            log: file.log.clone(),
        }
    }
}

fn word(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(n) => Some(n.to_string()),
        toml::Value::Float(n) => Some(n.to_string()),
        toml::Value::Boolean(b) => Some(if *b { "1" } else { "0" }.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
format = "karat-ab/1"
command = ["serve", "--port", "1"]
env = { A = 1 }
[[toggle]]
name = "decode"
on = { env = { SPLIT = true }, args = ["--fast"] }
off = { env = { SPLIT = false } }
[[toggle]]
name = "indexer"
on = { env = { INDEX = "fp8" } }
"#;

    #[test]
    fn sets_are_stock_each_and_all() {
        let toggles = Toggles::from_toml("ab.toml", FILE).unwrap();
        let sets = toggles.sets(None).unwrap();
        let names: Vec<&str> = sets.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["stock", "stock+decode", "stock+indexer", "stock+all"]);
        let start = |i: usize| toggles.start(&sets[i]);
        let env = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect::<Vec<_>>();
        assert_eq!(start(0).env, env(&[("A", "1"), ("SPLIT", "0")]));
        assert_eq!(start(3).env, env(&[("A", "1"), ("SPLIT", "1"), ("INDEX", "fp8")]));
        assert_eq!(start(1).command, ["serve", "--port", "1", "--fast"]);
        assert_eq!(toggles.sets(Some("indexer, decode")).unwrap()[0].on, ["indexer", "decode"]);
        assert!(toggles.sets(Some("other")).unwrap_err().to_string().contains("decode, indexer"));
    }

    #[test]
    fn files_that_are_none_are_refused_with_their_line() {
        for (text, part) in [
            ("format = 1", "ab.toml:1"),
            ("format = \"karat-ab/2\"\ncommand = [\"a\"]", "karat-ab/1"),
            ("format = \"karat-ab/1\"\ncommand = []", "needs a command"),
            ("format = \"karat-ab/1\"\ncommand = [\"a\"]\nx = 1", "ab.toml:3"),
            ("format = \"karat-ab/1\"\ncommand = [\"a\"]\n[[toggle]]\nname = \"all\"", "not a name"),
            ("format = \"karat-ab/1\"\ncommand = [\"a\"]\nenv = { A = [1] }", "env.A"),
        ] {
            let error = Toggles::from_toml("ab.toml", text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
