//! Scenarios that come with the program.

use karat_model::{Error, Result};

use crate::Scenario;

/// A scenario that comes with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builtin {
    /// Its name on the command line.
    pub name: &'static str,
    /// The file.
    pub toml: &'static str,
}

const ALL: [Builtin; 1] = [Builtin { name: "tic-tac-toe", toml: include_str!("../library/tic-tac-toe.toml") }];

/// All of them, in the order in which they run.
pub fn list() -> &'static [Builtin] {
    &ALL
}

impl Scenario {
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
