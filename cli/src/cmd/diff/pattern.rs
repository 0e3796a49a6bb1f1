//! Regular expressions as people write them for tensor names: `.*expert.*`, `layers\.(3|17)\..*`, `^$`.
//!
//! Literals, `.`, classes, groups, `|`, `*`, `+`, `?`, `\d`, `\w`, escapes and anchors at the ends; everything else is
//! refused by name. States are followed side by side, so a match takes pattern times name and no more.

#[cfg(test)]
mod tests;

use crate::failure::{Failure, Result};

/// Deepest nesting of groups, and longest pattern.
const MAX_DEPTH: usize = 32;
const MAX_LEN: usize = 1000;

/// What one character must be.
#[derive(Debug, Clone, PartialEq, Eq)]
enum One {
    Any,
    Is(char),
    /// Ranges, and whether they are those that are not meant.
    Class(Vec<(char, char)>, bool),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Take(One),
    /// Goes on at both.
    Fork(usize, usize),
    Jump(usize),
    /// Only at the start, or at the end, of the name.
    Start,
    End,
    Done,
}

/// A pattern.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    text: String,
    states: Vec<State>,
}

impl Pattern {
    /// Reads a pattern. Errors (usage): what is not among the forms above.
    pub(crate) fn new(text: &str) -> Result<Self> {
        let mut parser = Parser { chars: text.chars().collect(), at: 0, depth: 0, text };
        if parser.chars.len() > MAX_LEN {
            return Err(Failure::usage(format!("pattern is longer than {MAX_LEN} characters")));
        }
        let mut states = parser.either()?;
        if parser.at < parser.chars.len() {
            return Err(parser.refuse("`)` without `(`"));
        }
        states.push(State::Done);
        Ok(Self { text: text.to_string(), states })
    }

    /// The pattern as written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// True when the whole name fits.
    pub(crate) fn fits(&self, name: &str) -> bool {
        self.run(name, true)
    }

    /// True when a part of the name fits.
    pub(crate) fn is_in(&self, name: &str) -> bool {
        self.run(name, false)
    }

    fn run(&self, name: &str, whole: bool) -> bool {
        let mut now = vec![false; self.states.len()];
        let chars: Vec<char> = name.chars().collect();
        for at in 0..=chars.len() {
            if at == 0 || !whole {
                self.enter(0, at == 0, at == chars.len(), &mut now);
            }
            let done = self.states.iter().zip(&now).any(|(s, on)| *on && *s == State::Done);
            if done && (!whole || at == chars.len()) {
                return true;
            }
            let Some(&c) = chars.get(at) else { return false };
            let mut next = vec![false; self.states.len()];
            for (number, state) in self.states.iter().enumerate().filter(|(number, _)| now[*number]) {
                if matches!(state, State::Take(one) if one.fits(c)) {
                    self.enter(number + 1, false, at + 1 == chars.len(), &mut next);
                }
            }
            now = next;
        }
        false
    }

    /// Marks a state and what it leads to without a character.
    fn enter(&self, number: usize, at_start: bool, at_end: bool, on: &mut [bool]) {
        let mut open = vec![number];
        while let Some(number) = open.pop() {
            if std::mem::replace(&mut on[number], true) {
                continue;
            }
            match self.states[number] {
                State::Fork(a, b) => open.extend([a, b]),
                State::Jump(to) => open.push(to),
                State::Start if at_start => open.push(number + 1),
                State::End if at_end => open.push(number + 1),
                _ => {}
            }
        }
    }
}

impl One {
    fn fits(&self, c: char) -> bool {
        match self {
            Self::Any => true,
            Self::Is(other) => c == *other,
            Self::Class(ranges, not) => ranges.iter().any(|(a, b)| (*a..=*b).contains(&c)) != *not,
        }
    }
}

struct Parser<'t> {
    chars: Vec<char>,
    at: usize,
    depth: usize,
    text: &'t str,
}

/// The same states further down a program: places within them move along.
fn moved(states: Vec<State>, by: usize) -> impl Iterator<Item = State> {
    states.into_iter().map(move |s| match s {
        State::Fork(a, b) => State::Fork(a + by, b + by),
        State::Jump(to) => State::Jump(to + by),
        other => other,
    })
}

