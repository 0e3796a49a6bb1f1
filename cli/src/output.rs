//! The only place that writes to stdout and stderr.

mod terminal;

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::Mutex;

/// Why a result could not be written, if one could not.
static LOST: Mutex<Option<String>> = Mutex::new(None);

/// Writes a result to stdout. A reader that has gone away is no error; anything else is kept for [`lost`].
pub(crate) fn stdout(text: &str) {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written =
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes())).and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
        && let Ok(mut lost) = LOST.lock()
    {
        *lost = Some(error.to_string());
    }
}

/// Writes a page for people: folded to the terminal's width, and nothing in it commands the terminal or a log but the
/// colours of [`Style`]. Names in it are other people's.
pub(crate) fn page(text: &str) {
    let is_terminal = std::io::stdout().is_terminal();
    let width = if is_terminal { terminal::width() } else { None };
    let in_actions = std::env::var_os("GITHUB_ACTIONS").is_some();
    stdout(&terminal::page(text, width, Style::of_stdout().colour, in_actions));
}

/// Why a result could not be written to stdout: a full disk must not look like a run that passed.
pub(crate) fn lost() -> Option<String> {
    LOST.lock().ok().and_then(|lost| lost.clone())
}

/// Writes one line to stderr.
pub(crate) fn stderr(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Writes a json result to stdout.
pub(crate) fn json(value: &serde_json::Value) {
    stdout(&serde_json::to_string_pretty(value).unwrap_or_default());
}

/// A json number, or a string where json has none.
pub(crate) fn json_number(value: f64) -> serde_json::Value {
    if value.is_finite() { serde_json::json!(value) } else { serde_json::json!(format!("{value:?}")) }
}

/// Colours, on a terminal that did not ask for none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    colour: bool,
}

impl Style {
    /// For stdout.
    pub(crate) fn of_stdout() -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self { colour: std::io::stdout().is_terminal() && !no_color }
    }

    /// None, for a file.
    pub(crate) fn plain() -> Self {
        Self { colour: false }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// A verdict in its colour.
    pub(crate) fn verdict(self, exit: u8, text: &str) -> String {
        self.paint(
            if exit == 0 {
                "1;32"
            } else if exit == 1 {
                "1;31"
            } else {
                "1;33"
            },
            text,
        )
    }

    /// A heading.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }
}
