//! Names of entries: a hash over everything that the entry follows from, each part with its name and length.

use sha2::{Digest, Sha256};

/// A sha256.
pub(crate) type Hash = [u8; 32];

/// A key in the making.
#[derive(Clone)]
pub(crate) struct Key(Sha256);

impl Key {
    pub(crate) fn new(what: &str) -> Self {
        Self(Sha256::new()).part("karat cache", what.as_bytes())
    }

    /// Adds a part. Lengths go in too: two lists of parts never make the same bytes.
    pub(crate) fn part(mut self, name: &str, bytes: &[u8]) -> Self {
        for bytes in [name.as_bytes(), bytes] {
            self.0.update((bytes.len() as u64).to_le_bytes());
            self.0.update(bytes);
        }
        self
    }

    /// Adds what a value's `Debug` shows (all fields of the types that are given here).
    pub(crate) fn shown(self, name: &str, value: &dyn std::fmt::Debug) -> Self {
        self.part(name, format!("{value:?}").as_bytes())
    }

    pub(crate) fn finish(self) -> Hash {
        self.0.finalize().into()
    }
}

/// sha256 of some bytes.
pub(crate) fn of(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}
