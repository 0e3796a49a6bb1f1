//! A server that karat starts and stops itself.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::trouble::{Result, Trouble};

/// Groups that were started and not ended yet.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Ends every server that this process started, by force: for a process that itself ends at once, wherever it is.
pub fn end_all() {
    for group in RUNNING.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        signal(group, "KILL");
    }
}

/// Signals a process group.
fn signal(group: u32, name: &str) {
    if cfg!(unix) {
        let quiet = Command::new("kill")
            .args([&format!("-{name}"), "--", &format!("-{group}")])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
        drop(quiet);
    }
}

/// How a server is started.
#[derive(Debug, Clone)]
pub struct Start {
    /// Program and arguments; no shell.
    pub command: Vec<String>,
    /// Variables beside those of karat's own environment.
    pub env: Vec<(String, String)>,
    /// Path that answers with 2xx once the server is well.
    pub health: String,
    /// It must be well within this time.
    pub ready: Duration,
    /// It may take so long to end by itself.
    pub end: Duration,
    /// Where its output goes; nowhere without.
    pub log: Option<PathBuf>,
}

/// A running server: a process group of its own, ended with this value.
#[derive(Debug)]
pub struct Process {
    child: Child,
    end: Duration,
}

impl Process {
    /// Starts a server and waits until it is well.
    ///
    /// # Errors
    /// A refusal when something answers there already or the program can't be started; infra when it ends or isn't well in
    /// time.
    pub fn start(start: &Start, client: &Client<'_>, stop: &AtomicBool) -> Result<Self> {
        if client.is_well(&start.health) {
            let what =
                "something answers there already, and would be measured instead of the server that the file starts";
            return Err(Trouble::Refused(format!("{}: {what}", client.address().label())));
        }
        let (program, arguments) =
            start.command.split_first().ok_or_else(|| Trouble::Refused("the command is empty".to_owned()))?;
        let mut command = Command::new(program);
        command.args(arguments).envs(start.env.iter().cloned()).stdin(Stdio::null());
        match &start.log {
            None => command.stdout(Stdio::null()).stderr(Stdio::null()),
            Some(path) => {
                let open = || File::options().create(true).append(true).open(path);
                let failed =
                    |e| Trouble::Refused(format!("{}: the server's log can't be written: {e}", path.display()));
                command.stdout(open().map_err(failed)?).stderr(open().map_err(failed)?)
            }
        };
        // A group of its own: engines start workers, and a Ctrl-C at karat must not reach them twice.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child =
            command.spawn().map_err(|e| Trouble::Refused(format!("{program}: the server can't be started: {e}")))?;
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).push(child.id());
        let mut process = Self { child, end: start.end };
        let begun = Instant::now();
        loop {
            if client.is_well(&start.health) {
                return Ok(process);
            }
            if let Ok(Some(status)) = process.child.try_wait() {
                return Err(Trouble::infra(format!("{program}: the server ended before it was well ({status})")));
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Trouble::Stopped);
            }
            if begun.elapsed() > start.ready {
                let seconds = start.ready.as_secs();
                return Err(Trouble::infra(format!("{program}: the server was not well within {seconds} s")));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends the process group: by asking, then by force. No other process is touched.
    fn end(&mut self) {
        signal(self.child.id(), "TERM");
        let until = Instant::now() + self.end;
        while Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // Workers of the group may outlive their parent.
        signal(self.child.id(), "KILL");
        let _ = self.child.kill();
        let _ = self.child.wait();
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).retain(|group| *group != self.child.id());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
