//! How one value stands in a csv cell.

use crate::Verdict;

/// A cell that does not hold what its column says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadCell {
    /// Column name.
    pub column: &'static str,
    /// What the column holds.
    pub expected: &'static str,
    /// What the cell holds.
    pub found: String,
}

/// A type that can stand in a cell.
pub trait Cell: Sized {
    /// Word for messages and the schema hash.
    const KIND: &'static str;
    /// The cell's text.
    fn write(&self) -> String;
    /// The value, or `None` when the text is none.
    fn read(text: &str) -> Option<Self>;
}

impl Cell for String {
    const KIND: &'static str = "text";

    fn write(&self) -> String {
        self.clone()
    }

    fn read(text: &str) -> Option<Self> {
        Some(text.to_string())
    }
}

impl Cell for u64 {
    const KIND: &'static str = "count";

    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Cell for i64 {
    const KIND: &'static str = "integer";

    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// The shortest text that reads back to the same bits (of a NaN only that it is one); `NaN`, `inf` and `-inf`.
pub(crate) fn number(value: f64) -> String {
    format!("{value:?}")
}

pub(crate) fn parse_number(text: &str) -> Option<f64> {
    // `parse` also takes `infinity` or `+nan`: other spellings than ours mean that another program wrote the cell.
    match text {
        "NaN" => Some(f64::NAN),
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        _ => text.parse().ok().filter(|v: &f64| v.is_finite()),
    }
}

impl Cell for f64 {
    const KIND: &'static str = "number";

    fn write(&self) -> String {
        number(*self)
    }

    fn read(text: &str) -> Option<Self> {
        parse_number(text)
    }
}

macro_rules! optional {
    ($($ty:ty = $kind:literal,)+) => {$(
        impl Cell for Option<$ty> {
            const KIND: &'static str = $kind;

            fn write(&self) -> String {
                self.as_ref().map(Cell::write).unwrap_or_default()
            }

            fn read(text: &str) -> Option<Self> {
                if text.is_empty() { Some(None) } else { <$ty as Cell>::read(text).map(Some) }
            }
        }
    )+};
}

optional! {
    u64 = "count or nothing",
    i64 = "integer or nothing",
    f64 = "number or nothing",
    Verdict = "verdict or nothing",
}

impl Cell for Verdict {
    const KIND: &'static str = "verdict";

    fn write(&self) -> String {
        self.name().to_string()
    }

    fn read(text: &str) -> Option<Self> {
        Self::from_name(text)
    }
}
