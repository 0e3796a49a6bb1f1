//! `karat.lock`: the accepted baseline, a reviewed file. Sorted text, one line a metric.

mod compare;
mod measure;
mod text;

use std::collections::BTreeMap;

pub use compare::{Change, Comparison, compare};
pub use measure::{measure, tap_name};

/// First line of a baseline that is no comment.
pub const FORMAT: &str = "karat-lock/1";

/// A metric of the baseline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// Its value.
    pub value: f64,
    /// Samples behind it.
    pub n: u64,
    /// Its 95 % interval: another run of the same thing on other inputs of this size lies there.
    pub interval: (f64, f64),
    /// The limit that it was held to; a wider one is a visible change.
    pub limit: Option<f64>,
}

impl Entry {
    /// Standard error.
    fn error(&self) -> f64 {
        (self.interval.1 - self.interval.0) / (2.0 * Z)
    }
}

/// Half width of a 95 % interval in standard errors.
const Z: f64 = 1.959_963_984_540_054;

/// A baseline.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lock {
    /// Hashes of what was measured and how: kernels, model, policy, scenarios. `-` where there is nothing to hash.
    pub hashes: BTreeMap<String, String>,
    /// Why a metric was let get worse, or its limit wider, at the last update.
    pub reasons: BTreeMap<String, String>,
    /// Metrics by name.
    pub metrics: BTreeMap<String, Entry>,
}

impl Lock {
    /// The baseline that takes the place of `old`. What gets worse than noise, and what is held to a wider limit, needs a
    /// reason, which is written down; without one the error names all of that.
    pub fn replacing(mut self, old: Option<&Self>, reason: Option<&str>) -> Result<Self, Vec<String>> {
        let Some(old) = old else { return Ok(self) };
        let mut asks: BTreeMap<String, String> = BTreeMap::new();
        for (name, entry) in &self.metrics {
            let before = old.metrics.get(name).map(|old| old.limit);
            if let Some(before) = before
                && before != entry.limit
                && entry.limit.is_none_or(|now| before.is_some_and(|before| now > before))
            {
                let show = |v: Option<f64>| v.map_or("none".to_string(), |v| format!("{v:.3e}"));
                asks.insert(name.clone(), format!("limit {} becomes {}", show(before), show(entry.limit)));
            }
        }
        for change in compare::changes(old, &self).into_iter().filter(|c| c.is_worse) {
            asks.entry(change.name.clone()).or_insert_with(|| change.to_string());
        }
        let reason = reason.map(|r| r.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|r| !r.is_empty());
        match reason {
            Some(reason) => self.reasons = asks.into_keys().map(|name| (name, reason.clone())).collect(),
            None if asks.is_empty() => {}
            None => return Err(asks.into_iter().map(|(name, what)| format!("{name}: {what}")).collect()),
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