impl Parser<'_> {
    fn refuse(&self, what: &str) -> Failure {
        Failure::usage(format!("pattern {:?} isn't read: {what}", self.text))
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn either(&mut self) -> Result<Vec<State>> {
        let mut out = self.sequence()?;
        while self.peek() == Some('|') {
            self.at += 1;
            let other = self.sequence()?;
            let (first, second) = (out.len(), other.len());
            let mut both = vec![State::Fork(1, first + 2)];
            both.extend(moved(out, 1));
            both.push(State::Jump(first + second + 2));
            both.extend(moved(other, first + 2));
            out = both;
        }
        Ok(out)
    }

    fn sequence(&mut self) -> Result<Vec<State>> {
        let mut out = Vec::new();
        while let Some(c) = self.peek().filter(|c| !matches!(c, '|' | ')')) {
            let piece = self.piece(c)?;
            let n = piece.len();
            let repeated = match self.peek() {
                Some('*') => {
                    let mut r = vec![State::Fork(1, n + 2)];
                    r.extend(moved(piece, 1));
                    r.push(State::Jump(0));
                    r
                }
                Some('+') => {
                    let mut r = piece;
                    r.push(State::Fork(0, n + 1));
                    r
                }
                Some('?') => {
                    let mut r = vec![State::Fork(1, n + 1)];
                    r.extend(moved(piece, 1));
                    r
                }
                Some('{') => return Err(self.refuse("counts in braces")),
                _ => {
                    let by = out.len();
                    out.extend(moved(piece, by));
                    continue;
                }
            };
            self.at += 1;
            if matches!(self.peek(), Some('*' | '+' | '?')) {
                return Err(self.refuse("two repetitions after each other"));
            }
            let by = out.len();
            out.extend(moved(repeated, by));
        }
        Ok(out)
    }

    fn piece(&mut self, c: char) -> Result<Vec<State>> {
        self.at += 1;
        let one = match c {
            '.' => One::Any,
            '^' => return Ok(vec![State::Start]),
            '$' => return Ok(vec![State::End]),
            '(' => return self.group(),
            '[' => self.class()?,
            '\\' => self.escape()?,
            '*' | '+' | '?' | '{' => return Err(self.refuse("a repetition of nothing")),
            c => One::Is(c),
        };
        Ok(vec![State::Take(one)])
    }

    fn group(&mut self) -> Result<Vec<State>> {
        if self.peek() == Some('?') {
            if self.chars.get(self.at + 1) != Some(&':') {
                return Err(self.refuse("a group that begins with `(?`"));
            }
            self.at += 2;
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.refuse("groups are nested too deep"));
        }
        let inner = self.either()?;
        self.depth -= 1;
        if self.peek() != Some(')') {
            return Err(self.refuse("`(` without `)`"));
        }
        self.at += 1;
        Ok(inner)
    }

    fn escape(&mut self) -> Result<One> {
        let Some(c) = self.peek() else { return Err(self.refuse("a backslash at the end")) };
        self.at += 1;
        let word = || vec![('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')];
        Ok(match c {
            'd' | 'D' => One::Class(vec![('0', '9')], c == 'D'),
            'w' | 'W' => One::Class(word(), c == 'W'),
            c if c.is_alphanumeric() => return Err(self.refuse(&format!("the escape `\\{c}`"))),
            c => One::Is(c),
        })
    }

    fn class(&mut self) -> Result<One> {
        let not = self.peek() == Some('^');
        self.at += usize::from(not);
        let mut ranges = Vec::new();
        loop {
            let Some(c) = self.peek() else { return Err(self.refuse("`[` without `]`")) };
            self.at += 1;
            if c == ']' && !ranges.is_empty() {
                return Ok(One::Class(ranges, not));
            }
            let low = if c == '\\' {
                match self.escape()? {
                    One::Is(c) => c,
                    One::Class(inner, false) => {
                        ranges.extend(inner);
                        continue;
                    }
                    _ => return Err(self.refuse("such an escape in brackets")),
                }
            } else {
                c
            };
            match (self.peek(), self.chars.get(self.at + 1)) {
                (Some('-'), Some(&high)) if high != ']' => {
                    if high < low || high == '\\' {
                        return Err(self.refuse("a range that ends before it begins"));
                    }
                    self.at += 2;
                    ranges.push((low, high));
                }
                _ => ranges.push((low, low)),
            }
        }
    }
}
