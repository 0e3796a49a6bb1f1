//! What single ops err by themselves: golden's op on the operands that the candidate's op was given.
//!
//! The other rows of taps.csv compare from the layer's input on, so that a tap carries all roundings before it; a fault
//! that is smaller than those is lost among them (missing sinks, a transposed mixing matrix). An op alone costs its own
//! rounding, which is ten times less behind quantised operands. Only ops without large weights are asked again.

use karat_bundle::TapRow;
use karat_diff::tolerance::ROUNDINGS;
use karat_diff::{Claims, Rounding};
use karat_seam::{Data, Error as SeamError, Layer, Op, Phase, Recorder, Site, Streams, Tap, Tensor};

use crate::compare::Context;
use crate::lockstep::follows_slots;
use crate::{Result, own_error};

/// The ops, each with the coarsest rounding that it makes itself.
const OPS: &[(Op, Rounding)] = &[
    // Probabilities and the result are stored in bf16.
    (Op::Attend, Rounding::Bf16Gemm),
    (Op::HcAttnPost, Rounding::Bf16),
    // A bf16 product.
    (Op::Route, Rounding::Bf16Gemm),
    (Op::CombineExperts, Rounding::Bf16),
    (Op::HcFfnPost, Rounding::Bf16),
];

/// One gated row a result and phase (part `op`) of layer `l` for one sequence. An op whose operands the candidate did
/// not show for every position has none. Nor has a path that claims f32: its taps are judged tighter than this.
pub(crate) fn rows(
    at: &Context<'_>,
    golden: &dyn Layer,
    (l, seq): (u16, u32),
    x: &Streams,
    seen: &Recorder,
) -> Result<Vec<TapRow>> {
    let mut out = Vec::new();
    if at.candidate.claims == Claims::F32 {
        return Ok(out);
    }
    for (op, rounding) in OPS.iter().filter(|(op, _)| golden.has_op(*op)) {
        let none = std::collections::BTreeMap::new();
        let Some((operands, rows)) = own_error::operands(op.spec(), golden, &none, (l, seq), x, seen) else { continue };
        let made = match golden.op(*op, &operands, &rows) {
            Ok(made) => made,
            // Rows that are no whole cold run: other rows of the table judge those.
            Err(SeamError::Unsupported { .. } | SeamError::Request(_) | SeamError::Shape { .. }) => continue,
            Err(other) => return Err(other.into()),
        };
        let chosen = made.iter().find(|(tap, _)| *tap == Tap::FfnIdx).map(|(_, tensor)| tensor);
        let moved = own_error::moved(chosen, seen.get(Site::layer(l, Tap::FfnIdx), seq));
        for (tap, golden) in made.iter().filter(|(tap, _)| !tap.is_discrete()) {
            let Some(theirs) = seen.get(Site::layer(l, *tap), seq) else { continue };
            if theirs.tensor.shape != golden.shape || theirs.rows.len() != golden.rows() {
                continue;
            }
            for phase in [Phase::Prefill, Phase::Decode] {
                let judged = |i: &usize| {
                    let row = theirs.rows[*i];
                    at.phase(*tap, row) == phase && !(follows_slots(*tap) && moved.contains(&row))
                };
                let of_phase: Vec<usize> = (0..theirs.rows.len()).filter(judged).collect();
                let Some((error, worst)) = rel_l2(golden, &theirs.tensor, &of_phase) else { continue };
                let mut row = at.place.row(Site::layer(l, *tap), phase);
                row.part = "op".to_string();
                row.rows = of_phase.len() as u64;
                row.n = (of_phase.len() * golden.width()) as u64;
                row.max_abs_position = Some(u64::from(theirs.rows[worst].pos));
                row.rel_l2 = Some(error);
                row.gate = "rel_l2".to_string();
                row.value = Some(error);
                let predicted = predicted(at, *op, *rounding, phase);
                row.predicted = Some(predicted);
                row.tolerance = Some(ROUNDINGS * predicted);
                row.ratio_to_predicted = Some(error / predicted);
                out.push(row);
            }
        }
    }
    Ok(out)
}

/// The op's rounding, or what is claimed for a patch of it that acts in the phase, if that is more.
fn predicted(at: &Context<'_>, op: Op, rounding: Rounding, phase: Phase) -> f64 {
    let acts = at.candidate.patches.iter().filter(|p| p.ops.contains(&op) && p.phases.contains(&phase));
    acts.map(|p| p.claimed_error).fold(rounding.rel_l2(), f64::max)
}

/// |theirs - golden| / |golden| over some rows, and the row with the largest share of it. `None` for no rows, and where
/// both are zero everywhere. Numbers that are none make the result none: they never vanish.
fn rel_l2(golden: &Tensor, theirs: &Tensor, rows: &[usize]) -> Option<(f64, usize)> {
    let (Data::F32(g), Data::F32(t)) = (&golden.data, &theirs.data) else { return None };
    let width = golden.width();
    let (mut error, mut size, mut worst) = (0.0, 0.0, (f64::NEG_INFINITY, *rows.first()?));
    for &i in rows {
        let (g, t) = (&g[i * width..(i + 1) * width], &t[i * width..(i + 1) * width]);
        let of_row: f64 = g.iter().zip(t).map(|(g, t)| (f64::from(*t) - f64::from(*g)).powi(2)).sum();
        size += g.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>();
        error += of_row;
        // A NaN is the worst, and stays it.
        if of_row > worst.0 || (of_row.is_nan() && !worst.0.is_nan()) {
            worst = (of_row, i);
        }
    }
    (size != 0.0 || error != 0.0).then(|| ((error / size).sqrt(), worst.1))
}

#[cfg(test)]
mod tests;
