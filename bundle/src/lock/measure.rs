//! The metrics of a run that a baseline keeps.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::{Entry, Lock, Z};
use crate::judge::limits::{Judged, limits};
use crate::policy::{Limit, Metric, Policy};
use crate::{Bundle, TapRow, schema};

/// A largest value scatters more than a norm does: its standard error, relative.
const OF_A_MAXIMUM: f64 = 0.25;

/// The metrics and hashes of a bundle under the policy in its `run`.
///
/// * `tap/SET/PHASE/TAP/UNIT`: the worst gated row of a tap over layers and sequences. n rows of a tensor are n samples
///   of |J|^2, so the relative standard error is 1/sqrt(2n).
/// * `limit/NAME/SET`: each limit of the policy.
/// * `logits/SET/kl` and `logits/SET/flips`: mean KL from golden and share of changed most likely ids.
/// * `recall/SET/lost`: (lost - gained) per answer against golden.
pub fn measure(bundle: &Bundle) -> Lock {
    let policy = &bundle.run.policy;
    let mut metrics: BTreeMap<String, Entry> = BTreeMap::new();
    for row in bundle.taps.iter().filter(|r| is_measured(r)) {
        let new = of_row(row, policy);
        let old = metrics.entry(tap_name(row)).or_insert(new);
        if new.value.is_nan() || new.value > old.value {
            *old = new;
        }
    }
    let evidence = bundle.evidence();
    for j in limits(&evidence, policy).judged {
        metrics.insert(format!("limit/{}/{}", tidy(&j.limit), j.patch_set), of_judged(&j, Some(j.bound)));
    }
    let every = |name: &str, metric| Limit { name: name.into(), metric, max: Some(0.0), ..Limit::default() };
    let limit = vec![every("kl", Metric::Kl), every("flips", Metric::Flips)];
    let asked = Policy { limit, recall_margin: Some(0.5), tolerance: Vec::new(), allow: Vec::new(), ..policy.clone() };
    for j in limits(&evidence, &asked).judged {
        let name = match j.limit.as_str() {
            "kl" | "flips" => format!("logits/{}/{}", j.patch_set, j.limit),
            _ => format!("recall/{}/lost", j.patch_set),
        };
        metrics.insert(name, of_judged(&j, None));
    }
    Lock { hashes: hashes(bundle), reasons: BTreeMap::new(), metrics }
}

/// Rows that hold an error; counts of decisions are in flips.csv and the limits.
fn is_measured(row: &TapRow) -> bool {
    row.value.is_some() && row.tolerance.is_some() && !row.gate.contains("flips")
}

/// The baseline's name for a gated row's metric.
pub fn tap_name(row: &TapRow) -> String {
    let part = if row.part.is_empty() { String::new() } else { format!("#{}", row.part) };
    tidy(&format!("tap/{}/{}/{}{part}/{}", row.patch_set, row.phase, row.tap, row.gate))
}

fn of_row(row: &TapRow, policy: &Policy) -> Entry {
    let value = row.value.unwrap_or(f64::NAN);
    let relative = if row.gate.contains("max") { OF_A_MAXIMUM } else { (2.0 * row.rows.max(1) as f64).sqrt().recip() };
    // What golden's own noise is made of differs from run to run.
    let error = (value * relative).hypot(row.floor.unwrap_or(0.0));
    let limit = row.tolerance.map(|t| t * policy.scale(row));
    Entry { value, n: row.rows, interval: (value - Z * error, value + Z * error), limit }
}

fn of_judged(j: &Judged, limit: Option<f64>) -> Entry {
    let error = j.error.unwrap_or(0.0);
    Entry { value: j.value, n: j.n, interval: (j.value - Z * error, j.value + Z * error), limit }
}

fn hashes(bundle: &Bundle) -> BTreeMap<String, String> {
    let run = &bundle.run;
    let of =
        |text: String| if text.is_empty() { "-".to_string() } else { schema::hex(&Sha256::digest(text.as_bytes())) };
    let kernels = run.kernels.iter().map(|(name, hash)| format!("{name} {hash}\n")).collect();
    let scenarios = run.scenarios.iter().map(|s| format!("{} {}\n", s.name, s.ids_sha256)).collect();
    [
        ("kernels", of(kernels)),
        ("model", of(format!("{}{}", run.model.config_sha256, run.model.weights_sha256))),
        ("policy", run.policy.hash()),
        ("scenarios", of(scenarios)),
    ]
    .map(|(name, hash)| (name.to_string(), hash))
    .into()
}

/// Names stand on one line.
fn tidy(name: &str) -> String {
    name.chars().map(|c| if c.is_control() || c == ':' { '_' } else { c }).collect()
}
