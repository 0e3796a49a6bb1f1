//! Server-sent events, as far as completion APIs use them: `data:` lines, the last of them `[DONE]`.

use std::io::{BufRead, Read};
use std::time::Instant;

use crate::client::failed;
use crate::trouble::{Result, Trouble};

/// Bytes of one line at most.
const LINE: u64 = 16 << 20;
/// Bytes of a stream at most.
const MOST: u64 = 256 << 20;

/// The events of one answer.
pub struct Events {
    from: Box<dyn BufRead + Send>,
    read: u64,
    /// When the request was sent.
    pub started: Instant,
    /// `[DONE]` came.
    pub done: bool,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("read", &self.read).field("done", &self.done).finish_non_exhaustive()
    }
}

impl Events {
    /// The events of a body.
    pub fn new(from: impl BufRead + Send + 'static, started: Instant) -> Self {
        Self { from: Box::new(from), read: 0, started, done: false }
    }

    /// The data of the next event; `None` at `[DONE]` or at the end of the body. Several `data:` lines of one event are joined
    /// by line ends.
    pub fn next_data(&mut self) -> Result<Option<String>> {
        let mut data: Option<String> = None;
        loop {
            let line = self.line()?;
            let Some(line) = line else { return Ok(data.filter(|_| !self.done)) };
            if line.is_empty() {
                match data.take() {
                    None => continue,
                    Some(text) if text == "[DONE]" => {
                        self.done = true;
                        return Ok(None);
                    }
                    Some(text) => return Ok(Some(text)),
                }
            }
            let Some(more) = line.strip_prefix("data:") else {
                // Comments, ids, event names: nothing of the answer. Anything else is no stream of events.
                if line.starts_with(':') || ["event:", "id:", "retry:"].iter().any(|f| line.starts_with(f)) {
                    continue;
                }
                let shown: String = line.chars().take(80).collect();
                return Err(Trouble::malformed(format!("not a line of an event stream: {shown:?}")));
            };
            let more = more.strip_prefix(' ').unwrap_or(more);
            match &mut data {
                None => data = Some(more.to_owned()),
                Some(text) => {
                    text.push('\n');
                    text.push_str(more);
                }
            }
            // Some servers leave out the empty line behind the end.
            if data.as_deref() == Some("[DONE]") {
                self.done = true;
                return Ok(None);
            }
        }
    }

    fn line(&mut self) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        let read = (&mut self.from).take(LINE).read_until(b'\n', &mut bytes);
        let n = read.map_err(|e| failed("the stream", ureq::Error::from(e)))? as u64;
        self.read += n;
        if n == 0 {
            return Ok(None);
        }
        if self.read > MOST || (n == LINE && bytes.last() != Some(&b'\n')) {
            return Err(Trouble::malformed(format!("the stream is too long: over {} bytes", self.read.min(MOST))));
        }
        while matches!(bytes.last(), Some(b'\n' | b'\r')) {
            bytes.pop();
        }
        let text = String::from_utf8(bytes).map_err(|_| Trouble::malformed("a line of the stream is not UTF-8"))?;
        Ok(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &'static str) -> (Vec<String>, Result<()>, bool) {
        let mut events = Events::new(text.as_bytes(), Instant::now());
        let mut out = Vec::new();
        loop {
            match events.next_data() {
                Ok(Some(data)) => out.push(data),
                Ok(None) => return (out, Ok(()), events.done),
                Err(e) => return (out, Err(e), events.done),
            }
        }
    }

    #[test]
    fn events_end_at_done() {
        let (data, end, done) =
            all(": hello\n\nevent: x\r\ndata: {\"a\":1}\r\n\r\ndata:b\ndata:c\n\ndata: [DONE]\n\ndata: no\n\n");
        assert_eq!((data, end, done), (vec!["{\"a\":1}".to_owned(), "b\nc".to_owned()], Ok(()), true));
    }

    #[test]
    fn a_stream_without_done_says_so_and_other_lines_are_refused() {
        assert_eq!(all("data: a\n\n"), (vec!["a".to_owned()], Ok(()), false));
        let (_, end, _) = all("data: a\n\n<html>\n");
        assert!(matches!(end, Err(Trouble::Malformed(_))));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
            let mut events = Events::new(std::io::Cursor::new(bytes), Instant::now());
            let mut n = 0;
            while let Ok(Some(_)) = events.next_data() {
                n += 1;
            }
            proptest::prop_assert!(n <= 400);
        }
    }
}
