//! Where a fact was seen.

use karat_model::Plain;
use serde::Serialize;

use crate::secrets;

/// Longest text of an evidence, in characters.
const SHOWN: usize = 160;

/// What a source is, from the weakest to the strongest witness of what a running process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A patch against upstream: what somebody's source does, if it is the one that is loaded.
    Diff,
    /// systemd unit text: what the next start will be given.
    Unit,
    /// A launch command as somebody wrote it down.
    Command,
    /// The command line of a running process (`/proc/PID/cmdline`).
    Process,
    /// A process environment (`/proc/PID/environ`, or the output of `env`).
    Environment,
    /// Files that a running process has mapped (`/proc/PID/maps`).
    Maps,
    /// What the server wrote when it started and ran.
    Log,
    /// `/server_info`: what the server resolved its arguments to.
    ServerInfo,
    /// `/server_info`, the schedulers' own state: what is in effect now.
    Scheduler,
}

impl Kind {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Diff => "diff",
            Self::Unit => "unit",
            Self::Command => "command",
            Self::Process => "process command line",
            Self::Environment => "environment",
            Self::Maps => "mapped files",
            Self::Log => "log",
            Self::ServerInfo => "server_info",
            Self::Scheduler => "scheduler state",
        }
    }
}

/// Where a fact was seen: source, file, line and the words themselves, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Kind of the source.
    pub source: Kind,
    /// File as it was given.
    pub file: String,
    /// Line, from 1; in NUL-separated files the entry.
    pub line: usize,
    /// The words, cut and on one line.
    pub text: String,
}

impl Evidence {
    pub(crate) fn new(source: Kind, file: &str, line: usize, text: &str) -> Self {
        Self { source, file: Plain(file).to_string(), line, text: shown(text) }
    }

    /// `FILE:LINE`.
    pub fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

/// A text from a file as a part of one line: secrets hidden, control characters escaped, cut.
pub(crate) fn shown(text: &str) -> String {
    let hidden = secrets::hide(text.trim());
    let plain = Plain(&hidden).to_string();
    match plain.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{}...", &plain[..cut]),
        None => plain,
    }
}
