//! Allowances: what may fail for a while, with an owner, a reason and a last day.

use serde::{Deserialize, Serialize};

use super::{Date, Select};
use crate::TapRow;

/// The name under which an allowance means the tolerances of taps.csv.
pub(crate) const TOLERANCE: &str = "tolerance";

/// What may fail until a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    /// The limit that may be broken; `tolerance` for the tolerances of taps.csv.
    #[serde(default = "tolerance")]
    pub limit: String,
    /// Which rows; a limit that is no tap metric is allowed by patch.
    #[serde(default, rename = "where")]
    pub on: Select,
    /// Who answers for it.
    pub owner: String,
    /// Why it is allowed.
    pub reason: String,
    /// The last day on which it holds.
    pub expires: Date,
}

fn tolerance() -> String {
    TOLERANCE.to_string()
}

impl Allowance {
    /// True when it means this failing row of taps.csv.
    pub(crate) fn covers_tap(&self, row: &TapRow) -> bool {
        self.limit == TOLERANCE && self.on.fits_tap(row)
    }

    /// True when it means this limit under this patch set.
    pub(crate) fn covers_limit(&self, limit: &str, set: &str) -> bool {
        self.limit == limit && self.on.fits_set(set)
    }

    /// How messages name it.
    pub fn title(&self) -> String {
        let on = self.on.to_string();
        let on = if on.is_empty() { String::new() } else { format!(" where {on}") };
        format!("the allowance of {} for {}{on}", self.owner, self.limit)
    }
}
