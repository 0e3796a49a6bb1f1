//! Why a bundle cannot be read or written.

use std::path::PathBuf;

/// Result with the error of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// One clear message: which file, what was expected, what was found, what to try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the bundle cannot be read.
    #[error("{path}: cannot be read: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The folder is no bundle, or half of one.
    #[error("{path}: {why}; {hint}", path = path.display())]
    NotWhole {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What to try.
        hint: String,
    },
    /// A cell or a line of a table is not what its column says.
    #[error("{path}, line {line}: {why}", path = path.display())]
    Table {
        /// The csv file.
        path: PathBuf,
        /// Line, the header being line 1.
        line: u64,
        /// What was expected and found.
        why: String,
    },
    /// A policy or baseline does not say what it must.
    #[error("{path}, line {line}: {why}", path = path.display())]
    Policy {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What was expected and found.
        why: String,
    },
    /// Bundles that are not the parts of one run.
    #[error("{why}")]
    Parts {
        /// Which, and why.
        why: String,
    },
    /// The place for a new bundle holds something else.
    #[error("{path}: exists and is not a bundle; name another folder or remove this one", path = path.display())]
    InTheWay {
        /// The folder.
        path: PathBuf,
    },
    /// The bundle cannot be written.
    #[error("{path}: cannot be written: {source}", path = path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// True when the arguments are wrong (the place for the output), false when a file is.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::InTheWay { .. } | Self::Write { .. })
    }
}
