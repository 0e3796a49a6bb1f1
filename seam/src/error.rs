//! What can go wrong across the seam.

/// Result of a call across the seam.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of a path. It is always about one run: bad input has been refused before a path exists.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path cannot do this at all (an imported trace has no ops; a layer that a trace does not hold).
    #[error("{by} does not support {what}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// The path that was asked.
        by: String,
    },
    /// A tensor does not have the shape that the op needs.
    #[error("{at}: expected shape {expected:?}, found {found:?}")]
    Shape {
        /// Op or tap, with its layer.
        at: String,
        /// Shape that the op needs.
        expected: Vec<usize>,
        /// Shape that it was given.
        found: Vec<usize>,
    },
    /// A tensor does not have the element type that the op needs.
    #[error("{at}: expected {expected} values, found {found}")]
    Dtype {
        /// Op or tap, with its layer.
        at: String,
        /// Element type that the op needs.
        expected: &'static str,
        /// Element type that it was given.
        found: &'static str,
    },
    /// The caller's request contradicts itself or the model (rows out of order, an id past the vocabulary).
    #[error("{0}")]
    Request(String),
    /// The run was interrupted from outside (a signal, a budget).
    #[error("interrupted")]
    Interrupted,
    /// An error of the crate behind the path, kept whole so that the command line can still see its kind.
    #[error(transparent)]
    Source(#[from] Box<dyn std::error::Error + Send + Sync + 'static>),
}

impl Error {
    /// Wraps another crate's error without losing it.
    pub fn source(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Source(Box::new(error))
    }
}
