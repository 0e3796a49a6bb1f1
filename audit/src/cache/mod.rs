//! A cache on disk of what runs left: golden's blocks, streams at layer boundaries, comparisons. Entries are named by
//! the hash of everything that they follow from, and hold a checksum of what they hold.
//!
//! Several processes may use one folder: an entry is written under a temporary name and renamed when it is whole, and
//! one that is gone or damaged is computed again. What the folder may hold is bounded; what was not used for longest
//! goes first. A failure to write never fails a run: it is said, and the run goes on without.

mod bytes;
mod code;
mod entry;
mod key;
mod room;
mod store;
mod tensors;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use karat_bundle::CacheUse;
use karat_model::Plain;

pub(crate) use bytes::{Reader, Writer};
pub(crate) use key::{Hash, Key};
pub(crate) use tensors::{read_recorder, read_streams, read_tensor, write_recorder, write_streams, write_tensor};

/// Folder inside the cache folder; another layout gets another name, and so never reads these entries.
const LAYOUT: &str = "audit-1";

/// Bytes that the folder may hold when nothing else is asked for.
pub const DEFAULT_LIMIT: u64 = 4 << 30;

/// A cache folder, open.
pub struct Cache {
    /// `DIR/audit-1`
    dir: PathBuf,
    limit: u64,
    /// Hash of the program: a change of any code makes other keys.
    code: Hash,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes in the folder at the last look, and written by this run since.
    held: u64,
    written: u64,
    used: CacheUse,
}

/// What kind of entry was looked for, for the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What comparing a candidate in a block left.
    Comparison,
    /// What golden shows and gives out in a block.
    Golden,
    /// Anything else; not counted.
    Other,
}

/// What is in a cache folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holding {
    /// Whole entries.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Cache {
    /// Opens (and makes) a cache folder that holds at most `limit` bytes. The error is a sentence for people: a run
    /// without a cache has the same result, so it is no reason to end.
    pub fn open(dir: &Path, limit: u64) -> Result<Self, String> {
        let Some(code) = code::of_this_program() else {
            return Err("the program cannot read itself, so it cannot tell its results from those of another".into());
        };
        let inner = dir.join(LAYOUT);
        let shown = Plain(&dir.display().to_string()).to_string();
        fs::create_dir_all(&inner).map_err(|e| format!("{shown} cannot be made: {e}"))?;
        let held = room::holding(&inner).bytes;
        let used = CacheUse { on: true, ..CacheUse::default() };
        let state = Mutex::new(State { held, used, ..State::default() });
        Ok(Self { dir: inner, limit, code, state })
    }

    /// What a cache folder holds (nothing when there is none).
    pub fn holding(dir: &Path) -> Holding {
        room::holding(&dir.join(LAYOUT))
    }

    /// What this run took from the cache and gave to it.
    pub fn used(&self) -> CacheUse {
        self.state().used.clone()
    }

    /// A key that changes with the program.
    pub(crate) fn key(&self, what: &str) -> Key {
        Key::new(what).part("code", &self.code)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic while counting leaves counts that are still counts.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
