//! Any command as the judge of a patch set, with the exit codes of `git bisect run`.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use karat_model::Error as Message;

use super::search::Answer;
use crate::{Error, Result};

/// Name of the environment variable that tells the patch set.
pub const VARIABLE: &str = "KARAT_PATCHES";

/// What stands for the patch set in the command.
const PLACE: &str = "{patches}";

/// A command line for the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// As typed. `{patches}` becomes the patch set, as `--patches` takes it: names with commas, or `none`.
    pub command: String,
    /// Its output goes to stderr; nowhere when false.
    pub shows_output: bool,
}

impl Check {
    /// A command.
    ///
    /// # Errors
    /// Usage: it is empty.
    pub fn new(command: &str, shows_output: bool) -> Result<Self> {
        if command.trim().is_empty() {
            return Err(Message::usage("--check: the command is empty").into());
        }
        Ok(Self { command: command.to_string(), shows_output })
    }

    /// Runs the command for a patch set: 0 is good, 1 bad, 125 skip.
    ///
    /// # Errors
    /// Usage: any other exit code, a signal, or a shell that can't be started, each with the patch set.
    pub fn run(&self, patches: &[String], stop: &AtomicBool) -> Result<Answer> {
        let set = set_name(patches);
        let line = self.command.replace(PLACE, &set);
        let failed = |what: String| Message::usage(what).at(format!("--check, patches {set}"));
        // The result of the search alone goes to stdout.
        let stream = || if self.shows_output { Stdio::from(std::io::stderr()) } else { Stdio::null() };
        let (shell, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
        let mut command = Command::new(shell);
        command.arg(flag).arg(&line).env(VARIABLE, &set).stdin(Stdio::null()).stdout(stream()).stderr(stream());
        let status = command.status().map_err(|e| failed(format!("`{shell}` can't be started")).found(e))?;
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let expected = "0 (good), 1 (bad) or 125 (skip)";
        match status.code() {
            Some(0) => Ok(Answer::Good),
            Some(1) => Ok(Answer::Bad),
            Some(125) => Ok(Answer::Skip),
            Some(code) => {
                let error = failed(format!("`{line}` ended with exit code {code}")).expected(expected);
                Err(match code {
                    126 => error.hint("the shell could not run it: is it executable?"),
                    127 => error.hint("the shell did not find it"),
                    _ => {
                        error.hint("end the command with `|| exit 125` to skip such sets, `|| exit 1` to call them bad")
                    }
                }
                .into())
            }
            None => Err(failed(format!("`{line}` was ended by a signal")).expected(expected).into()),
        }
    }
}

/// A patch set as `--patches` takes it.
pub(crate) fn set_name(patches: &[String]) -> String {
    if patches.is_empty() { "none".to_string() } else { patches.join(",") }
}

/// Checks that names can stand in a command line as they are. They need not be patches that karat knows: the command may
/// drive another engine.
///
/// # Errors
/// Usage: an empty name, one with a character that a shell could read as something else, or one that is there twice.
pub fn check_names(patches: &[String]) -> Result<()> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.:=+/@".contains(c);
    for (i, name) in patches.iter().enumerate() {
        if name.is_empty() || name == "none" || name.starts_with('-') || !name.chars().all(fine) {
            return Err(Message::usage("a patch's name must do in a command line as it is")
                .at("--patches")
                .expected("letters, digits and any of -_.:=+/@")
                .found(format!("`{name}`"))
                .into());
        }
        if patches[..i].contains(name) {
            return Err(Message::usage("patch is named twice").at(format!("patch {name}")).into());
        }
    }
    Ok(())
}
