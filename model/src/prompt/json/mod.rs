//! JSON as Python's `json` module reads and writes it: tool schemas and arguments must come out byte for byte as the
//! released encoder writes them.
//!
//! Key order is kept, integers keep all their digits, floats are written as `repr` does, non-ASCII stays as it is, and
//! `NaN` and `Infinity` are accepted.

mod parse;
mod write;

use std::collections::HashMap;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

pub use parse::JsonError;

/// A JSON value with Python's meaning.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer in its shortest decimal form, of any size.
    Int(String),
    /// A number with a point or an exponent, or one of Python's three non-finite words.
    Float(f64),
    /// A string.
    Str(String),
    /// An array.
    Array(Vec<Json>),
    /// An object in the order of its keys. Of a key given twice the last value counts, at the first one's place.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads one value with nothing but white space around it, as `json.loads` does.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        parse::value(text)
    }

    /// Writes it as `json.dumps(value, ensure_ascii=False)` does, with `", "` and `": "` between the parts.
    pub fn dumps(&self) -> String {
        let mut out = String::new();
        write::value(self, &mut out);
        out
    }

    /// The value of a key; a null value counts as absent.
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Self::Object(entries) => entries.iter().find(|(k, v)| k == key && *v != Self::Null).map(|(_, v)| v),
            _ => None,
        }
    }

    /// What kind of value it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Str(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

/// An object under construction: a key that is there already keeps its place, as in Python's dict.
#[derive(Default)]
struct Entries {
    list: Vec<(String, Json)>,
    places: HashMap<String, usize>,
}

impl Entries {
    fn set(&mut self, key: String, value: Json) {
        if let Some(&place) = self.places.get(&key) {
            self.list[place].1 = value;
        } else {
            self.places.insert(key.clone(), self.list.len());
            self.list.push((key, value));
        }
    }
}

/// From TOML or any other format of serde. Integers beyond 64 bits arrive as floats there; `parse` keeps them.
impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Json;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Json, E> {
        Ok(Json::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Json, E> {
        Ok(Json::Int(v.to_string()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Json, E> {
        Ok(Json::Int(v.to_string()))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Json, E> {
        Ok(Json::Float(v))
    }

    fn visit_str<E>(self, v: &str) -> Result<Json, E> {
        Ok(Json::Str(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Json, E> {
        Ok(Json::Str(v))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut entries = Entries::default();
        while let Some((key, value)) = map.next_entry()? {
            entries.set(key, value);
        }
        Ok(Json::Object(entries.list))
    }
}

#[cfg(test)]
mod tests;
