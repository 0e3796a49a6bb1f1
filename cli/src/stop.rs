//! Ctrl-C, and what ends a process by asking (SIGTERM, SIGHUP): the first ends the run between two layers, with exit code 130
//! and nothing half-written; the second at once. Either way a server that was started for the run ends with it.
#![expect(clippy::exit, reason = "a second interrupt ends the process wherever it is")]

use std::sync::atomic::{AtomicBool, Ordering};

use crate::output;

static STOP: AtomicBool = AtomicBool::new(false);

/// Takes over the interrupt signal and gives the flag that it sets. Only for commands that look at the flag.
pub(crate) fn on_interrupt() -> &'static AtomicBool {
    let handler = || {
        if STOP.swap(true, Ordering::Relaxed) {
            karat_endpoint::end_all();
            std::process::exit(130);
        }
        output::stderr("interrupted: stopping after this step; press again to stop at once");
    };
    // Where no handler can be set, Ctrl-C ends the process as it always does.
    let _ = ctrlc::set_handler(handler);
    &STOP
}
