//! Changes of the most likely id that the head itself makes: C(x') against R(x') on the same streams.
//!
//! What earlier layers did to the streams is on both sides, so the only noise here is that of the head's own formats.
//! A change with a larger margin (swapped ids, a shifted row, a lost tile of the vocabulary) is named whatever stock's
//! end-to-end noise hides: on the whole of the model, noise alone changes many ids.

use karat_diff::logits::first_choices;
use karat_seam::{Block, Phase, Recorder, Site, Tap};

use crate::compare::Context;
use crate::{Result, align, decisions};

/// One gated row a phase, for one sequence of one candidate, in the head of the model or of an MTP block. `golden` is what
/// golden's head saw at x'.
pub(crate) fn rows(
    at: &Context<'_>,
    (block, seq): (Block, u32),
    golden: &Recorder,
    candidate: &Recorder,
) -> Result<Vec<karat_bundle::TapRow>> {
    let site = Site { block, tap: Tap::Logits };
    let (Some(ours), Some(theirs)) = (golden.get(site, seq), candidate.get(site, seq)) else { return Ok(Vec::new()) };
    let rows = align::common(&ours.rows, &theirs.rows);
    let (a, b) = (align::gather(&ours.rows, &ours.tensor, &rows), align::gather(&theirs.rows, &theirs.tensor, &rows));
    let (Some(a), Some(b)) = (a, b) else { return Ok(Vec::new()) };
    let compared = first_choices(&a, &b)?;
    let mut out = Vec::new();
    for phase in [Phase::Prefill, Phase::Decode] {
        let of_phase = || (0..rows.len()).filter(|r| at.phase(site.tap, rows[*r]) == phase);
        let count = of_phase().count();
        if count == 0 {
            continue;
        }
        let sigmas = decisions::sigmas(count * a.width());
        let bound =
            |r: usize| sigmas * std::f64::consts::SQRT_2 * decisions::predicted_noise(at, site.tap, phase, &a, r, None);
        // A NaN margin or noise explains nothing.
        let is_explained = |r: usize| compared[r].flip_margin <= bound(r);
        let is_unexplained = |r: &usize| compared[*r].is_flip && !is_explained(*r);
        let unexplained: Vec<usize> = of_phase().filter(is_unexplained).collect();
        let worst = unexplained.iter().max_by(|a, b| compared[**a].flip_margin.total_cmp(&compared[**b].flip_margin));
        let mut row = at.place.row(site, phase);
        row.part = "argmax-injected".to_string();
        (row.n, row.rows) = (count as u64, count as u64);
        row.max_abs_position = worst.map(|r| u64::from(rows[*r].pos));
        row.gate = "unexplained_flips".to_string();
        row.value = Some(unexplained.len() as f64);
        row.tolerance = Some(0.0);
        out.push(row);
    }
    Ok(out)
}
