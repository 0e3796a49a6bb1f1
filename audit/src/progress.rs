//! How far a run is, and whether it should stop.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

/// Hears how far a run is.
pub trait Progress: Sync {
    /// `done` of `total` steps are done; `what` comes next.
    fn step(&self, done: u64, total: u64, what: &str);
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn step(&self, _: u64, _: u64, _: &str) {}
}

/// Counts steps and looks at the stop flag before each.
pub(crate) struct Steps<'a> {
    progress: &'a dyn Progress,
    stop: &'a AtomicBool,
    done: u64,
    total: u64,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(progress: &'a dyn Progress, stop: &'a AtomicBool, total: u64) -> Self {
        Self { progress, stop, done: 0, total }
    }

    /// Announces the next step, or ends the run.
    pub(crate) fn next(&mut self, what: &str) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        self.progress.step(self.done, self.total, what);
        self.done += 1;
        Ok(())
    }
}
