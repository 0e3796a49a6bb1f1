//! The few tokens of Python that matter here. Damaged source gives fewer literals, never an error: every step moves on
//! by at least one character.

/// What stands between and around literals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A string literal's value. Bytes literals are read as text; expressions of f-strings stay as they are written.
    Str(String),
    Plus,
    Open,
    Close,
    NewLine,
    Other,
}

/// Longest expression inside of an f-string.
const MAX_EXPRESSION: usize = 1024;

pub(super) struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

/// How a literal was prefixed.
#[derive(Debug, Clone, Copy, Default)]
struct Prefix {
    raw: bool,
    bytes: bool,
    format: bool,
}

impl Prefix {
    /// Any of Python's prefixes, in any order and case.
    fn of(word: &str) -> Option<Self> {
        let mut prefix = Self::default();
        if word.len() > 2 {
            return None;
        }
        for c in word.chars() {
            match c.to_ascii_lowercase() {
                'r' => prefix.raw = true,
                'b' => prefix.bytes = true,
                'f' | 't' => prefix.format = true,
                'u' => {}
                _ => return None,
            }
        }
        Some(prefix)
    }
}

impl<'a> Lexer<'a> {
    pub(super) fn new(source: &'a str) -> Self {
        Self { source: source.strip_prefix('\u{feff}').unwrap_or(source), at: 0 }
    }

    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn next_char(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        // Python reads every line end as one new line.
        if c == '\r' {
            if self.rest().starts_with('\n') {
                self.at += 1;
            }
            return Some('\n');
        }
        Some(c)
    }

    fn token(&mut self) -> Option<Token> {
        loop {
            let start = self.at;
            match self.next_char()? {
                '#' => {
                    let line = self.rest().find(['\n', '\r']).unwrap_or(self.rest().len());
                    self.at += line;
                }
                '\\' if self.rest().starts_with(['\n', '\r']) => {
                    self.next_char();
                }
                '\n' => return Some(Token::NewLine),
                c if c.is_whitespace() => {}
                '+' => return Some(Token::Plus),
                '(' | '[' | '{' => return Some(Token::Open),
                ')' | ']' | '}' => return Some(Token::Close),
                '"' | '\'' => {
                    self.at = start;
                    return Some(self.literal(Prefix::default()).map_or(Token::Other, Token::Str));
                }
                c if c.is_alphanumeric() || c == '_' => {
                    let word =
                        self.rest().find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest().len());
                    self.at += word;
                    if self.rest().starts_with(['"', '\''])
                        && let Some(prefix) = Prefix::of(&self.source[start..self.at])
                    {
                        return Some(self.literal(prefix).map_or(Token::Other, Token::Str));
                    }
                    return Some(Token::Other);
                }
                _ => return Some(Token::Other),
            }
        }
    }

    /// A literal from its opening quote on; `None` when it does not end.
    fn literal(&mut self, prefix: Prefix) -> Option<String> {
        let quote = self.next_char()?;
        let triple: String = std::iter::repeat_n(quote, 3).collect();
        let is_triple = self.rest().starts_with(&triple[1..]);
        let end: &str = if is_triple { &triple } else { &triple[..1] };
        self.at += end.len() - 1;
        let mut out = String::new();
        let mut expressions = prefix.format;
        loop {
            if self.rest().starts_with(end) {
                self.at += end.len();
                return Some(out);
            }
            let before = self.at;
            match self.next_char()? {
                '\n' if !is_triple => return None,
                '\\' if prefix.raw => {
                    out.push('\\');
                    // A backslash keeps the quote behind it from ending the literal, and stays.
                    out.extend(self.next_char());
                }
                '\\' => self.escape(prefix, &mut out)?,
                '{' if prefix.format => {
                    if self.rest().starts_with('{') {
                        self.at += 1;
                        out.push('{');
                    } else {
                        expressions = expressions && self.expression(end);
                        out.push_str(&self.source[before..self.at]);
                    }
                }
                '}' if prefix.format => {
                    if self.rest().starts_with('}') {
                        self.at += 1;
                    }
                    out.push('}');
                }
                c => out.push(c),
            }
        }
    }

    /// Skips an f-string's expression behind its opening brace, literals inside of it included. False, and no step, when
    /// it does not end.
    fn expression(&mut self, end: &str) -> bool {
        let mut depth = 1_usize;
        let mut in_format = false;
        let start = self.at;
        while let Some(c) = self.rest().chars().next()
            && self.at - start < MAX_EXPRESSION
        {
            match c {
                '"' | '\'' if in_format || self.rest().starts_with(end) && !self.nested_literal_ends() => {
                    if self.rest().starts_with(end) {
                        break;
                    }
                    self.at += 1;
                }
                '"' | '\'' => {
                    self.skip_literal();
                    continue;
                }
                '{' | '(' | '[' => {
                    depth += 1;
                    self.at += 1;
                }
                '}' | ')' | ']' => {
                    depth -= 1;
                    self.at += 1;
                    if depth == 0 {
                        return true;
                    }
                }
                ':' => {
                    in_format |= depth == 1;
                    self.at += 1;
                }
                c => self.at += c.len_utf8(),
            }
        }
        self.at = start;
        false
    }

    /// Whether the quote here opens a literal that ends on its line (quotes of the same kind may nest since 3.12).
    fn nested_literal_ends(&self) -> bool {
        let mut look = Lexer { source: self.source, at: self.at };
        look.skip_literal();
        look.at > self.at + 1 && look.rest().starts_with(['}', ']', ')', ',', '.', '!', ':', ' '])
    }

    /// Moves over a simple literal on one line; over its quote only when it does not end there.
    fn skip_literal(&mut self) {
        let quote = self.rest().chars().next().unwrap_or('"');
        self.at += 1;
        let body = self.rest();
        if let Some(n) = body.find([quote, '\n', '\r'])
            && body[n..].starts_with(quote)
        {
            self.at += n + 1;
        }
    }

    fn escape(&mut self, prefix: Prefix, out: &mut String) -> Option<()> {
        let c = self.next_char()?;
        match c {
            '\n' => {}
            '\\' | '\'' | '"' => out.push(c),
            'a' => out.push('\u{7}'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'v' => out.push('\u{b}'),
            '0'..='7' => {
                let digits = self.rest().bytes().take(2).take_while(|b| matches!(b, b'0'..=b'7')).count();
                let code = self.source.get(self.at - 1..self.at + digits).and_then(|d| u32::from_str_radix(d, 8).ok());
                self.at += digits;
                out.extend(code.and_then(char::from_u32));
            }
            'x' => self.code('x', 2, out),
            'u' if !prefix.bytes => self.code('u', 4, out),
            'U' if !prefix.bytes => self.code('U', 8, out),
            // Names of characters would need the Unicode database; they and unknown escapes stay as they are written.
            c => {
                out.push('\\');
                out.push(c);
            }
        }
        Some(())
    }

    /// A character by its hex digits. A lone surrogate has no UTF-8 form and becomes U+FFFD.
    fn code(&mut self, letter: char, digits: usize, out: &mut String) {
        let code = self.rest().get(..digits).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        if let Some(code) = code.and_then(|d| u32::from_str_radix(d, 16).ok()) {
            self.at += digits;
            out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        } else {
            out.push('\\');
            out.push(letter);
        }
    }
}

impl Iterator for Lexer<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        self.token()
    }
}
