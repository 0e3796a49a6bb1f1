//! Requests over HTTP/1.1: bounded in time and size, every failure put where it belongs.

use std::io::{BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::http::StatusCode;
use ureq::{Agent, Body, BodyReader};

use crate::address::Address;
use crate::sse::Events;
use crate::trouble::{Result, Trouble};

/// Bytes of one answer at most.
const MOST: u64 = 512 << 20;
/// Bytes of an error's text that are read.
const TEXT: u64 = 4096;
/// Longest wait that a server may ask for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a client deals with a server.
#[derive(Debug, Clone, Copy)]
pub struct Manners<'a> {
    /// A whole request, its answer read, may take so long.
    pub timeout: Duration,
    /// A request that failed by the surroundings is sent so many times more.
    pub retries: u32,
    /// The first wait before another try; it doubles.
    pub wait: Duration,
    /// Set when the run should stop.
    pub stop: &'a AtomicBool,
}

/// A client of one server.
#[derive(Debug)]
pub struct Client<'a> {
    address: Address,
    key: Option<String>,
    agent: Agent,
    manners: Manners<'a>,
}

impl<'a> Client<'a> {
    /// A client. `key` is sent as a bearer token, and cut out of every text that the server sends back.
    pub fn new(address: Address, key: Option<String>, manners: Manners<'a>) -> Self {
        // What is measured is the endpoint that was named: no proxy from the environment, no redirect, no connection that an
        // earlier request left open (closing a stream must be seen by the server).
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(0)
            .max_response_header_size(64 << 10)
            .timeout_global(Some(manners.timeout))
            .timeout_connect(Some(manners.timeout.min(Duration::from_secs(10))))
            .user_agent(format!("karat/{}", env!("CARGO_PKG_VERSION")))
            .build();
        Self { address, key: key.filter(|k| !k.is_empty()), agent: config.into(), manners }
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// `GET path` as JSON.
    pub fn get(&self, path: &str) -> Result<Value> {
        json(&self.send(path, None)?.1)
    }

    /// `GET path`: true when it answers with 2xx, whatever it says.
    pub fn is_well(&self, path: &str) -> bool {
        self.open(path, None).is_ok()
    }

    /// `POST path` with a JSON body, as JSON.
    pub fn post(&self, path: &str, body: &Value) -> Result<Value> {
        json(&self.send(path, Some(body))?.1)
    }

    /// `POST path` with a JSON body, as server-sent events. Dropping them closes the connection.
    pub fn stream(&self, path: &str, body: &Value) -> Result<Events> {
        let started = Instant::now();
        let (kind, reader) = self.open(path, Some(body))?;
        if !kind.starts_with("text/event-stream") {
            return Err(Trouble::malformed(format!(
                "POST {path}: a stream was asked for (text/event-stream), the server answered with {kind:?}"
            )));
        }
        Ok(Events::new(BufReader::new(reader), started))
    }

    /// Repeats what failed by the surroundings, with a growing wait, or the one that the server asked for. Gives how often it
    /// was repeated, too.
    pub fn patiently<T>(&self, mut request: impl FnMut() -> Result<T>) -> (Result<T>, u32) {
        let mut tries = 0;
        loop {
            if self.is_stopped() {
                return (Err(Trouble::Stopped), tries);
            }
            match request() {
                Err(Trouble::Infra(_, after)) if tries < self.manners.retries => {
                    let wait = after.unwrap_or(self.manners.wait * 2_u32.pow(tries.min(10))).min(PATIENCE);
                    self.sleep(wait);
                    tries += 1;
                }
                result => return (result, tries),
            }
        }
    }

    /// True once the run should stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.manners.stop.load(Ordering::Relaxed)
    }

    fn sleep(&self, whole: Duration) {
        let until = Instant::now() + whole;
        while Instant::now() < until && !self.is_stopped() {
            std::thread::sleep(Duration::from_millis(20).min(whole));
        }
    }

