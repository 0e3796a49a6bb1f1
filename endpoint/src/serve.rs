//! A small HTTP server: what stands behind a proxy while its plumbing is checked, and what tests talk to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of a request's head, and of its body, at most.
const HEAD: u64 = 64 << 10;
const BODY: u64 = 64 << 20;

/// A request as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// GET, POST.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Request {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Where the answer goes.
#[derive(Debug)]
pub struct Answer {
    stream: TcpStream,
}

impl Answer {
    /// A whole answer.
    pub fn whole(&mut self, status: u16, kind: &str, body: &str) -> std::io::Result<()> {
        self.with_headers(status, kind, "", body)
    }

    /// A whole answer with more headers, each ending in a line end.
    pub fn with_headers(&mut self, status: u16, kind: &str, headers: &str, body: &str) -> std::io::Result<()> {
        let head = format!(
            "HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n",
            body.len()
        );
        self.stream.write_all(head.as_bytes())?;
        self.stream.write_all(body.as_bytes())
    }

    /// A JSON answer.
    pub fn json(&mut self, status: u16, value: &serde_json::Value) -> std::io::Result<()> {
        self.whole(status, "application/json", &value.to_string())
    }

    /// The head of a stream of events.
    pub fn begin(&mut self) -> std::io::Result<()> {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
        self.stream.write_all(head.as_bytes())
    }

    /// One event.
    pub fn event(&mut self, data: &str) -> std::io::Result<()> {
        self.chunk(&format!("data: {data}\n\n"))
    }

    /// A piece of the body.
    pub fn chunk(&mut self, text: &str) -> std::io::Result<()> {
        self.stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
    }

    /// The end of a stream. Without it the answer is cut.
    pub fn end(&mut self) -> std::io::Result<()> {
        self.stream.write_all(b"0\r\n\r\n")
    }

    /// Raw bytes, for what no server should send.
    pub fn raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Waits this long for the client to close the connection.
    pub fn is_closed_within(&mut self, wait: Duration) -> bool {
        if self.stream.set_read_timeout(Some(wait.max(Duration::from_millis(1)))).is_err() {
            return true;
        }
        let mut byte = [0];
        match self.stream.peek(&mut byte) {
            Ok(n) => n == 0,
            Err(e) => !matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        }
    }
}

/// What answers.
pub type Handler = dyn Fn(&Request, &mut Answer) -> std::io::Result<()> + Send + Sync;

/// A running server. It stops when it is dropped.
#[derive(Debug)]
pub struct Serving {
    /// Where it listens.
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Listens; each connection gets a thread, one request and its answer.
    ///
    /// # Errors
    /// The address can't be listened on.
    pub fn start(address: &str, handler: Arc<Handler>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let handler = handler.clone();
                std::thread::spawn(move || answer(stream, handler.as_ref()));
            }
        });
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the listener up.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(stream: TcpStream, handler: &Handler) {
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
    let _ = stream.set_write_timeout(Some(Duration::from_secs(30)));
    let Ok(reading) = stream.try_clone() else { return };
    if let Some(request) = read(BufReader::new(reading)) {
        let _ = handler(&request, &mut Answer { stream });
    }
}

fn read(mut from: impl BufRead) -> Option<Request> {
    let mut head = (&mut from).take(HEAD);
    let mut line = String::new();
    head.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let mut request =
        Request { method: words.next()?.to_owned(), path: words.next()?.to_owned(), ..Request::default() };
    loop {
        line.clear();
        if head.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    if request.header("transfer-encoding").is_some_and(|v| v.contains("chunked")) {
        request.body = chunked(&mut from)?;
    } else {
        let length = request.header("content-length").map_or(Some(0), |v| v.parse::<u64>().ok())?;
        from.take(length.min(BODY)).read_to_end(&mut request.body).ok()?;
    }
    Some(request)
}

fn chunked(from: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        (&mut *from).take(64).read_line(&mut line).ok()?;
        let size = u64::from_str_radix(line.trim().split(';').next()?, 16).ok()?;
        if body.len() as u64 + size > BODY {
            return None;
        }
        (&mut *from).take(size).read_to_end(&mut body).ok()?;
        (&mut *from).take(4).read_line(&mut line).ok()?;
        if size == 0 {
            return Some(body);
        }
    }
}
