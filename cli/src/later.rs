//! Options of later versions: known by name, so that the message can say that they are not here yet.

use crate::failure::Failure;

/// A refusal that names the version.
fn not_yet(what: &str) -> Failure {
    Failure::usage(format!("`{what}` is not in this version ({}); see `karat --help`", env!("CARGO_PKG_VERSION")))
}

/// Refuses options of later versions that were given.
pub(crate) fn refuse_given(given: &[(&str, bool)]) -> Result<(), Failure> {
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(not_yet(name)),
        None => Ok(()),
    }
}
