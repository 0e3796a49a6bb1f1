//! Commands and options of later versions: known by name, so that the message can say that they are not here yet.

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Commands of later versions.
#[derive(Debug, Subcommand)]
#[command(hide = true)]
pub(crate) enum Later {
    #[command(hide = true)]
    Op(Anything),
    #[command(hide = true)]
    Bench(Anything),
}

/// Any arguments.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Anything {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) rest: Vec<String>,
}

impl Later {
    fn name(&self) -> &'static str {
        match self {
            Self::Op(_) => "op",
            Self::Bench(_) => "bench",
        }
    }

    /// The refusal.
    pub(crate) fn refuse(&self) -> Failure {
        not_yet(&format!("karat {}", self.name()))
    }
}

/// A refusal that names the version.
pub(crate) fn not_yet(what: &str) -> Failure {
    Failure::usage(format!("`{what}` is not in this version ({}); see `karat --help`", env!("CARGO_PKG_VERSION")))
}

/// Refuses options of later versions that were given.
pub(crate) fn refuse_given(given: &[(&str, bool)]) -> Result<(), Failure> {
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(not_yet(name)),
        None => Ok(()),
    }
}
