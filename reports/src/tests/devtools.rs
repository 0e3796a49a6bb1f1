//! Chromium by its DevTools protocol, over a pipe: no library, no port.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_mins(1);

/// A browser with one page.
pub(super) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    next: u64,
    /// What happened meanwhile.
    pub(super) events: VecDeque<Value>,
}

/// `$KARAT_CHROMIUM`, or the first of the usual names on the path.
pub(super) fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("KARAT_CHROMIUM") {
        return Some(named.into());
    }
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome-headless-shell"];
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file())
}

impl Browser {
    pub(super) fn start(program: &Path, profile: &Path) -> Self {
        // The protocol speaks on descriptors 3 and 4, which only a shell can hand on without unsafe code.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .arg(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell starts");
        let to = child.stdin.take().expect("a pipe");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let (send, from) = channel();
        std::thread::spawn(move || {
            loop {
                let mut message = Vec::new();
                let n = out.read_until(0, &mut message).unwrap_or(0);
                let Some(value) = message.strip_suffix(&[0]).and_then(|m| serde_json::from_slice(m).ok()) else {
                    return;
                };
                if n == 0 || send.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self { child, to, from, session: String::new(), next: 0, events: VecDeque::new() };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attached = browser.call("Target.attachToTarget", &json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = attached["sessionId"].as_str().expect("a session").to_string();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Calls a method and waits for its result.
    pub(super) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let text = format!("{message}\0");
        self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush()).expect("the browser listens");
        loop {
            let answer = self.wait();
            if answer["id"] == json!(self.next) {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    /// The next message; events are kept as well.
    fn wait(&mut self) -> Value {
        let message = self.from.recv_timeout(PATIENCE).expect("the browser answers");
        if message["method"].is_string() {
            self.events.push_back(message.clone());
        }
        message
    }

    /// Opens a file and waits until it is loaded.
    pub(super) fn open(&mut self, page: &Path) {
        self.events.clear();
        self.call("Page.navigate", &json!({"url": format!("file://{}", page.display())}));
        while !self.events.iter().any(|e| e["method"] == "Page.loadEventFired") {
            self.wait();
        }
    }

    /// The value of an expression.
    pub(super) fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", &asked);
        assert!(result["exceptionDetails"].is_null(), "{}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Presses a key.
    pub(super) fn press(&mut self, key: &str, code: u64, text: &str) {
        let of =
            |kind: &str| json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
        let down = if text.is_empty() { of("rawKeyDown") } else { of("keyDown") };
        self.call("Input.dispatchKeyEvent", &down);
        self.call(
            "Input.dispatchKeyEvent",
            &json!({"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code}),
        );
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
