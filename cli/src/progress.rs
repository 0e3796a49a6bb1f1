//! Progress on stderr: a bar on a terminal, a line now and then otherwise, nothing with `--quiet`.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::Globals;
use crate::output;

/// A line at most this often.
const EVERY: Duration = Duration::from_secs(5);

/// Where progress goes.
pub(crate) enum Progress {
    Bar(ProgressBar),
    Lines(Mutex<Instant>),
    Nothing,
}

impl Progress {
    pub(crate) fn new(globals: Globals) -> Self {
        if globals.quiet {
            return Self::Nothing;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines(Mutex::new(Instant::now()));
        }
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}") {
            bar.set_style(style);
        }
        Self::Bar(bar)
    }

    /// `done` of `total` are done.
    pub(crate) fn show(&self, done: u64, total: u64, what: &str) {
        match self {
            Self::Bar(bar) => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(what.to_string());
            }
            Self::Lines(last) => {
                let Ok(mut last) = last.lock() else { return };
                if last.elapsed() >= EVERY {
                    *last = Instant::now();
                    output::stderr(&format!("{done}/{total} {what}"));
                }
            }
            Self::Nothing => {}
        }
    }

    /// Takes the bar away before the result is printed.
    pub(crate) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

impl karat_audit::Progress for Progress {
    fn step(&self, done: u64, total: u64, what: &str) {
        self.show(done, total, what);
    }
}
