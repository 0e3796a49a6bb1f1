//! What the sources say, before anything is concluded from it.

use std::collections::BTreeMap;

use crate::data::{Switch, SwitchKind, ValueKind, data};
use crate::evidence::{Evidence, Kind, shown};
use crate::map::DiffMap;
use crate::report::Note;
use crate::scan::WordCount;

/// A setting as one source has it.
#[derive(Debug, Clone)]
pub(crate) struct Fact {
    pub(crate) switch: &'static Switch,
    /// The name that it was set by.
    pub(crate) name: String,
    /// In one spelling; `None` for a value that the engine can't read.
    pub(crate) value: Option<String>,
    pub(crate) evidence: Evidence,
}

/// A copy of a watched file.
#[derive(Debug, Clone)]
pub(crate) struct FileSeen {
    pub(crate) name: &'static str,
    pub(crate) path: String,
    pub(crate) how: &'static str,
    pub(crate) evidence: Evidence,
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) seen: Vec<Fact>,
    /// Kind and name of each source, in the order given.
    pub(crate) sources: Vec<(Kind, String)>,
    /// A whole process environment: what isn't in it is not set.
    pub(crate) environment: Option<Evidence>,
    /// A whole launch command or dump of arguments: what isn't in it is left to the engine.
    pub(crate) arguments: Option<Evidence>,
    /// The engine's own variables that no table knows, by name.
    pub(crate) strangers: BTreeMap<String, Evidence>,
    pub(crate) files: Vec<FileSeen>,
    pub(crate) notes: Vec<Note>,
    pub(crate) words: Option<Vec<WordCount>>,
    pub(crate) diff: Option<DiffMap>,
}

/// More notes than anybody reads.
const MOST_NOTES: usize = 500;

/// How a copy is known that a container or a unit puts over the installed file.
pub(crate) const MOUNTED: &str = "mounted over the installed one";

/// Beginnings of the names of the engines' own variables.
const PREFIXES: &[&str] = &["SGLANG_", "SGL_", "VLLM_"];

impl Facts {
    /// A variable of the server's environment.
    pub(crate) fn variable(&mut self, name: &str, value: &str, at: (Kind, &str, usize)) {
        let evidence = || Evidence::new(at.0, at.1, at.2, &format!("{name}={value}"));
        // SGLang moves SGL_ names to SGLANG_ when it starts.
        let renamed = name.strip_prefix("SGL_").map(|rest| format!("SGLANG_{rest}"));
        match data().variable(renamed.as_deref().unwrap_or(name)) {
            Some(switch) => self.add(switch, name, value, evidence()),
            None if PREFIXES.iter().any(|p| name.starts_with(p)) => {
                self.strangers.entry(shown(name)).or_insert_with(|| Evidence::new(at.0, at.1, at.2, name));
            }
            None => {}
        }
        if name == "PYTHONPATH" {
            self.note("PYTHONPATH: its folders are searched before the installed packages", Some(evidence()));
        }
    }

    /// A server argument in its Python spelling.
    pub(crate) fn argument(&mut self, name: &str, value: &str, evidence: Evidence) {
        if let Some(switch) = data().argument(name) {
            self.add(switch, name, value, evidence);
        }
    }

    /// A setting that is no switch (engine, version, arch, ...) or any other by its name.
    pub(crate) fn told(&mut self, name: &str, value: &str, evidence: Evidence) {
        if let Some(switch) = data().switch(name) {
            self.add(switch, name, value, evidence);
        }
    }

    fn add(&mut self, switch: &'static Switch, name: &str, value: &str, evidence: Evidence) {
        let value = normal(switch, value);
        if value.is_none() {
            let kind = match switch.value {
                ValueKind::Bool => "1, true, yes, y, 0, false, no or n",
                ValueKind::Number => "a whole number",
                ValueKind::Word => "a word",
            };
            let text = format!("{name}: not {kind}, so the engine warns and takes its default");
            self.note(&text, Some(evidence.clone()));
        }
        // A log says the same again and again: the first line of an unbroken run is the evidence.
        let same_source = |f: &&Fact| {
            let (a, b) = (&f.evidence, &evidence);
            f.switch.name == switch.name && a.source == b.source && a.file == b.file
        };
        let last = self.seen.iter().rev().find(same_source);
        if last.is_some_and(|f| f.value == value && f.name == name) {
            return;
        }
        self.seen.push(Fact { switch, name: name.to_owned(), value, evidence });
    }

    pub(crate) fn note(&mut self, text: &str, evidence: Option<Evidence>) {
        let note = Note { text: text.to_owned(), evidence };
        if self.notes.len() < MOST_NOTES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// A path that a source names: kept when it is a copy of a watched file.
    pub(crate) fn path(&mut self, path: &str, how: &'static str, evidence: Evidence) {
        let is_end = |end: &str| path.strip_suffix(end).is_some_and(|head| head.is_empty() || head.ends_with('/'));
        let Some(watched) = data().watched.iter().find(|w| is_end(&w.file)) else {
            if how == MOUNTED && path.contains("sglang") {
                self.note("a folder or file of the engine is mounted over the installed one", Some(evidence));
            }
            return;
        };
        let path = shown(path);
        if !self.files.iter().any(|f| f.path == path && f.how == how && f.evidence.file == evidence.file) {
            self.files.push(FileSeen { name: &watched.file, path, how, evidence });
        }
    }

    /// All facts about a setting, the weakest witness first; within a source the last line counts.
    pub(crate) fn about(&self, setting: &str) -> Vec<&Fact> {
        let mut facts: Vec<&Fact> = self.seen.iter().filter(|f| f.switch.name == setting).collect();
        facts.sort_by_key(|f| f.evidence.source);
        facts
    }
}

/// A value in one spelling: true or false, a number, a word in small letters.
fn normal(switch: &Switch, value: &str) -> Option<String> {
    let word = value.trim().to_lowercase();
    let left_to_engine = switch.kind == SwitchKind::Arg && matches!(word.as_str(), "none" | "auto");
    match switch.value {
        _ if left_to_engine => Some(word),
        // The words of the engine's EnvBool; Python's own for arguments.
        ValueKind::Bool => match word.as_str() {
            "true" | "1" | "yes" | "y" => Some("true".into()),
            "false" | "0" | "no" | "n" => Some("false".into()),
            _ => None,
        },
        ValueKind::Number => word.parse::<i64>().ok().map(|n| n.to_string()),
        ValueKind::Word => Some(shown(&word)),
    }
}

#[cfg(test)]
mod tests;
