//! What comparing one candidate in one block leaves: the rows of the tables, and what bears on the rest of the report.

use std::collections::BTreeMap;

use karat_bundle::{DerivationRow, FlipRow, TapRow, TokenRow};

use crate::lockstep::Outcome;
use crate::record::Record;

/// Rows of one candidate in one block, in the order of the tables.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Part {
    pub(crate) taps: Vec<TapRow>,
    pub(crate) derivations: Vec<DerivationRow>,
    pub(crate) tokens: Vec<TokenRow>,
    pub(crate) flips: Vec<FlipRow>,
    /// Error of each patch at its own ops, the largest here.
    pub(crate) own_errors: BTreeMap<String, f64>,
    pub(crate) notes: Vec<String>,
}

impl Part {
    /// Keeps the larger error; a NaN must not vanish in a maximum.
    pub(crate) fn own_error(&mut self, patch: &str, error: f64) {
        keep_worst(&mut self.own_errors, patch.to_string(), error);
    }

    /// Adds what comes after.
    pub(crate) fn extend(&mut self, later: Self) {
        self.taps.extend(later.taps);
        self.derivations.extend(later.derivations);
        self.tokens.extend(later.tokens);
        self.flips.extend(later.flips);
        self.notes.extend(later.notes);
        later.own_errors.iter().for_each(|(patch, error)| self.own_error(patch, *error));
    }
}

impl Outcome {
    /// Adds what a block of a patch set left.
    pub(crate) fn take(&mut self, patch_set: &str, record: Record) {
        for (patch, calls) in record.calls {
            self.calls.entry((patch_set.to_string(), patch)).or_default().add(calls);
        }
        self.asked.extend(record.asked);
        self.take_part(patch_set, record.part);
    }

    /// Adds rows of a patch set.
    pub(crate) fn take_part(&mut self, patch_set: &str, part: Part) {
        self.taps.extend(part.taps);
        self.derivations.extend(part.derivations);
        self.tokens.extend(part.tokens);
        self.flips.extend(part.flips);
        self.notes.extend(part.notes);
        for (patch, error) in part.own_errors {
            keep_worst(&mut self.own_errors, (patch_set.to_string(), patch), error);
        }
    }
}

fn keep_worst<K: Ord>(all: &mut BTreeMap<K, f64>, key: K, error: f64) {
    let worst = all.entry(key).or_insert(error);
    *worst = if error.is_nan() || error > *worst { error } else { *worst };
}
