//! What a long command asks of the test that it runs: where results are kept, and for how long it may go on.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::Kept;

/// File of kept results: set by `cargo xtask faults` with `--sizes` or `--pairs`.
const KEPT: &str = "KARAT_FAULTS_KEPT";
/// Seconds after which no new pass is begun.
const SECONDS: &str = "KARAT_FAULTS_SECONDS";
/// Number of pairs, and the seed that draws them.
const PAIRS: &str = "KARAT_FAULTS_PAIRS";
const PAIRS_SEED: &str = "KARAT_FAULTS_SEED";

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A long command.
pub(crate) struct Long(PathBuf);

impl Long {
    /// `None` in an ordinary test run.
    pub(crate) fn of_environment() -> Option<Self> {
        std::env::var_os(KEPT).map(|file| Self(file.into()))
    }

    pub(crate) fn kept(&self) -> Kept {
        Kept::open(&self.0)
    }

    pub(crate) fn limit() -> Duration {
        number(SECONDS).map_or(Duration::MAX, Duration::from_secs)
    }

    /// How many pairs, drawn by which seed.
    pub(crate) fn pairs() -> (usize, u64) {
        (number(PAIRS).unwrap_or(50) as usize, number(PAIRS_SEED).unwrap_or(1))
    }
}

/// One line of progress; a closed stderr is no reason to end.
pub(crate) fn progress(start: Instant, text: &str) {
    let _ = writeln!(std::io::stderr(), "{:5.0} s: {text}", start.elapsed().as_secs_f64());
}
