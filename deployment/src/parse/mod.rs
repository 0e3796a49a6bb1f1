//! Readers, one file a kind of source. Each takes bytes as somebody has them and gives facts, or one input error.

mod command;
pub(crate) mod diff;
mod environment;
mod log;
mod maps;
mod python;
mod server_info;
mod unit;
mod words;

use std::borrow::Cow;

use karat_model::{Error, Result};

use crate::evidence::Kind;
use crate::facts::Facts;
use crate::{Source, map};

/// Reads one source into the facts.
pub(crate) fn read(source: &Source, facts: &mut Facts) -> Result<()> {
    let Source { kind, label, bytes } = source;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Error::input(format!("the {} is empty", kind.name())).at(label));
    }
    facts.sources.push((*kind, label.clone()));
    match kind {
        Kind::Environment => environment::read(label, bytes, facts),
        Kind::Unit => unit::read(label, &text(bytes), facts),
        Kind::Command => command::read(Kind::Command, label, &text(bytes), facts),
        Kind::Process => command::read_process(label, bytes, facts),
        Kind::Maps => maps::read(label, &text(bytes), facts),
        Kind::Log => log::read(label, &text(bytes), facts),
        Kind::ServerInfo | Kind::Scheduler => server_info::read(label, bytes, facts),
        Kind::Diff => {
            let mapped = map::map_diff(label, bytes)?;
            match &mut facts.diff {
                None => facts.diff = Some(mapped),
                Some(diff) => diff.hunks.extend(mapped.hunks),
            }
            Ok(())
        }
    }
}

/// Bytes as text; what isn't UTF-8 becomes the replacement character, which no table has.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
