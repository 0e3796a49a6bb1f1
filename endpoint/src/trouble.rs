//! Why a request has no answer.

use std::fmt;
use std::time::Duration;

use karat_model::{Error, Plain};

/// Why a request has no answer, by what follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The surroundings: no connection, a time-out, a cut stream, 408, 425, 429 or 5xx. Says nothing of the model; another try
    /// may go well. The wait that the server asked for, if it did.
    Infra(String, Option<Duration>),
    /// The server won't: any other 4xx or a redirect. The command has to change.
    Refused(String),
    /// What came is not what the API says.
    Malformed(String),
    /// The person at the keyboard stopped the run.
    Stopped,
}

impl Trouble {
    /// Infra without a wait.
    pub fn infra(what: impl Into<String>) -> Self {
        Self::Infra(what.into(), None)
    }

    /// Malformed.
    pub fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed(what.into())
    }

    /// True when the same request may go well later.
    pub fn is_infra(&self) -> bool {
        matches!(self, Self::Infra(..))
    }

    /// As the error of a command, for what ends one.
    pub fn into_error(self, place: &str) -> Error {
        match self {
            Self::Refused(what) => Error::usage(what).at(place),
            Self::Infra(what, _) | Self::Malformed(what) => Error::input(what).at(place),
            Self::Stopped => Error::usage("stopped").at(place),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Infra(what, _) | Self::Refused(what) | Self::Malformed(what) => Plain(what).fmt(f),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// Result of a request.
pub(crate) type Result<T> = std::result::Result<T, Trouble>;
