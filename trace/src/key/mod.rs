//! The grammar of keys.
//!
//! ```text
//! key      = sequence "/" ( tap | "rows" ) [ "@" pass ]
//! sequence = 1*( any character but "/", "%" and control characters | "%" 2HEX )     of its UTF-8 bytes
//! tap      = the text of a Site: layers.0.attn.o, logits, state/layers.0.win, mtp.0.out
//! pass     = 1 to 4294967295, without leading zeros; absent for pass 0
//! ```
//!
//! Sequence ids come from people and may hold anything. The escape makes them one component without separators, so a
//! tool that turns keys into file names is not led out of its folder (`.` and `..` are escaped too). Each key has one
//! spelling: an escape that need not be there is refused.

#[cfg(test)]
mod tests;

use std::fmt::{self, Write as _};
use std::str::FromStr;

use karat_seam::Site;

/// A key of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Sequence id, unescaped.
    pub sequence: String,
    /// What of it.
    pub what: What,
    /// 0 for the first time; more for rows computed again.
    pub pass: u32,
}

/// What a tensor of a sequence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// Positions of the rows that are held.
    Rows,
    /// A tap.
    Tap(Site),
}

/// Why a text is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not `SEQUENCE/TAP` at all.
    #[error("no `SEQUENCE/TAP`")]
    Shape,
    /// The sequence is empty, or escaped in another way than this crate does.
    #[error("sequence is not escaped as the format says")]
    Sequence,
    /// Rows without a number of pass, or a number with another spelling.
    #[error("`@` must be followed by a pass from 1")]
    Pass,
    /// A tap that this version doesn't know.
    #[error("unknown tap")]
    Tap,
}

/// Escapes a sequence id. `None` for the empty id, which has no key.
pub fn escape(sequence: &str) -> Option<String> {
    if sequence.is_empty() {
        return None;
    }
    // As a path component `.` and `..` mean a folder.
    let is_dots = matches!(sequence, "." | "..");
    let mut out = String::with_capacity(sequence.len());
    for c in sequence.chars() {
        if matches!(c, '/' | '\\' | '%') || c.is_control() || (is_dots && c == '.') {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                // Writing to a String can't fail.
                let _ = write!(out, "%{byte:02X}");
            }
        } else {
            out.push(c);
        }
    }
    Some(out)
}

/// The id behind an escaped one; `None` when it is not what [`escape`] writes.
pub fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (hex, tail) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?);
        rest = tail;
    }
    let id = String::from_utf8(bytes).ok()?;
    // Only the one spelling: `%41` for `A` and `%2f` for `%2F` are refused.
    (escape(&id)? == text).then_some(id)
}

impl Key {
    /// Key of a tap.
    pub fn tap(sequence: impl Into<String>, site: Site, pass: u32) -> Self {
        Self { sequence: sequence.into(), what: What::Tap(site), pass }
    }

    /// Key of the list of positions.
    pub fn rows(sequence: impl Into<String>, pass: u32) -> Self {
        Self { sequence: sequence.into(), what: What::Rows, pass }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", escape(&self.sequence).unwrap_or_default())?;
        match self.what {
            What::Rows => f.write_str("rows")?,
            What::Tap(site) => write!(f, "{site}")?,
        }
        if self.pass > 0 {
            write!(f, "@{}", self.pass)?;
        }
        Ok(())
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let (sequence, rest) = text.split_once('/').ok_or(KeyError::Shape)?;
        let sequence = unescape(sequence).ok_or(KeyError::Sequence)?;
        let (name, pass) = match rest.split_once('@') {
            None => (rest, 0),
            Some((name, number)) => {
                let pass: u32 = number.parse().map_err(|_| KeyError::Pass)?;
                if pass == 0 || pass.to_string() != number {
                    return Err(KeyError::Pass);
                }
                (name, pass)
            }
        };
        let what = if name == "rows" { What::Rows } else { What::Tap(name.parse().map_err(|_| KeyError::Tap)?) };
        Ok(Self { sequence, what, pass })
    }
}
