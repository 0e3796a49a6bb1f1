//! Typed access to one JSON object that remembers which keys were read, so that the rest can be refused by name.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use crate::json::{kind, shown};
use crate::{Error, Result};

/// One object of config.json. A null value counts as absent, as transformers writes it.
pub(super) struct Fields<'a> {
    place: String,
    map: &'a Map<String, Value>,
    used: RefCell<BTreeSet<&'a str>>,
}

impl<'a> Fields<'a> {
    /// `place` is the object's path in the file (`rope_scaling`), empty for the file itself.
    pub(super) fn new(place: &str, map: &'a Map<String, Value>) -> Self {
        Self { place: place.to_string(), map, used: RefCell::default() }
    }

    /// A key's full path for messages.
    pub(super) fn path(&self, key: &str) -> String {
        if self.place.is_empty() { key.to_string() } else { format!("{}.{key}", self.place) }
    }

    /// The value of `key`, which from now on counts as read.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        let (name, value) = self.map.get_key_value(key)?;
        self.used.borrow_mut().insert(name);
        (!value.is_null()).then_some(value)
    }

    /// True when the key is there and not null; doesn't count as reading it.
    pub(super) fn has(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|v| !v.is_null())
    }

    /// Marks a key as knowingly ignored.
    pub(super) fn ignore(&self, key: &str) {
        if let Some((name, _)) = self.map.get_key_value(key) {
            self.used.borrow_mut().insert(name);
        }
    }

    /// Keys nobody read, in file order.
    pub(super) fn unread(&self) -> Vec<&'a str> {
        let used = self.used.borrow();
        self.map.keys().map(String::as_str).filter(|k| !used.contains(k)).collect()
    }

    /// An error about a key's value.
    pub(super) fn wrong(&self, key: &str, expected: impl fmt::Display, found: &Value) -> Error {
        Error::input("wrong value").at(self.path(key)).expected(expected).found(shown(found))
    }

    /// An error about a key that has to be there.
    pub(super) fn missing(&self, key: &str) -> Error {
        Error::input("field is missing").at(self.path(key))
    }

    /// A whole number. Floats with a whole value (`16.0`) count: transformers writes them.
    pub(super) fn usize(&self, key: &str) -> Result<Option<usize>> {
        self.get(key).map(|v| whole(v).ok_or_else(|| self.wrong(key, "a whole number >= 0", v))).transpose()
    }

    /// A whole number that has to be there.
    pub(super) fn need_usize(&self, key: &str) -> Result<usize> {
        self.usize(key)?.ok_or_else(|| self.missing(key))
    }

    /// A number.
    pub(super) fn f64(&self, key: &str) -> Result<Option<f64>> {
        self.get(key).map(|v| v.as_f64().ok_or_else(|| self.wrong(key, "a number", v))).transpose()
    }

    /// A number that has to be there.
    pub(super) fn need_f64(&self, key: &str) -> Result<f64> {
        self.f64(key)?.ok_or_else(|| self.missing(key))
    }

    /// A string.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.get(key).map(|v| v.as_str().ok_or_else(|| self.wrong(key, "a string", v))).transpose()
    }

    /// A list.
    pub(super) fn list(&self, key: &str) -> Result<Option<&'a [Value]>> {
        self.get(key).map(|v| v.as_array().map(Vec::as_slice).ok_or_else(|| self.wrong(key, "a list", v))).transpose()
    }

    /// A list of whole numbers.
    pub(super) fn usizes(&self, key: &str) -> Result<Option<Vec<usize>>> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        list.iter()
            .enumerate()
            .map(|(i, v)| whole(v).ok_or_else(|| self.wrong(&format!("{key}[{i}]"), "a whole number >= 0", v)))
            .collect::<Result<Vec<_>>>()
            .map(Some)
    }

    /// A list of strings.
    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        list.iter()
            .enumerate()
            .map(|(i, v)| v.as_str().ok_or_else(|| self.wrong(&format!("{key}[{i}]"), "a string", v)))
            .collect::<Result<Vec<_>>>()
            .map(Some)
    }

    /// A nested object.
    pub(super) fn object(&self, key: &str) -> Result<Option<Fields<'a>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value {
            Value::Object(map) => Ok(Some(Fields::new(&self.path(key), map))),
            other => Err(Error::input("wrong value").at(self.path(key)).expected("an object").found(kind(other))),
        }
    }

    /// A field with one allowed value; absent is fine.
    pub(super) fn only(&self, key: &str, allowed: &Value, why: &str) -> Result<()> {
        match self.get(key) {
            Some(v) if !same(v, allowed) => Err(self.wrong(key, shown(allowed), v).hint(why)),
            _ => Ok(()),
        }
    }
}

/// JSON equality in which `1` and `1.0` are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(x), Some(y)) => x == y,
        _ => a == b,
    }
}

/// A whole number that a size can have.
fn whole(v: &Value) -> Option<usize> {
    if let Some(n) = v.as_u64() {
        return usize::try_from(n).ok();
    }
    // 2^53: beyond it a float doesn't name one whole number.
    v.as_f64().filter(|x| x.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(x)).map(|x| x as usize)
}

/// Merges two spellings of one fact: equal or only one of them.
pub(super) fn agree<T: PartialEq + fmt::Display>(
    (a_name, a): (&str, Option<T>),
    (b_name, b): (&str, Option<T>),
) -> Result<Option<T>> {
    match (a, b) {
        (Some(x), Some(y)) if x != y => Err(Error::input("two spellings of one fact disagree")
            .at(b_name)
            .expected(format!("{x} as in {a_name}"))
            .found(y)
            .hint("remove the wrong one")),
        (Some(x), _) | (None, Some(x)) => Ok(Some(x)),
        (None, None) => Ok(None),
    }
}
