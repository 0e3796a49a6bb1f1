//! The tables: settings, patches, rules, clues of logs, words, places in code. Embedded, and checked by tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use serde::Deserialize;

/// What a setting's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ValueKind {
    Bool,
    Word,
    Number,
}

/// Where a setting is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SwitchKind {
    Env,
    Arg,
    Seen,
}

/// A setting.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Switch {
    pub(crate) name: String,
    pub(crate) kind: SwitchKind,
    pub(crate) value: ValueKind,
    pub(crate) default: Option<String>,
    #[serde(default)]
    pub(crate) unset_on: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) flags: Vec<String>,
    #[serde(default = "yes")]
    pub(crate) read: bool,
    #[serde(default)]
    pub(crate) ending: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Switches {
    version: String,
    engine: String,
    switch: Vec<Switch>,
}

/// A condition on a setting; exactly one of `values`, `not` and `above` is given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Condition {
    pub(crate) setting: String,
    #[serde(default)]
    pub(crate) values: Vec<String>,
    #[serde(default)]
    pub(crate) not: Vec<String>,
    pub(crate) above: Option<i64>,
}

/// A patch and what asks for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    pub(crate) name: String,
    pub(crate) option: Option<String>,
    #[serde(default)]
    pub(crate) in_source: bool,
    pub(crate) requests: Vec<Condition>,
}

impl Change {
    /// `NAME` or `NAME:option`, as on the command line.
    pub(crate) fn id(&self) -> String {
        self.option.as_ref().map_or(self.name.clone(), |option| format!("{}:{option}", self.name))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Changes {
    planned: Vec<String>,
    change: Vec<Change>,
}

/// What a rule does to its patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Effect {
    Inert,
    Unknown,
    Note,
}

/// A rule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) changes: Vec<String>,
    pub(crate) effect: Effect,
    pub(crate) when: Vec<Condition>,
    #[serde(default)]
    pub(crate) unless: Vec<Condition>,
    #[serde(default)]
    pub(crate) seen_only: bool,
    pub(crate) says: String,
    pub(crate) source: String,
}

/// Settings that can't hold together.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Clash {
    pub(crate) name: String,
    pub(crate) when: Vec<Condition>,
    pub(crate) says: String,
    pub(crate) source: String,
}

/// Patches that replace the same kernel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exclusive {
    pub(crate) name: String,
    pub(crate) changes: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    rule: Vec<Rule>,
    contradiction: Vec<Clash>,
    exclusive: Vec<Exclusive>,
}

/// A log line that tells a setting.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Clue {
    pub(crate) before: String,
    #[serde(default)]
    pub(crate) after: String,
    pub(crate) setting: String,
    pub(crate) value: Option<String>,
}

/// Names of a device in logs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Device {
    pub(crate) names: Vec<String>,
    pub(crate) arch: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Clues {
    clue: Vec<Clue>,
    device: Vec<Device>,
}

/// A word of the journal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Word {
    pub(crate) name: String,
    pub(crate) forms: Vec<String>,
    pub(crate) except: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    word: Vec<Word>,
}

/// A place in code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    pub(crate) file: Option<String>,
    #[serde(default)]
    pub(crate) functions: Vec<String>,
    #[serde(default)]
    pub(crate) words: Vec<String>,
    pub(crate) ops: Vec<String>,
    #[serde(default)]
    pub(crate) patches: Vec<String>,
}

/// A file whose copy decides what runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Watched {
    pub(crate) file: String,
    pub(crate) patches: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Places {
    place: Vec<Place>,
    watched: Vec<Watched>,
}

/// Every table.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) version: String,
    pub(crate) engine: String,
    pub(crate) switches: Vec<Switch>,
    pub(crate) planned: Vec<String>,
    pub(crate) changes: Vec<Change>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) clashes: Vec<Clash>,
    pub(crate) exclusive: Vec<Exclusive>,
    pub(crate) clues: Vec<Clue>,
    pub(crate) devices: Vec<Device>,
    pub(crate) words: Vec<Word>,
    pub(crate) places: Vec<Place>,
    pub(crate) watched: Vec<Watched>,
}

/// The embedded tables.
pub(crate) fn data() -> &'static Data {
    static DATA: OnceLock<Data> = OnceLock::new();
    DATA.get_or_init(|| load().expect("the embedded tables fit their schema: see the tests"))
}

fn load() -> Result<Data, toml::de::Error> {
    let switches: Switches = toml::from_str(include_str!("../data/switches.toml"))?;
    let changes: Changes = toml::from_str(include_str!("../data/changes.toml"))?;
    let rules: Rules = toml::from_str(include_str!("../data/rules.toml"))?;
    let clues: Clues = toml::from_str(include_str!("../data/clues.toml"))?;
    let words: Words = toml::from_str(include_str!("../data/words.toml"))?;
    let places: Places = toml::from_str(include_str!("../data/places.toml"))?;
    Ok(Data {
        version: switches.version,
        engine: switches.engine,
        switches: switches.switch,
        planned: changes.planned,
        changes: changes.change,
        rules: rules.rule,
        clashes: rules.contradiction,
        exclusive: rules.exclusive,
        clues: clues.clue,
        devices: clues.device,
        words: words.word,
        places: places.place,
        watched: places.watched,
    })
}

impl Data {
    /// The setting of a variable's name.
    pub(crate) fn variable(&self, name: &str) -> Option<&Switch> {
        self.switches.iter().filter(|s| s.kind == SwitchKind::Env).find(|s| {
            s.name == name || (s.ending && name.strip_suffix(s.name.as_str()).is_some_and(|head| head.ends_with('_')))
        })
    }

    /// The setting of a command-line flag, which begins with two hyphens.
    pub(crate) fn flag(&self, flag: &str) -> Option<&Switch> {
        let argument = flag.trim_start_matches('-').replace('-', "_");
        self.switches
            .iter()
            .filter(|s| s.kind == SwitchKind::Arg)
            .find(|s| if s.flags.is_empty() { s.name == argument } else { s.flags.iter().any(|f| f == flag) })
    }

    /// The setting of a server argument in its Python spelling.
    pub(crate) fn argument(&self, name: &str) -> Option<&Switch> {
        self.switches.iter().find(|s| s.kind == SwitchKind::Arg && s.name == name)
    }

    /// A setting by its name.
    pub(crate) fn switch(&self, name: &str) -> Option<&Switch> {
        self.switches.iter().find(|s| s.name == name)
    }
}

/// Names of all patches that the tables speak of.
pub fn change_names() -> BTreeSet<&'static str> {
    let places = data().places.iter().flat_map(|p| &p.patches).chain(data().watched.iter().flat_map(|w| &w.patches));
    data().changes.iter().map(|c| &c.name).chain(places).map(String::as_str).collect()
}

/// Patches and the option (`name=value`) that the tables name with them.
pub fn change_options() -> Vec<(&'static str, &'static str)> {
    data().changes.iter().filter_map(|c| Some((c.name.as_str(), c.option.as_deref()?))).collect()
}

/// Names of patches that the tables hold to be without a contract.
pub fn planned_names() -> BTreeSet<&'static str> {
    data().planned.iter().map(String::as_str).collect()
}

/// Names of all ops that the tables speak of.
pub fn op_names() -> BTreeSet<&'static str> {
    data().places.iter().flat_map(|p| &p.ops).map(String::as_str).collect()
}

#[cfg(test)]
mod tests;
