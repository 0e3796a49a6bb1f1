//! Conversations for audits: scenario files with messages, tools and interruptions, rendered to requests by the real
//! encoder; and plain lists of token ids.

mod ask;
mod at_once;
mod blind;
mod cut;
mod file;
pub mod grammar;
pub mod import;
mod library;
mod live;
mod marked;
pub mod prompt_diff;
mod recipe;
mod sequence;
mod symptom;
mod tokens;
mod write;

pub use ask::Ask;
pub use blind::Blind;
pub use cut::Cut;
pub use file::{Content, Scenario};
pub use library::{Builtin, list, story};
pub use live::{Exchange, Question, Stop, Told};
pub use recipe::{MAKERS, Recipe};
pub use sequence::Rendered;
pub use symptom::{Looks, Symptom, repeats, symptom};
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
