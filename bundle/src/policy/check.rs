//! What a policy file must say to mean something.

use super::allow::TOLERANCE;
use super::{CLASSES, FORMAT, Metric, Policy, Select, Table};

/// What is wrong, and in which entry.
pub(super) struct Wrong {
    /// `limit`, `allow`, `tolerance`, or the key of a number; empty for the whole file.
    pub(super) section: &'static str,
    /// Number of the entry within its section.
    pub(super) index: usize,
    pub(super) why: String,
}

impl Policy {
    /// The first thing that is wrong with it.
    pub(super) fn wrong(&self) -> Option<Wrong> {
        let of = |section, index, why: String| Some(Wrong { section, index, why });
        if self.format != FORMAT {
            let found = if self.format.is_empty() { "nothing".to_string() } else { format!("{:?}", self.format) };
            return of("format", 0, format!("format: expected \"{FORMAT}\", found {found}"));
        }
        let is_positive = |v: f64| v > 0.0 && v.is_finite();
        if !is_positive(self.tolerance_scale) {
            let why = format!("tolerance_scale: expected a positive number, found {}", self.tolerance_scale);
            return of("tolerance_scale", 0, why);
        }
        if !(self.min_floors >= 0.0 && self.min_floors.is_finite()) {
            let why = format!("min_floors: expected a number from 0 on, found {}", self.min_floors);
            return of("min_floors", 0, why);
        }
        if !(self.delta > 0.0 && self.delta < 1.0) {
            return of("delta", 0, format!("delta: expected a chance over 0 and under 1, found {}", self.delta));
        }
        if let Some(margin) = self.recall_margin.filter(|m| !(*m > 0.0 && *m < 1.0)) {
            return of(
                "recall_margin",
                0,
                format!("recall_margin: expected a share over 0 and under 1, found {margin}"),
            );
        }
        for (i, scale) in self.tolerance.iter().enumerate() {
            if !is_positive(scale.scale) {
                return of("tolerance", i, format!("scale: expected a positive number, found {}", scale.scale));
            }
            if scale.scale > 1.0 && scale.reason.trim().is_empty() {
                return of("tolerance", i, format!("scale {} widens tolerances: it needs a `reason`", scale.scale));
            }
            if let Some(why) = select(&scale.on, Table::Taps) {
                return of("tolerance", i, why);
            }
        }
        for i in 0..self.limit.len() {
            if let Some(why) = self.wrong_limit(i) {
                return of("limit", i, why);
            }
        }
        for (i, allow) in self.allow.iter().enumerate() {
            for (key, text) in [("owner", &allow.owner), ("reason", &allow.reason)] {
                if text.trim().is_empty() {
                    return of("allow", i, format!("{key}: expected a name or sentence, found nothing"));
                }
            }
            let limit = self.limit.iter().find(|l| l.name == allow.limit);
            if limit.is_none() && ![TOLERANCE, RECALL_MARGIN].contains(&allow.limit.as_str()) {
                let why = format!("limit: no limit of this policy is named `{}` (or `{TOLERANCE}`)", allow.limit);
                return of("allow", i, why);
            }
            // Limits are judged as a whole: only a patch can be allowed to break one.
            let table = if allow.limit == TOLERANCE { Table::Taps } else { Table::Patches };
            if let Some(why) = select(&allow.on, table) {
                return of("allow", i, why);
            }
        }
        None
    }

    fn wrong_limit(&self, i: usize) -> Option<String> {
        let limit = &self.limit[i];
        let name = &limit.name;
        if name.trim().is_empty() || [TOLERANCE, RECALL_MARGIN].contains(&name.as_str()) {
            return Some(format!("name: expected a name of its own, found `{name}`"));
        }
        if self.limit[..i].iter().any(|other| other.name == *name) {
            return Some(format!("name: `{name}` is another limit's already"));
        }
        let bound = match (limit.max, limit.min) {
            (Some(_), Some(_)) | (None, None) => {
                return Some(format!("limit `{name}`: give `max`, or `min`, not both"));
            }
            (_, Some(_)) if limit.metric != Metric::Speedup => {
                return Some(format!("limit `{name}`: `min` is for speedup; {} has a `max`", limit.metric.name()));
            }
            (Some(_), _) if limit.metric == Metric::Speedup => {
                return Some(format!("limit `{name}`: speedup has a `min`: what is asked in return"));
            }
            (max, min) => max.or(min).unwrap_or(f64::NAN),
        };
        if !bound.is_finite() {
            return Some(format!("limit `{name}`: expected a number, found {bound}"));
        }
        select(&limit.on, limit.metric.table())
    }
}

/// The limit that `recall_margin` is, in messages and allowances.
pub(crate) const RECALL_MARGIN: &str = "recall-margin";

/// What is wrong with a selection of rows of a table.
fn select(on: &Select, table: Table) -> Option<String> {
    for (key, value) in on.given() {
        let has = match key {
            "patch" => true,
            "phase" => matches!(table, Table::Taps | Table::Tokens),
            "stratum" => table == Table::Tokens,
            _ => table == Table::Taps,
        };
        if !has {
            return Some(format!("where: {key} says nothing about {}", what(table)));
        }
        let known: Vec<&str> = match key {
            "phase" => vec!["prefill", "decode"],
            "class" => CLASSES.iter().map(|(class, _)| *class).collect(),
            _ => continue,
        };
        if !known.contains(&value) {
            return Some(format!("where: {key}: expected {}, found `{value}`", known.join(", ")));
        }
    }
    None
}

fn what(table: Table) -> &'static str {
    match table {
        Table::Taps => "rows of taps.csv",
        Table::Tokens => "rows of tokens.csv",
        Table::Recall => "recall",
        Table::Patches => "a whole patch",
    }
}
