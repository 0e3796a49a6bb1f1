//! One candidate of a lockstep run: a path with what it claims.

use karat_diff::Claims;
use karat_seam::Path;

use crate::predict::PatchSpec;

/// A path that is compared with golden.
pub struct Candidate<'a> {
    /// stock, stock+PATCH, stock+all, or trace.
    pub patch_set: String,
    /// The path.
    pub path: &'a dyn Path,
    /// Number formats that it claims.
    pub claims: Claims,
    /// Speed patches that are on.
    pub patches: Vec<PatchSpec>,
    /// Where it ran: cpu, trace.
    pub backend: String,
    /// How its rows came about.
    pub history: String,
}
