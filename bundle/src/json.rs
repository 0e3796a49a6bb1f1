//! Numbers in json: json has no NaN and no infinity, so those are written as strings and read back.

/// For `#[serde(with = "json::number")]`.
pub(crate) mod number {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::cell;

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a number, or \"NaN\", \"inf\" or \"-inf\"")]
    enum Either {
        Number(f64),
        Text(String),
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub(crate) fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() { to.serialize_f64(*value) } else { to.serialize_str(&cell::number(*value)) }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        match Either::deserialize(from)? {
            Either::Number(v) => Ok(v),
            Either::Text(t) => cell::parse_number(&t).ok_or_else(|| D::Error::custom(format!("`{t}` is no number"))),
        }
    }
}
