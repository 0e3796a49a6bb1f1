//! Python's `repr` of the objects in a request log: literals, calls of classes, and what stands for a value that was cut.

use karat_model::prompt::Json;

/// Deeper nesting than any request has.
const MAX_DEPTH: usize = 200;

/// Why a text can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken {
    /// What was expected or wrong.
    pub(super) what: &'static str,
    /// Byte offset in the text.
    pub(super) at: usize,
}

/// A value, and which of its fields the log cut short (`'begin' ... 'end'`).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Literal {
    /// A class's call is an object of its arguments; what has no JSON form (an object's address, bytes) is null.
    pub(super) value: Json,
    /// Paths of cut fields, keys joined by dots; the cut values themselves are null.
    pub(super) cut: Vec<String>,
}

/// Reads one value at the start of a text; also how many bytes it took.
pub(super) fn parse(text: &str) -> Result<(Literal, usize), Broken> {
    let mut reader = Reader { text, at: 0, path: Vec::new(), cut: Vec::new() };
    let value = reader.whole(0)?;
    Ok((Literal { value, cut: reader.cut }, reader.at))
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    path: Vec<String>,
    cut: Vec<String>,
}

impl Reader<'_> {
    fn broken<T>(&self, what: &'static str) -> Result<T, Broken> {
        Err(Broken { what, at: self.at })
    }

    fn rest(&self) -> &str {
        // `at` only ever moves past whole characters.
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// A value with what may follow a cut one: ` ... ` and its end.
    fn whole(&mut self, depth: usize) -> Result<Json, Broken> {
        let value = self.value(depth)?;
        if matches!(value, Json::Str(_) | Json::Array(_)) && self.take(" ... ") {
            self.value(depth)?;
            self.cut.push(self.path.join("."));
            return Ok(Json::Null);
        }
        Ok(value)
    }

    fn value(&mut self, depth: usize) -> Result<Json, Broken> {
        if depth > MAX_DEPTH {
            return self.broken("nested too deeply");
        }
        match self.peek() {
            Some(b'\'' | b'"') => self.string().map(Json::Str),
            Some(b'[') => self.items(depth, "]"),
            Some(b'(') => self.items(depth, ")"),
            Some(b'{') => self.braces(depth),
            Some(b'<') => self.address(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(c) if c.is_ascii_alphabetic() || c == b'_' => self.word(depth),
            Some(_) => self.broken("expected a value"),
            None => self.broken("the text ends where a value should stand"),
        }
    }

    fn items(&mut self, depth: usize, end: &str) -> Result<Json, Broken> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.space();
            if self.take(end) {
                return Ok(Json::Array(items));
            }
            items.push(self.whole(depth + 1)?);
            self.space();
            if !self.take(",") && !self.rest().starts_with(end) {
                return self.broken("expected ',' or the end of the list");
            }
        }
    }

    /// A dict, or a set (as an array).
    fn braces(&mut self, depth: usize) -> Result<Json, Broken> {
        self.at += 1;
        let (mut entries, mut items) = (Vec::new(), Vec::new());
        loop {
            self.space();
            if self.take("}") {
                return Ok(if items.is_empty() { Json::Object(entries) } else { Json::Array(items) });
            }
            let key = self.value(depth + 1)?;
            self.space();
            if self.take(":") {
                self.space();
                let key = if let Json::Str(key) = key { key } else { key.dumps() };
                let value = self.field(&key, depth)?;
                entries.push((key, value));
            } else {
                items.push(key);
            }
            self.space();
            if !self.take(",") && !self.rest().starts_with('}') {
                return self.broken("expected ',' or '}'");
            }
        }
    }

    fn field(&mut self, name: &str, depth: usize) -> Result<Json, Broken> {
        self.path.push(name.to_owned());
        let value = self.whole(depth + 1);
        self.path.pop();
        value
    }

    /// `<...>`: no value that could be read back.
    fn address(&mut self) -> Result<Json, Broken> {
        let mut open = 0usize;
        for (i, c) in self.rest().char_indices() {
            match c {
                '<' => open += 1,
                '>' => open -= 1,
                _ => {}
            }
            if open == 0 {
                self.at += i + 1;
                return Ok(Json::Null);
            }
        }
        self.broken("'<' is never closed")
    }

    fn number(&mut self) -> Result<Json, Broken> {
        let n = self.rest().bytes().take_while(|b| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')).count();
        let text = &self.rest()[..n];
        let digits = text.strip_prefix('-').unwrap_or(text);
        let json = if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
            Some(Json::Int(text.to_owned()))
        } else if text == "-" && self.rest().starts_with("-inf") {
            self.at += 4;
            return Ok(Json::Float(f64::NEG_INFINITY));
        } else {
            text.parse().ok().map(Json::Float)
        };
        match json {
            Some(json) => {
                self.at += n;
                Ok(json)
            }
            None => self.broken("expected a number"),
        }
    }

    /// A constant, bytes, or a class with its arguments.
    fn word(&mut self, depth: usize) -> Result<Json, Broken> {
        let n = self.rest().bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.')).count();
        let word = self.rest()[..n].to_owned();
        self.at += n;
        match (word.as_str(), self.peek()) {
            ("b", Some(b'\'' | b'"')) => self.string().map(|_| Json::Null),
            (_, Some(b'(')) => self.arguments(depth),
            ("None", _) => Ok(Json::Null),
            ("True", _) => Ok(Json::Bool(true)),
            ("False", _) => Ok(Json::Bool(false)),
            ("nan", _) => Ok(Json::Float(f64::NAN)),
            ("inf", _) => Ok(Json::Float(f64::INFINITY)),
            _ => {
                self.at -= n;
                self.broken("expected a value")
            }
        }
    }

    fn arguments(&mut self, depth: usize) -> Result<Json, Broken> {
        self.at += 1;
        let mut entries = Vec::new();
        loop {
            self.space();
            if self.take(")") {
                return Ok(Json::Object(entries));
            }
            let n = self.rest().bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
            if n > 0 && self.rest()[n..].starts_with('=') {
                let name = self.rest()[..n].to_owned();
                self.at += n + 1;
                let value = self.field(&name, depth)?;
                entries.push((name, value));
            } else {
                self.whole(depth + 1)?;
            }
            self.space();
            if !self.take(",") && !self.rest().starts_with(')') {
                return self.broken("expected ',' or ')'");
            }
        }
    }

    fn string(&mut self) -> Result<String, Broken> {
        let quote = if self.peek() == Some(b'"') { '"' } else { '\'' };
        self.at += 1;
        let mut out = String::new();
        loop {
            let Some(c) = self.rest().chars().next() else { return self.broken("a string is never closed") };
            self.at += c.len_utf8();
            match c {
                c if c == quote => return Ok(out),
                '\\' => self.escape(&mut out)?,
                c => out.push(c),
            }
        }
    }

    /// Behind a backslash. A lone surrogate has no UTF-8 form and becomes U+FFFD.
    fn escape(&mut self, out: &mut String) -> Result<(), Broken> {
        let Some(c) = self.rest().chars().next() else { return self.broken("a string is never closed") };
        self.at += c.len_utf8();
        let plain = match c {
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            '\\' | '\'' | '"' => Some(c),
            _ => None,
        };
        if let Some(c) = plain {
            out.push(c);
            return Ok(());
        }
        let digits = match c {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => return self.broken("repr writes no such escape"),
        };
        let code = self.rest().get(..digits).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(code) = code.and_then(|d| u32::from_str_radix(d, 16).ok()) else {
            return self.broken("expected hex digits");
        };
        self.at += digits;
        out.push(char::from_u32(code).unwrap_or('\u{fffd}'));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
