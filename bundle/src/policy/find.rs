//! The tightest policy that a bundle passes, with head-room: what `karat gate --find-tolerances` prints.

use std::collections::BTreeMap;

use super::{Limit, Metric, Policy, Scale, Select, class_of};
use crate::judge::limits::limits;
use crate::{Bundle, TapRow};

/// A scale for rows that show no error at all.
const SMALLEST: f64 = 1e-6;

/// A found policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The policy.
    pub policy: Policy,
    /// Rows that no factor on a tolerance lets pass, by name: counts that must be zero, numbers that are none.
    pub beyond: Vec<String>,
}

/// The tightest policy for the bundle: tolerances by tap class and phase, and limits on logits and recall, each
/// `head_room` times what the bundle shows. A tolerance that would lie under the floors of `min_floors` stays there.
pub fn find(bundle: &Bundle, min_floors: f64, head_room: f64) -> Found {
    let mut beyond = Vec::new();
    let mut scales: BTreeMap<(&'static str, &str), f64> = BTreeMap::new();
    for row in &bundle.taps {
        let Some(need) = need(row, min_floors, head_room) else { continue };
        if !need.is_finite() {
            let place = crate::judge::words::place(&row.layer, &row.tap);
            beyond.push(format!("{place} ({}), {} of {}", row.gate, row.phase, row.patch_set));
            continue;
        }
        let scale = scales.entry((class_of(&row.tap), &row.phase)).or_insert(SMALLEST);
        *scale = scale.max(need);
    }
    let scale = |((class, phase), scale): ((&str, &str), f64)| {
        let scale = rounded_up(scale);
        let reason = if scale > 1.0 { "found: the bundle is over the tables' tolerance" } else { "" };
        let on = Select { class: Some(class.to_string()), phase: Some(phase.to_string()), ..Select::default() };
        Scale { on, scale, reason: reason.to_string() }
    };
    let tolerance = scales.into_iter().map(scale).collect();
    let mut policy = Policy { min_floors, limit: Vec::new(), tolerance, ..Policy::default() };
    for (name, metric, prove) in [
        ("kl", Metric::Kl, true),
        ("largest-kl", Metric::KlMax, false),
        ("added-kl", Metric::AddedKl, true),
        ("flips-beyond-expected", Metric::FlipsBeyondExpected, true),
        ("recall-lost", Metric::RecallLost, false),
    ] {
        let limit = Limit { name: name.to_string(), metric, max: Some(0.0), prove, ..Limit::default() };
        let asked = Policy { limit: vec![limit.clone()], allow: Vec::new(), ..Policy::default() };
        let seen = limits(&bundle.evidence(), &asked).judged;
        let sizes = seen.iter().map(|j| if prove { j.upper.unwrap_or(j.value) } else { j.value });
        let Some(largest) = sizes.reduce(|a, b| if a.is_nan() || a >= b { a } else { b }) else { continue };
        let max = rounded_up(head_room * largest.max(0.0));
        if largest.is_nan() || !max.is_finite() {
            beyond.push(format!("{} is no number", metric.name()));
            continue;
        }
        policy.limit.push(Limit { max: Some(max), ..limit });
    }
    Found { policy, beyond }
}

/// The factor on its tolerance with which a row just passes, head-room included; `None` when it passes under any.
fn need(row: &TapRow, min_floors: f64, head_room: f64) -> Option<f64> {
    let (value, tolerance) = (row.value?, row.tolerance?);
    let floor = row.floor.unwrap_or(0.0);
    if row.nonfinite > 0 || value.is_nan() || tolerance.is_nan() || floor.is_nan() {
        return Some(f64::INFINITY);
    }
    if value <= floor || value <= 0.0 {
        return None.or((tolerance > 0.0).then_some(SMALLEST));
    }
    Some((head_room * value).max(min_floors * floor) / tolerance)
}

/// Up to three digits, never down.
fn rounded_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return value;
    }
    let text = format!("{value:.2e}");
    let near: f64 = text.parse().unwrap_or(value);
    if near >= value {
        return near;
    }
    let step: f64 = text.find('e').map_or(0.0, |e| format!("0.01{}", &text[e..]).parse().unwrap_or(0.0));
    let up: f64 = format!("{:.2e}", near + step).parse().unwrap_or(value);
    up.max(value)
}
