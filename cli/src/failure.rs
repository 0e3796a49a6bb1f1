//! Errors as people see them: one message, one exit code.

use karat_model::{ErrorKind, Plain};

use crate::output;

/// Exit code of a failure of the surroundings that another try may not have.
const RETRY: u8 = 75;
/// Exit code of a bug in karat (EX_SOFTWARE).
const BUG: u8 = 70;

/// Why a command has no result.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Exit code.
    pub(crate) exit: u8,
    message: String,
}

/// Result of a command.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Arguments contradict each other: exit 2.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: 2, message: Plain(&message.into()).to_string() }
    }

    /// The result could not be written to stdout.
    pub(crate) fn output(why: &str) -> Self {
        Self { exit: RETRY, message: format!("the result can't be written to stdout: {why}") }
    }

    /// The surroundings failed, and another try may go well.
    pub(crate) fn retry(message: &str) -> Self {
        Self { exit: RETRY, message: Plain(message).to_string() }
    }

    /// The run was stopped at the keyboard.
    pub(crate) fn interrupted() -> Self {
        Self { exit: 130, message: "interrupted".to_owned() }
    }

    /// A panic.
    pub(crate) fn bug(said: &str) -> Self {
        let message = format!("this is a bug in karat: {}; please report it with the command line", Plain(said));
        Self { exit: BUG, message }
    }

    /// What it says.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Prints it once: on stderr, and with --json as an object on stdout too.
    pub(crate) fn print(&self, json: bool) {
        output::stderr(&format!("error: {}", self.message));
        if json {
            output::json(&serde_json::json!({"error": self.message, "exit_code": self.exit}));
        }
    }
}

impl From<karat_model::Error> for Failure {
    fn from(error: karat_model::Error) -> Self {
        let exit = match error.kind {
            ErrorKind::Usage => 2,
            ErrorKind::Input => 3,
        };
        Self { exit, message: error.to_string() }
    }
}

impl From<karat_audit::Error> for Failure {
    fn from(error: karat_audit::Error) -> Self {
        match error {
            karat_audit::Error::Model(error) => error.into(),
            karat_audit::Error::Seam(error) => Self::bug(&error.to_string()),
            karat_audit::Error::Interrupted => Self { exit: 130, message: error.to_string() },
            karat_audit::Error::CacheGap => Self::bug(&error.to_string()),
            karat_audit::Error::Machine(message) => Self::usage(message),
        }
    }
}

impl From<karat_seam::Error> for Failure {
    fn from(error: karat_seam::Error) -> Self {
        karat_audit::Error::from(error).into()
    }
}

impl From<karat_bundle::Error> for Failure {
    fn from(error: karat_bundle::Error) -> Self {
        let message = Plain(&error.to_string()).to_string();
        Self { exit: if error.is_usage() { 2 } else { 3 }, message }
    }
}
