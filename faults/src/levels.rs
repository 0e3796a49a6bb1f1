//! What is left of a detection where less is seen of the candidate.

use karat_audit::Outcome;
use karat_bundle::judge::row_verdict;
use karat_bundle::{Policy, TapRow, TokenRow, Verdict};

/// Whether a fault is seen at three poorer levels of evidence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Levels {
    /// The streams that leave each layer, and the logits: golden can still run every layer on the candidate's own streams.
    pub layers: bool,
    /// Logits alone.
    pub logits: bool,
    /// The most likely ids of generated positions: what an endpoint says when it is asked for text.
    pub text: bool,
}

/// A mean KL so many times that of the path without a fault counts as seen.
const TIMES: f64 = 4.0;
/// Standard deviations of changed ids beyond those that the path without a fault changes.
const SIGMAS: f64 = 4.0;

impl Levels {
    /// Those of a candidate of a run; `control` is the candidate without a fault. `outputs`: the same run with nothing shown
    /// but what leaves each layer.
    pub(crate) fn of((id, control): (&str, &str), taps: &[TapRow], all: &Outcome, outputs: &Outcome) -> Self {
        let fails = |row: &&TapRow| row_verdict(row, &Policy::default()) == Some(Verdict::Fail);
        let is_own = |row: &&TapRow| row.patch_set == id;
        let is_argmax = |row: &&TapRow| row.part == "argmax";
        let of = |id: &str| all.tokens.iter().filter(|t| t.patch_set == id).collect::<Vec<&TokenRow>>();
        let (own, stock) = (of(id), of(control));
        let mean = |rows: &[&TokenRow]| rows.iter().map(|t| t.kl).sum::<f64>() / rows.len().max(1) as f64;
        // A mean that is no number is as far as can be.
        let is_far = mean(&own) > TIMES * mean(&stock) || mean(&own).is_nan();
        Self {
            layers: outputs.taps.iter().filter(is_own).any(|r| fails(&r)),
            logits: is_far || taps.iter().filter(is_argmax).any(|r| fails(&r)),
            text: more_changes(&own, &stock),
        }
    }
}

/// Among generated positions at which only one of the two says another id than golden, so many more are the candidate's
/// that chance (a coin for each) can't have done it.
fn more_changes(own: &[&TokenRow], stock: &[&TokenRow]) -> bool {
    let (mut only_own, mut only_stock) = (0f64, 0f64);
    for (a, b) in own.iter().zip(stock).filter(|(a, _)| a.phase == "decode") {
        let changes = |t: &TokenRow| t.top1_candidate != t.top1_golden;
        match (changes(a), changes(b)) {
            (true, false) => only_own += 1.0,
            (false, true) => only_stock += 1.0,
            _ => {}
        }
    }
    only_own - only_stock > SIGMAS * (only_own + only_stock).sqrt()
}
