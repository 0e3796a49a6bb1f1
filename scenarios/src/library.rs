//! Scenarios that come with the program.

use karat_model::{Error, Result};

use crate::{Content, Scenario};

/// A scenario that comes with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builtin {
    /// Its name on the command line.
    pub name: &'static str,
    /// The file.
    pub toml: &'static str,
    /// It takes minutes, so it runs only when it is named.
    pub long: bool,
}

macro_rules! library {
    ($($name:literal $($long:ident)?,)+) => {
        const ALL: &[Builtin] = &[$(Builtin {
            name: $name,
            toml: include_str!(concat!("../library/", $name, ".toml")),
            long: library!(@is $($long)?),
        },)+];
    };
    (@is) => { false };
    (@is long) => { true };
}

library! {
    "tic-tac-toe",
    "to-a-file",
    "chunked-tools" long,
    "turn-two",
    "own-answer",
    "needle-2k",
    "needle-8k",
    "needle-16k" long,
    "needle-32k" long,
    "recall-2k",
    "recall-8k",
    "recall-32k" long,
    "length-phase",
    "fact-edges",
    "chunk-edge" long,
    "chunk-phase" long,
    "tool-result",
    "thinking-kept",
    "thinking-dropped",
    "shared-prefix",
    "corrections",
    "latest-value",
    "long-corrections" long,
    "tally",
    "burst",
    "long-answer",
    "strata",
}

/// All of them, in the order in which they run.
pub fn list() -> &'static [Builtin] {
    ALL
}

/// The one that an audit runs when none is named.
pub fn story() -> &'static Builtin {
    &ALL[0]
}

impl Content {
    /// One of them by name.
    pub fn builtin(name: &str) -> Result<Self> {
        let found = list().iter().find(|b| b.name == name).ok_or_else(|| {
            let names: Vec<&str> = list().iter().map(|b| b.name).collect();
            Error::usage("no scenario of this name comes with the program")
                .expected(format!("{}, or the path of a .toml file", names.join(", ")))
                .found(format!("{name:?}"))
        })?;
        Self::from_toml(name, &format!("{name}.toml"), found.toml)
    }
}

impl Scenario {
    /// A written one of them by name.
    pub fn builtin(name: &str) -> Result<Self> {
        Content::builtin(name)?.one().map_err(|e| e.at(name))
    }
}
