//! One candidate of a lockstep run: a path with what it claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use karat_diff::Claims;
use karat_seam::{Path, Phase, RowId, Tap, Together};

use crate::by_kernel::KernelSide;
use crate::derive::Rules;
use crate::patch_rows::Calls;
use crate::predict::{self, PatchSpec};

/// A plan that somebody says a path has.
#[derive(Clone, Copy)]
pub struct Claimed<'a> {
    /// Its rules.
    pub rules: Rules<'a>,
    /// True where its speed patches were said too; else it is the profile's own plan, and what patches cost is not in it.
    pub is_whole: bool,
}

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
    /// Whether its indexer rotates queries and keys by the Hadamard matrix, in prefill and in decode.
    pub rotates: [bool; 2],
    /// Executions of its patches so far, by patch, where it counts them.
    pub calls: Option<&'a (dyn Fn() -> BTreeMap<String, Calls> + Sync)>,
    /// Paths that it can run with in one weight pass, and which of them it is.
    pub together: Option<(&'a dyn Together, usize)>,
    /// What its roundings can be derived from, where its numeric plan is known.
    pub rules: Option<Rules<'a>>,
    /// Where it is not: the plan that it claims.
    pub claimed: Option<Claimed<'a>>,
    /// The same engine once more, where its own noise is to be measured.
    pub rerun: Option<&'a dyn Path>,
    /// Its kernels, where its patches run as such.
    pub kernels: Option<KernelSide<'a>>,
    /// Rows that it holds, when those may be fewer than all (a trace). What is given to it then does not matter.
    pub holds: Option<Arc<[RowId]>>,
}

impl<'a> Candidate<'a> {
    /// A candidate that computes every row, without patches and without rotation.
    pub fn new(patch_set: impl Into<String>, path: &'a dyn Path, claims: Claims) -> Self {
        let (backend, history) = ("cpu".to_string(), "cold".to_string());
        let patch_set = patch_set.into();
        Self {
            patch_set,
            path,
            claims,
            patches: Vec::new(),
            backend,
            history,
            rotates: [false; 2],
            calls: None,
            together: None,
            rules: None,
            claimed: None,
            rerun: None,
            kernels: None,
            holds: None,
        }
    }

    pub(crate) fn calls(&self) -> BTreeMap<String, Calls> {
        self.calls.map_or_else(BTreeMap::new, |count| count())
    }

    /// True when what was derived tells the whole error of a tap. Of a plan of its own all but what it can't tell; from
    /// the first candidate's plan what no patch reaches.
    pub(crate) fn is_told(&self, tap: Tap, phase: Phase) -> bool {
        match &self.rules {
            Some(rules) => !rules.is_one_draw(tap, phase) && !predict::reaches(&rules.untold(phase), tap),
            None => !predict::is_reached(tap, phase, &self.patches),
        }
    }

    /// True where all its roundings are told, by itself or by somebody.
    pub(crate) fn is_plan_known(&self) -> bool {
        self.rules.is_some() || self.claimed.is_some_and(|claimed| claimed.is_whole)
    }

    pub(crate) fn rotates_in(&self, phase: Phase) -> bool {
        self.rotates[usize::from(phase == Phase::Decode)]
    }
}
