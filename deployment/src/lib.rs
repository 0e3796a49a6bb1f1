//! What a running server was asked to do, and what of it can be in effect.
//!
//! Every source (process environment, systemd unit, launch command, `/server_info`, server log, a patch against upstream)
//! is read into facts, each with its evidence: which file, which line, which words. Tables (`data/*.toml`) say what a
//! setting asks for and what follows from it; nothing of an engine is written in code. What isn't seen is `unknown`, never
//! inactive. Values of variables that are named like keys, tokens or passwords are never kept.

mod data;
mod effective;
mod evidence;
mod facts;
mod map;
mod parse;
mod report;
mod rules;
mod scan;
mod secrets;

pub use data::{change_names, change_options, op_names, planned_names};
pub use evidence::{Evidence, Kind};
pub use map::{DiffMap, MappedHunk, map_diff};
pub use report::{
    Claim, Conflict, Contradiction, Note, PatchRow, Report, Requested, Setting, State, Verdict, WatchedFile, diff_text,
    report_text,
};
pub use scan::WordCount;

use karat_model::Result;

/// A file as it was given.
#[derive(Debug, Clone)]
pub struct Source {
    /// What it is.
    pub kind: Kind,
    /// What messages call it: its path as given.
    pub label: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Reads all sources and judges what they ask for. `conflicts` are pairs of patch names that exclude each other, as the
/// registry of contracts has them; the tables know more. `contracts` are the names that have a contract.
///
/// # Errors
/// An input error that names file and line for a source that is not what it was given as, is cut, or is empty.
pub fn verify(sources: &[Source], contracts: &[&str], conflicts: &[(&str, &str)]) -> Result<Report> {
    let mut facts = facts::Facts::default();
    for source in sources {
        parse::read(source, &mut facts)?;
    }
    Ok(rules::judge(facts, contracts, conflicts))
}
