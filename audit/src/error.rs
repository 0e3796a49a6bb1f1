//! Why an audit ends without a verdict.

/// Result with the error of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of the run itself. A candidate that is too far off is a verdict, never an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Bad arguments or a bad file.
    #[error(transparent)]
    Model(#[from] karat_model::Error),
    /// A path could not do what it was asked.
    #[error(transparent)]
    Seam(karat_seam::Error),
    /// The run was interrupted from outside.
    #[error("interrupted")]
    Interrupted,
    /// The cache lost streams that it had. The loop starts again without it; nobody else sees this.
    #[error("the cache lost an entry while it was used")]
    CacheGap,
    /// The machine refused something (threads).
    #[error("{0}")]
    Machine(String),
}

impl From<karat_seam::Error> for Error {
    /// Keeps an error of the model crate that came through the seam, with its kind.
    fn from(error: karat_seam::Error) -> Self {
        match error {
            karat_seam::Error::Interrupted => Self::Interrupted,
            karat_seam::Error::Source(source) => match source.downcast::<karat_model::Error>() {
                Ok(model) => Self::Model(*model),
                Err(other) => Self::Seam(karat_seam::Error::Source(other)),
            },
            other => Self::Seam(other),
        }
    }
}