    fn send(&self, path: &str, body: Option<&Value>) -> Result<(String, Vec<u8>)> {
        let (kind, mut reader) = self.open(path, body)?;
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(|e| failed(path, ureq::Error::from(e)))?;
        Ok((kind, bytes))
    }

    /// Sends a request; content type and body of a 2xx answer.
    fn open(&self, path: &str, body: Option<&Value>) -> Result<(String, BodyReader<'static>)> {
        let url = self.address.join(path);
        let bearer = self.key.as_ref().map(|key| format!("Bearer {key}"));
        let sent = match body {
            None => {
                let request = self.agent.get(&url).header("accept", "application/json");
                match &bearer {
                    Some(bearer) => request.header("authorization", bearer).call(),
                    None => request.call(),
                }
            }
            Some(body) => {
                let bytes =
                    serde_json::to_vec(body).map_err(|e| Trouble::malformed(format!("request to {path}: {e}")))?;
                let request = self.agent.post(&url).header("content-type", "application/json");
                match &bearer {
                    Some(bearer) => request.header("authorization", bearer).send(bytes),
                    None => request.send(bytes),
                }
            }
        };
        let response = sent.map_err(|e| failed(path, e))?;
        let (parts, body) = response.into_parts();
        let header = |name: &str| parts.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        if parts.status.is_success() {
            let kind = header("content-type").to_ascii_lowercase();
            return Ok((kind, body.into_with_config().limit(MOST).reader()));
        }
        let after = header("retry-after").trim().parse().ok().map(Duration::from_secs);
        Err(self.refusal(path, parts.status, after, body))
    }

    fn refusal(&self, path: &str, status: StatusCode, after: Option<Duration>, body: Body) -> Trouble {
        let mut bytes = Vec::new();
        // As much of the reason as comes.
        let _ = body.into_with_config().limit(MOST).reader().take(TEXT).read_to_end(&mut bytes);
        let said = String::from_utf8_lossy(&bytes);
        let said = serde_json::from_slice(&bytes).ok().and_then(|v| message(&v)).unwrap_or_else(|| said.into_owned());
        let said = self.without_key(said.trim());
        let said: String = said.chars().take(300).collect();
        let what =
            format!("{path}: the server answered {}{}{said}", status.as_u16(), if said.is_empty() { "" } else { ": " });
        match status.as_u16() {
            408 | 425 | 429 | 500.. => Trouble::Infra(what, after),
            _ => Trouble::Refused(what),
        }
    }

    /// A text of the server without our key, which some send back in errors.
    fn without_key(&self, text: &str) -> String {
        match self.key.as_ref().filter(|k| k.len() >= 4) {
            Some(key) => text.replace(key.as_str(), "[key]"),
            None => text.to_owned(),
        }
    }
}

/// The message of an error object in the shapes that servers use.
pub(crate) fn message(value: &Value) -> Option<String> {
    let error = value.get("error").unwrap_or(value);
    let text = error.get("message").or_else(|| value.get("detail")).or_else(|| value.get("message")).unwrap_or(error);
    text.as_str().map(str::to_owned)
}

fn json(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes).map_err(|e| Trouble::malformed(format!("the answer is not JSON: {e}")))
}

/// A failure below the API.
pub(crate) fn failed(path: &str, error: ureq::Error) -> Trouble {
    use ureq::Error as E;
    match error {
        E::Timeout(what) => Trouble::infra(format!("{path}: timed out ({what})")),
        E::Io(e) => Trouble::infra(format!("{path}: the connection failed or was cut: {e}")),
        E::HostNotFound | E::ConnectionFailed => Trouble::infra(format!("{path}: no connection: {error}")),
        E::BodyExceedsLimit(n) => Trouble::malformed(format!("{path}: the answer is longer than {n} bytes")),
        other => Trouble::malformed(format!("{path}: {other}")),
    }
}
