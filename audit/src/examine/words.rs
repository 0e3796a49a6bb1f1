//! The sentence that a person can act on.

use karat_bundle::{Examination, FirstBad};

/// What, where, since when, how sure, how it looks.
pub(super) fn summary(bad: &FirstBad, found: &Examination, signature: Option<&str>) -> String {
    let layer = match bad.layer.parse::<u16>() {
        Ok(l) => format!("layer {l}"),
        Err(_) => bad.layer.clone(),
    };
    let mut words = match found.op.is_empty() {
        true => format!("{} ({}) of {layer}", bad.tap, bad.op),
        false => format!("op {} of {layer} (tap {})", found.op, found.tap),
    };
    words.push_str(&format!(" under {}, in {} of {}", bad.patch_set, bad.phase, bad.sequence));
    if let Some(at) = bad.position {
        words.push_str(&format!(", worst at position {at}"));
    }
    if !found.op.is_empty() {
        words.push_str(&match found.op_predicted > 0.0 {
            true => format!(
                ": on its own operands it errs by {:.1e}, {:.1} times what its roundings cost",
                found.op_error,
                found.op_error / found.op_predicted
            ),
            false => {
                format!(": on its own operands it decides otherwise in {:.1} % of the rows", 100.0 * found.op_error)
            }
        });
    }
    if let Some(change) = &found.change_point {
        let same = change.layer == bad.layer;
        let place = if same { change.tap.clone() } else { format!("layer {}, {}", change.layer, change.tap) };
        words.push_str(&format!("; along depth errors change at {place} (chance {:.0e})", change.chance));
    }
    if found.kl > 0.0 && !found.op.is_empty() {
        words.push_str(&format!(
            "; golden's op in its place takes {:.0} % of the final KL of {:.1e}",
            100.0 * (found.kl - found.kl_with_golden_op) / found.kl,
            found.kl
        ));
    }
    match signature {
        Some(looks) => words.push_str(&format!("; it looks like {looks}")),
        None if found.signatures.is_empty() => {}
        None => words.push_str(&format!("; it looks like none of {} signatures", found.signatures.len())),
    }
    words
}

/// What to try, by what the error looks like.
pub(super) fn next_step(bad: &FirstBad, found: &Examination, otherwise: &str) -> String {
    let fits = |name: &str| found.signatures.iter().any(|s| s.name == name && s.fits.is_some());
    let advice = [
        ("zeros", "look for an output that is never written, or a mask that is always closed"),
        ("gain", "look for a factor that is applied never or twice: a scale folded into a weight, top-k or combine"),
        ("swapped rows", "look at how rows are permuted and put back: expert slots, batch order, page table"),
        ("stale rows", "look at what invalidates cached rows: slot reuse, a missing synchronisation, an offset of one"),
        ("clamp missing", "look for the limit that this op's epilogue must apply, on each side"),
        ("clamp", "look for a limit that does not belong here, or a saturating conversion"),
        ("coarser grid", "look for a store in a narrower type than the plan has here"),
        ("a set of parts", "look at what is split by these parts: ranks, head groups, expert shards"),
        ("tail of a tile", "look at the bounds of the last tile: masks, rounding up of sizes, vector loads"),
        ("only decode", "compare the decode kernel with the prefill kernel on the same rows"),
        ("after a boundary", "look at what is carried over this boundary: window, pending rows, page reuse"),
        (
            "growing with position",
            "look at what accumulates: a running sum, a position that drifts, a narrow accumulator",
        ),
    ];
    let place = format!("{} of layer {}", if found.op.is_empty() { &bad.op } else { &found.op }, bad.layer);
    match advice.iter().find(|(name, _)| fits(name)) {
        Some((_, advice)) => format!("in {place}, {advice}; {otherwise}"),
        None => otherwise.to_string(),
    }
}
