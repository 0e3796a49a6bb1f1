//! Conversations for audits: scenario files with messages, tools and interruptions, rendered to requests by the real
//! encoder; and plain lists of token ids.

mod cut;
mod file;
pub mod import;
mod library;
pub mod prompt_diff;
mod sequence;
mod tokens;

pub use cut::Cut;
pub use file::Scenario;
pub use library::{Builtin, list};
pub use sequence::Rendered;
pub use tokens::read_tokens;

use karat_model::{Error, Result};

/// Refuses what can't name a sequence: it becomes part of trace keys, csv rows and file names.
fn check_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 200 || !name.chars().all(allowed) {
        return Err(Error::input("this can't name a sequence")
            .expected("1 to 200 ASCII letters, digits, '.', '_' or '-'")
            .found(format!("{:?}", name.chars().take(80).collect::<String>())));
    }
    Ok(())
}
