//! The error that people read: what, where, expected, found, what to try.

use std::fmt;

use serde::Serialize;

/// Result with the error of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Which exit code an error ends in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorKind {
    /// Arguments, policy or config contradict each other: exit 2.
    Usage,
    /// A file is unreadable, truncated or inconsistent: exit 3.
    Input,
}

/// One clear message (its optional parts are boxed: every `Result` carries its size). `what` is a sentence fragment, `place` names file, tensor, field or line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Error {
    /// Which exit code it ends in.
    pub kind: ErrorKind,
    /// What went wrong.
    pub what: String,
    /// File, tensor, field or line; empty when there is none.
    pub place: String,
    /// What was expected.
    pub expected: Option<Box<str>>,
    /// What was found.
    pub found: Option<Box<str>>,
    /// What to try.
    pub hint: Option<Box<str>>,
}

impl Error {
    /// An input error.
    pub fn input(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Input, what)
    }

    /// A usage error.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, what)
    }

    fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), place: String::new(), expected: None, found: None, hint: None }
    }

    /// Names the file, tensor, field or line. Called again, it puts the outer place before the inner one.
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.place = if self.place.is_empty() { place.to_string() } else { format!("{place}: {}", self.place) };
        self
    }

    /// What was expected.
    pub fn expected(mut self, expected: impl fmt::Display) -> Self {
        self.expected = Some(expected.to_string().into());
        self
    }

    /// What was found.
    pub fn found(mut self, found: impl fmt::Display) -> Self {
        self.found = Some(found.to_string().into());
        self
    }

    /// What to try.
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string().into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.what)?;
        match (&self.expected, &self.found) {
            (Some(e), Some(g)) => write!(f, ": expected {e}, found {g}")?,
            (Some(e), None) => write!(f, ": expected {e}")?,
            (None, Some(g)) => write!(f, ": found {g}")?,
            (None, None) => {}
        }
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
