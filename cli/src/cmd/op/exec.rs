//! Runs somebody's program on a file of operands. What it does wrong is told in one message, exit code 75.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use karat_model::Plain;

use crate::args::Globals;
use crate::failure::{Failure, Result};
use crate::{output, stop};

/// Characters of what the program said last that are shown.
const SAID: usize = 300;

/// A command line for the shell.
pub(super) struct Command {
    line: String,
}

impl Command {
    /// As typed.
    pub(super) fn new(line: &str) -> Result<Self> {
        if line.trim().is_empty() {
            return Err(Failure::usage("--exec: the command is empty"));
        }
        let has = [line.contains("{in}"), line.contains("{out}")];
        if has[0] != has[1] {
            return Err(Failure::usage("--exec: name both {in} and {out}, or neither (the two paths then come last)"));
        }
        Ok(Self { line: line.to_owned() })
    }

    fn with(&self, given: &Path, made: &Path) -> String {
        let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
        let (given, made) = (quoted(given), quoted(made));
        if self.line.contains("{in}") {
            return self.line.replace("{in}", &given).replace("{out}", &made);
        }
        format!("{} {given} {made}", self.line)
    }

    /// Writes the operands, runs the program, reads its results before its folder goes away.
    pub(super) fn run<A>(
        &self,
        given: &[u8],
        limit: Duration,
        globals: Globals,
        read: impl FnOnce(&Path) -> Result<A>,
    ) -> Result<A> {
        let folder = Folder::new()?;
        let [input, made, log] = ["in.safetensors", "out.safetensors", "log"].map(|name| folder.0.join(name));
        fs::write(&input, given).map_err(io("the operands can't be written to the folder for temporary files"))?;
        let said = File::create(&log).map_err(io("no log can be written"))?;
        let twin = said.try_clone().map_err(io("no log can be written"))?;
        let line = self.with(&input, &made);
        let (shell, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
        let mut process = Process::new(shell);
        process.arg(flag).arg(&line).stdin(Stdio::null()).stdout(said).stderr(twin);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut process, 0);
        let child = process.spawn().map_err(io(&format!("`{shell}` can't be started")))?;
        let failed =
            |what: String| Failure::retry(&format!("--exec `{}`: {what}{}", Plain(&self.line), last_words(&log)));
        let status = wait(child, limit, || failed(format!("it took longer than {} s (--timeout)", limit.as_secs())))?;
        if !globals.quiet && !globals.json {
            show(&log);
        }
        match status.code() {
            Some(0) => {}
            Some(127) => return Err(failed("the shell did not find it (exit code 127)".into())),
            Some(126) => return Err(failed("the shell could not run it: is it executable? (exit code 126)".into())),
            Some(code) => return Err(failed(format!("it ended with exit code {code}"))),
            None => return Err(failed("it was ended by a signal".into())),
        }
        read(&made).map_err(|error| {
            // The folder is gone by the time that somebody reads this.
            let place = made.display().to_string();
            failed(error.message().replace(&place, "{out}"))
        })
    }
}

/// The machine's part went wrong.
fn io(what: &str) -> impl Fn(std::io::Error) -> Failure + use<'_> {
    move |e| Failure::retry(&format!("--exec: {what}: {e}"))
}

/// Waits; at the limit or at an interrupt everything that was started ends.
fn wait(mut child: Child, limit: Duration, late: impl FnOnce() -> Failure) -> Result<ExitStatus> {
    let (start, stopped) = (Instant::now(), stop::on_interrupt());
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                // What it left running in the background ends too: it could still write the file that is read now.
                end(&mut child);
                return Ok(status);
            }
            Ok(None) => {}
            Err(e) => return Err(Failure::retry(&format!("--exec: it can't be waited for: {e}"))),
        }
        let interrupted = stopped.load(Ordering::Relaxed);
        if interrupted || start.elapsed() >= limit {
            end(&mut child);
            let _ = child.wait();
            return Err(if interrupted { Failure::interrupted() } else { late() });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Ends the program's process group by force.
fn end(child: &mut Child) {
    if cfg!(unix) {
        let group = format!("-{}", child.id());
        let quiet = Stdio::null;
        let kill =
            Process::new("kill").args(["-KILL", "--", &group]).stdin(quiet()).stdout(quiet()).stderr(quiet()).status();
        drop(kill);
    } else {
        let _ = child.kill();
    }
}

/// What the program printed, to stderr.
fn show(log: &Path) {
    let text = String::from_utf8_lossy(&head(log)).into_owned();
    for line in text.lines() {
        output::stderr(&Plain(line).to_string());
    }
}

/// The last line that it printed, for the message.
fn last_words(log: &Path) -> String {
    let text = String::from_utf8_lossy(&tail(log)).into_owned();
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    last.map_or_else(String::new, |line| format!("; it said: {}", line.chars().take(SAID).collect::<String>()))
}

/// The first 64 KiB of a log.
fn head(log: &Path) -> Vec<u8> {
    use std::io::Read;
    let mut out = Vec::new();
    if let Ok(file) = File::open(log) {
        let _ = file.take(1 << 16).read_to_end(&mut out);
    }
    out
}

/// The last 4 KiB.
fn tail(log: &Path) -> Vec<u8> {
    use std::io::{Read, Seek, SeekFrom};
    let mut out = Vec::new();
    if let Ok(mut file) = File::open(log) {
        let length = file.metadata().map_or(0, |meta| meta.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(4096)));
        let _ = file.take(4096).read_to_end(&mut out);
    }
    out
}

/// A new folder for temporary files that nobody else reads, gone with this value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut last = None;
        for _ in 0..100 {
            let name = format!("karat-op-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            let mut builder = fs::DirBuilder::new();
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            match builder.create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(e) => last = Some(e),
            }
        }
        let why = last.map_or_else(String::new, |e| e.to_string());
        Err(Failure::retry(&format!("--exec: no folder for temporary files can be made: {why}")))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
