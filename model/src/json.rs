//! JSON read strictly: a key twice in one object is refused, because each reader would pick another of the two.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::{Error, Result};

/// A JSON value without duplicate keys.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, v: bool) -> std::result::Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> std::result::Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> std::result::Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, v: f64) -> std::result::Result<Value, E> {
        Number::from_f64(v).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, v: &str) -> std::result::Result<Value, E> {
        Ok(Value::String(v.to_string()))
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(Strict(v)) = seq.next_element()? {
            out.push(v);
        }
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if out.contains_key(&key) {
                return Err(A::Error::custom(format!("key `{key}` twice in one object")));
            }
            let Strict(v) = map.next_value()?;
            out.insert(key, v);
        }
        Ok(Value::Object(out))
    }
}

/// Parses an object. `what` names the file in messages.
///
/// # Errors
/// Not JSON (with line and column), a key twice, not an object, more than `limit` bytes.
pub fn object(what: &str, bytes: &[u8], limit: usize) -> Result<Map<String, Value>> {
    if bytes.len() > limit {
        return Err(Error::input("file is too large for what it holds")
            .at(what)
            .expected(format!("at most {limit} bytes"))
            .found(format!("{} bytes", bytes.len())));
    }
    // A byte order mark is legal for editors and illegal for JSON: say so instead of "expected value".
    if bytes.starts_with(b"\xEF\xBB\xBF") {
        return Err(Error::input("file starts with a byte order mark").at(what).hint("save it as UTF-8 without BOM"));
    }
    let Strict(value) = serde_json::from_slice(bytes).map_err(|e| {
        let hint = match e.classify() {
            serde_json::error::Category::Eof => "the file seems truncated: download or write it again",
            _ => "check the file at that line",
        };
        Error::input("not valid JSON").at(what).found(e).hint(hint)
    })?;
    match value {
        Value::Object(map) => Ok(map),
        other => Err(Error::input("not a JSON object").at(what).found(kind(&other))),
    }
}

/// A value's JSON type in words.
pub(crate) fn kind(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value as it is shown in messages: short.
pub(crate) fn shown(v: &Value) -> String {
    let text = v.to_string();
    if text.chars().count() > 60 { format!("{}...", text.chars().take(57).collect::<String>()) } else { text }
}
