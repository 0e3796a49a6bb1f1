//! What the load audit says about a fault that lives in a checkpoint's bytes, before any forward pass.

use std::collections::BTreeMap;
use std::sync::Arc;

use karat_model::Checkpoint;
use karat_model::diff::diff;
use karat_model::verify::verify_memory;

use crate::{Fault, Files};

/// Words of the load audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The first finding from the bytes alone; `None` where they look right.
    pub alone: Option<String>,
    /// The worst tensor against the original, and what it looks like there; a config field where no tensor differs.
    pub against: Option<String>,
}

/// The load audit of a fault's files, or of its donor's, which are what its kernels would have loaded; `None` for a fault
/// that changes no file.
///
/// # Errors
/// The files can't be read at all.
pub(crate) fn of(fault: &Fault, files: &BTreeMap<String, Arc<[u8]>>) -> karat_model::Result<Option<Load>> {
    let Some(edit) = fault.files else { return Ok(None) };
    let mut edited = Files::of(files);
    edit(&mut edited);
    let edited = edited.into_files();
    let report = verify_memory("faulty", edited.clone(), &|_, _| {})?;
    let first = report.findings.first().map(|f| format!("{}: {}", f.tensor, f.error.what));
    let open = |files: BTreeMap<String, Arc<[u8]>>| Checkpoint::from_memory("made", files);
    let against = diff(&open(files.clone())?, &open(edited)?, &|_, _| {})?;
    let worst = against.worst().first().map(|t| {
        let looks = t.looks_like.as_deref().unwrap_or("it differs");
        format!("{}: {looks}", t.name)
    });
    let field = || against.config.first().map(|(name, right, wrong)| format!("{name}: {wrong}, not {right}"));
    Ok(Some(Load { alone: first, against: worst.or_else(field) }))
}
