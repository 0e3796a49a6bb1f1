//! Just enough of Rust's lexer for rules that must not be fooled by comments and strings.

#[cfg(test)]
mod tests;

/// What a rule sees of a source file. Comments and white space are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// Identifier or keyword (a raw identifier without its `r#`).
    Ident(String),
    /// Number as written.
    Number(String),
    /// String, byte string or character; the text between the quotes.
    Text(String),
    /// Lifetime.
    Lifetime,
    /// Any other single character.
    Punct(char),
}

/// A token and its line, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    /// What it is.
    pub(super) kind: Kind,
    /// Where it starts.
    pub(super) line: usize,
}

impl Token {
    /// True for this identifier.
    pub(super) fn is(&self, ident: &str) -> bool {
        matches!(&self.kind, Kind::Ident(name) if name == ident)
    }

    /// True for this character.
    pub(super) fn punct(&self, c: char) -> bool {
        self.kind == Kind::Punct(c)
    }

    /// The identifier, if it is one.
    pub(super) fn ident(&self) -> Option<&str> {
        match &self.kind {
            Kind::Ident(name) => Some(name),
            _ => None,
        }
    }
}

/// The tokens of a source text. Broken input gives some tokens, never a panic: the compiler is the one to complain.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0, line: 1, out: Vec::new() };
    while lexer.at < lexer.chars.len() {
        lexer.step();
    }
    lexer.out
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    out: Vec<Token>,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    /// Moves on by `n` characters, counting lines.
    fn skip(&mut self, n: usize) {
        for _ in 0..n.min(self.chars.len() - self.at) {
            if self.chars[self.at] == '\n' {
                self.line += 1;
            }
            self.at += 1;
        }
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.at < self.chars.len() && keep(self.chars[self.at]) {
            self.skip(1);
        }
        self.chars[start..self.at].iter().collect()
    }

    fn step(&mut self) {
        let line = self.line;
        let c = self.peek(0);
        let kind = match (c, self.peek(1)) {
            _ if c.is_whitespace() => return self.skip(1),
            ('/', '/') => {
                self.take_while(|c| c != '\n');
                return;
            }
            ('/', '*') => return self.block_comment(),
            ('"', _) => self.quoted('"'),
            ('b' | 'c', '"') => {
                self.skip(1);
                self.quoted('"')
            }
            ('b', '\'') => {
                self.skip(1);
                self.quoted('\'')
            }
            ('\'', _) => self.char_or_lifetime(),
            _ if self.raw_string_at().is_some() => self.raw_string(),
            ('r', '#') if is_start(self.peek(2)) => {
                self.skip(2);
                Kind::Ident(self.take_while(is_continue))
            }
            _ if is_start(c) => Kind::Ident(self.take_while(is_continue)),
            _ if c.is_ascii_digit() => Kind::Number(self.number()),
            _ => {
                self.skip(1);
                Kind::Punct(c)
            }
        };
        self.out.push(Token { kind, line });
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    self.skip(1);
                    continue;
                }
            }
            self.skip(2);
            if depth == 0 {
                break;
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Kind {
        self.skip(1);
        let start = self.at;
        while self.at < self.chars.len() && self.chars[self.at] != quote {
            self.skip(if self.chars[self.at] == '\\' { 2 } else { 1 });
        }
        let text = self.chars[start..self.at].iter().collect();
        self.skip(1);
        Kind::Text(text)
    }

    fn char_or_lifetime(&mut self) -> Kind {
        if is_start(self.peek(1)) && self.peek(2) != '\'' {
            self.skip(1);
            self.take_while(is_continue);
            return Kind::Lifetime;
        }
        self.quoted('\'')
    }

    /// Letters before the hashes and the number of hashes, when a raw string starts here.
    fn raw_string_at(&self) -> Option<(usize, usize)> {
        let letters = match (self.peek(0), self.peek(1)) {
            ('r', _) => 1,
            ('b' | 'c', 'r') => 2,
            _ => return None,
        };
        let hashes = self.chars[self.at..].iter().skip(letters).take_while(|c| **c == '#').count();
        (self.peek(letters + hashes) == '"').then_some((letters, hashes))
    }

    fn raw_string(&mut self) -> Kind {
        let (letters, hashes) = self.raw_string_at().unwrap_or((0, 0));
        self.skip(letters + hashes + 1);
        let start = self.at;
        let closes =
            |at: usize| self.chars.get(at) == Some(&'"') && (1..=hashes).all(|i| self.chars.get(at + i) == Some(&'#'));
        let end = (start..self.chars.len()).find(|&at| closes(at)).unwrap_or(self.chars.len());
        let text = self.chars[start..end].iter().collect();
        self.skip(end - start + 1 + hashes);
        Kind::Text(text)
    }

    /// Digits, one point that is neither a range nor a method call, an exponent with its sign, a suffix.
    fn number(&mut self) -> String {
        let mut text = self.take_while(is_continue);
        if self.peek(0) == '.' && self.peek(1) != '.' && !is_start(self.peek(1)) {
            self.skip(1);
            text.push('.');
            text += &self.take_while(is_continue);
        }
        let hex = text.starts_with("0x");
        if !hex && text.ends_with(['e', 'E']) && matches!(self.peek(0), '+' | '-') {
            text.push(self.peek(0));
            self.skip(1);
            text += &self.take_while(is_continue);
        }
        text
    }
}

fn is_start(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn is_continue(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}
