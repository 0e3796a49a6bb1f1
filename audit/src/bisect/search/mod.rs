//! The searches themselves: which questions to ask, and what follows from the answers. No numbers, no paths, no commands:
//! whoever searches gives a function that answers.

mod axis;
mod noise;
mod sets;

pub use axis::{Turn, first_bad};
pub use noise::{Noise, steady};
pub use sets::{Ask, Minimal, minimal};

/// An answer to a question, with the words of `git bisect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// What is looked for does not show.
    Good,
    /// It shows.
    Bad,
    /// This cannot be tested.
    Skip,
}

impl Answer {
    /// The word in replay files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Skip => "skip",
        }
    }

    /// The answer with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Good, Self::Bad, Self::Skip].into_iter().find(|a| a.name() == name)
    }
}

#[cfg(test)]
mod tests;
