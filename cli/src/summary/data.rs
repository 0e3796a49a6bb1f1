//! The same as json.

use std::collections::BTreeMap;

use karat_bundle::Bundle;
use serde_json::{Value, json};

use crate::output::json_number;

/// `verdict.json` with what a script wants beside it.
pub(crate) fn json(bundle: &Bundle) -> Value {
    let mut value = serde_json::to_value(&bundle.verdict).unwrap_or_default();
    let Some(object) = value.as_object_mut() else { return value };
    let run = &bundle.run;
    object.insert("model".to_string(), serde_json::to_value(&run.model).unwrap_or_default());
    object.insert("scenarios".to_string(), serde_json::to_value(&run.scenarios).unwrap_or_default());
    object.insert("candidate".to_string(), serde_json::to_value(&run.candidate).unwrap_or_default());
    object.insert("judged_rows".to_string(), json!(bundle.taps.iter().filter(|r| r.verdict.is_some()).count()));
    object.insert("patches".to_string(), patches(bundle));
    object.insert("logits".to_string(), logits(bundle));
    object.insert("recall".to_string(), super::recall::data(bundle));
    object.insert("notes".to_string(), json!(run.notes));
    object.insert("wall_s".to_string(), serde_json::to_value(&run.wall_s).unwrap_or_default());
    object.insert("cache".to_string(), serde_json::to_value(&run.cache).unwrap_or_default());
    value
}

fn patches(bundle: &Bundle) -> Value {
    let one = |p: &karat_bundle::PatchRow| {
        json!({
            "patch": p.patch, "claimed_error": json_number(p.claimed_error),
            "measured_error": p.measured_error.map(json_number), "calls_prefill": p.calls_prefill,
            "calls_decode": p.calls_decode, "largest_prefill": p.largest_prefill, "state": p.state, "added_kl": p.added_kl.map(json_number),
            "added_flips": p.added_flips, "verdict": p.verdict.map(karat_bundle::Verdict::name),
            "expected_verdict": p.expected_verdict.map(karat_bundle::Verdict::name),
        })
    };
    json!(bundle.patches.iter().map(one).collect::<Vec<_>>())
}

fn logits(bundle: &Bundle) -> Value {
    let mut sets: BTreeMap<&str, (f64, f64, u64, u64)> = BTreeMap::new();
    for t in &bundle.tokens {
        let set = sets.entry(&t.patch_set).or_insert((0.0, 0.0, 0, 0));
        set.0 += t.kl;
        set.1 = if t.kl > set.1 || t.kl.is_nan() { t.kl } else { set.1 };
        set.2 += u64::from(t.top1_golden != t.top1_candidate);
        set.3 += 1;
    }
    let one = |(set, (sum, max, flips, n)): (&&str, &(f64, f64, u64, u64))| {
        json!({
            "patch_set": set, "mean_kl": json_number(sum / *n as f64), "max_kl": json_number(*max),
            "top1_changed": flips, "positions": n,
        })
    };
    json!(sets.iter().map(one).collect::<Vec<_>>())
}
