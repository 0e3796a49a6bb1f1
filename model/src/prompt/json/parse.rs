//! `json.loads`.

use super::{Entries, Json};

/// Deeper nesting than Python's own recursion limit lets through.
const MAX_DEPTH: usize = 500;
/// Python refuses to read a decimal integer of more digits.
const MAX_DIGITS: usize = 4300;

/// Why a text is not JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct JsonError {
    /// What was expected or wrong.
    pub what: &'static str,
    /// Byte offset.
    pub at: usize,
}

pub(super) fn value(text: &str) -> Result<Json, JsonError> {
    let mut reader = Reader { text, at: 0 };
    reader.space();
    let value = reader.value(0)?;
    reader.space();
    if reader.at < text.len() { Err(reader.error("extra data")) } else { Ok(value) }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn error(&self, what: &'static str) -> JsonError {
        JsonError { what, at: self.at }
    }

    fn rest(&self) -> &'a str {
        // `at` only ever moves past whole characters.
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<Json, JsonError> {
        if depth > MAX_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        match self.peek() {
            Some(b'"') => self.string().map(Json::Str),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'-' | b'0'..=b'9') if !self.rest().starts_with("-I") => self.number(),
            _ => {
                let words = [
                    ("null", Json::Null),
                    ("true", Json::Bool(true)),
                    ("false", Json::Bool(false)),
                    ("NaN", Json::Float(f64::NAN)),
                    ("Infinity", Json::Float(f64::INFINITY)),
                    ("-Infinity", Json::Float(f64::NEG_INFINITY)),
                ];
                words
                    .into_iter()
                    .find(|(w, _)| self.take(w))
                    .map(|(_, v)| v)
                    .ok_or_else(|| self.error("expected a value"))
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, JsonError> {
        let mut entries = Entries::default();
        self.at += 1;
        self.space();
        if self.take("}") {
            return Ok(Json::Object(entries.list));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.error("expected a property name in double quotes"));
            }
            let key = self.string()?;
            self.space();
            if !self.take(":") {
                return Err(self.error("expected ':'"));
            }
            self.space();
            let value = self.value(depth + 1)?;
            entries.set(key, value);
            self.space();
            if self.take("}") {
                return Ok(Json::Object(entries.list));
            }
            if !self.take(",") {
                return Err(self.error("expected ',' or '}'"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, JsonError> {
        let mut items = Vec::new();
        self.at += 1;
        self.space();
        if self.take("]") {
            return Ok(Json::Array(items));
        }
        loop {
            self.space();
            items.push(self.value(depth + 1)?);
            self.space();
            if self.take("]") {
                return Ok(Json::Array(items));
            }
            if !self.take(",") {
                return Err(self.error("expected ',' or ']'"));
            }
        }
    }

    fn number(&mut self) -> Result<Json, JsonError> {
        let start = self.at;
        self.take("-");
        let whole = self.digits();
        // A leading zero stands alone; what follows it is then extra data.
        if self.text[start..self.at].trim_start_matches('-').starts_with('0') && whole > 1 {
            self.at = self.at - whole + 1;
        }
        if whole == 0 {
            return Err(self.error("expected a digit"));
        }
        let end_of_int = self.at;
        if self.take(".") && self.digits() == 0 {
            self.at = end_of_int;
        }
        let end_of_fraction = self.at;
        if self.take("e") || self.take("E") {
            let _ = self.take("+") || self.take("-");
            if self.digits() == 0 {
                self.at = end_of_fraction;
            }
        }
        let text = &self.text[start..self.at];
        if self.at == end_of_int {
            if text.len() > MAX_DIGITS {
                return Err(self.error("more digits than an integer may have"));
            }
            // int("-0") is 0.
            return Ok(Json::Int(if text == "-0" { "0".to_owned() } else { text.to_owned() }));
        }
        text.parse().map(Json::Float).map_err(|_| self.error("expected a number"))
    }

    fn digits(&mut self) -> usize {
        let n = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        self.at += n;
        n
    }

    fn string(&mut self) -> Result<String, JsonError> {
        let mut out = String::new();
        self.at += 1;
        loop {
            let Some(c) = self.rest().chars().next() else {
                return Err(self.error("unterminated string"));
            };
            if u32::from(c) < 0x20 {
                return Err(self.error("control character in a string"));
            }
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(out),
                '\\' => out.push(self.escape()?),
                c => out.push(c),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let c = self.peek().ok_or_else(|| self.error("unterminated string"))?;
        let plain = match c {
            b'"' | b'\\' | b'/' => char::from(c),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.error("unknown escape")),
        };
        self.at += 1;
        Ok(plain)
    }

    /// Behind `\u`: four digits, and a second escape where the first is a high surrogate. A lone surrogate has no
    /// UTF-8 form; Python fails on it when it encodes the prompt.
    fn unicode(&mut self) -> Result<char, JsonError> {
        let first = self.hex4()?;
        let code = if (0xd800..0xdc00).contains(&first) && self.take("\\u") {
            let second = self.hex4()?;
            if !(0xdc00..0xe000).contains(&second) {
                return Err(self.error("lone surrogate"));
            }
            0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
        } else {
            first
        };
        char::from_u32(code).ok_or_else(|| self.error("lone surrogate"))
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let digits = self.rest().get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let digits = digits.ok_or_else(|| self.error("expected four hex digits"))?;
        self.at += 4;
        u32::from_str_radix(digits, 16).map_err(|_| self.error("expected four hex digits"))
    }
}
