//! What is said about a deployment. Every statement has its evidence and the rule that led to it.

mod text;

use serde::Serialize;

use crate::evidence::{Evidence, Kind};
use crate::map::DiffMap;
use crate::scan::WordCount;

pub use text::{diff_text, report_text};

/// What comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing contradictory.
    Pass,
    /// Requested patches contradict each other, or one of them is inert.
    Fail,
    /// Nothing could be seen.
    Unproven,
}

impl Verdict {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unproven => "unproven",
        }
    }

    /// The exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail => 1,
            Self::Unproven => 4,
        }
    }
}

/// Whether a patch is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requested {
    /// A setting or a source asks for it.
    Yes,
    /// Nothing is set, and the engine's default asks for it.
    ByDefault,
    /// Nothing asks for it.
    No,
    /// That can't be seen.
    Unknown,
}

impl Requested {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::ByDefault => "by default",
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }
}

/// Whether a patch can be in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is asked for, and nothing that was seen stands against it. Only a run proves more.
    CanBeActive,
    /// Whether asked for or not, it changes nothing here.
    Inert,
    /// It is seen not to be asked for.
    Off,
    /// That can't be seen.
    Unknown,
}

impl State {
    /// The words.
    pub fn name(self) -> &'static str {
        match self {
            Self::CanBeActive => "can be active",
            Self::Inert => "inert",
            Self::Off => "off",
            Self::Unknown => "unknown",
        }
    }
}

/// A statement, the rule that led to it and what speaks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// Name of the rule.
    pub rule: String,
    /// The statement.
    pub says: String,
    /// Where the rule comes from.
    pub source: String,
    /// What speaks for it.
    pub evidence: Vec<Evidence>,
}

/// A patch in this deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PatchRow {
    /// Its name, with an option where the deployment chooses one.
    pub patch: String,
    /// Whether this version has a contract for it.
    pub contract: bool,
    /// Whether it is asked for.
    pub requested: Requested,
    /// Whether it can be in effect.
    pub state: State,
    /// Why.
    pub why: Vec<Claim>,
}

/// A setting with the value that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// `null` when what is set can't be read and the default isn't known.
    pub value: Option<String>,
    /// True when the value is the engine's default.
    pub default: bool,
    /// What speaks for it.
    pub evidence: Vec<Evidence>,
}

/// A value as one source has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// The value; `null` when the engine can't read it.
    pub value: Option<String>,
    /// Where.
    pub evidence: Evidence,
}

/// Sources that disagree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// The setting.
    pub setting: String,
    /// What counts for a running process.
    pub wins: Seen,
    /// The rest.
    pub others: Vec<Seen>,
    /// Why the first wins.
    pub why: String,
}

/// Settings or patches that can't hold together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Contradiction {
    /// Name of the rule.
    pub rule: String,
    /// The settings or patches.
    pub between: Vec<String>,
    /// What is wrong.
    pub says: String,
    /// Where the rule comes from.
    pub source: String,
    /// What speaks for it.
    pub evidence: Vec<Evidence>,
}

/// A copy of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Copy {
    /// Its path.
    pub path: String,
    /// How one knows of it.
    pub how: &'static str,
    /// Where.
    pub evidence: Evidence,
}

impl From<(String, &'static str, Evidence)> for Copy {
    fn from((path, how, evidence): (String, &'static str, Evidence)) -> Self {
        Self { path, how, evidence }
    }
}

/// A file whose copy decides what runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WatchedFile {
    /// Its name.
    pub file: &'static str,
    /// Patches that are made in it.
    pub patches: Vec<&'static str>,
    /// Copies that a source names; none means unknown.
    pub copies: Vec<Copy>,
}

/// Something worth knowing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Note {
    /// What.
    pub text: String,
    /// Where.
    pub evidence: Option<Evidence>,
}

/// A source that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceSeen {
    /// Its kind.
    pub kind: Kind,
    /// As it was given.
    pub file: String,
}

/// Everything about a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What comes of it.
    pub verdict: Verdict,
    /// What was read.
    pub sources: Vec<SourceSeen>,
    /// Settings that were seen.
    pub settings: Vec<Setting>,
    /// Every patch of the tables.
    pub patches: Vec<PatchRow>,
    /// What can't hold together.
    pub contradictions: Vec<Contradiction>,
    /// Where sources disagree.
    pub conflicts: Vec<Conflict>,
    /// Which copy of a file runs.
    pub files: Vec<WatchedFile>,
    /// Variables of the engine that no table knows; their values are not kept.
    pub not_in_tables: Vec<Note>,
    /// The journal's words, when a log was given.
    pub journal: Option<Vec<WordCount>>,
    /// The rest.
    pub notes: Vec<Note>,
    /// The patch against upstream, when one was given.
    pub diff: Option<DiffMap>,
}
