//! What single ops err by themselves: golden's op on the operands that the candidate's op was given.
//!
//! The other rows of taps.csv compare from the layer's input on, so that a tap carries all roundings before it; a fault
//! that is smaller than those is lost among them (missing sinks, a transposed mixing matrix, a window that lost rows). An op
//! alone costs its own roundings, which are ten times less behind quantised operands: what the plan says of them is what is
//! allowed (METRICS: the op gate). Only ops without large weights are asked again.

mod cancel;

use karat_bundle::TapRow;
use karat_diff::rows::{Distance, distance};
use karat_diff::tolerance::{Measure, ROUNDINGS, effective_rows, root_sum};
use karat_diff::{Claims, Rounding, Tolerance};
use karat_seam::{Data, Error as SeamError, Layer, Op, Phase, Recorder, RowId, Site, Streams, Tap, Tensor};

use crate::compare::Context;
use crate::derive::{Size, Sizes};
use crate::lockstep::follows_slots;
use crate::predict::free_values;
use crate::{Result, last_place, own_error, rotate};

/// The ops, each with the coarsest rounding that it makes itself. The second says whether it is asked where no plan tells
/// its roundings too.
const OPS: &[(Op, Rounding, bool)] = &[
    (Op::AttnNorm, Rounding::Bf16, false),
    (Op::CompressPool, Rounding::E4m3Pow2Scale, false),
    (Op::IndexPool, Rounding::Mxfp4, false),
    (Op::IndexWeights, Rounding::Bf16Gemm, false),
    (Op::IndexScore, Rounding::Bf16Gemm, false),
    // Probabilities and the result are stored in bf16.
    (Op::Attend, Rounding::Bf16Gemm, true),
    (Op::HcAttnPost, Rounding::Bf16, true),
    (Op::HcFfnPre, Rounding::Bf16Gemm, false),
    (Op::FfnNorm, Rounding::Bf16, false),
    // A bf16 product.
    (Op::Route, Rounding::Bf16Gemm, true),
    (Op::CombineExperts, Rounding::Bf16, true),
    (Op::HcFfnPost, Rounding::Bf16, true),
];

/// What the candidate's plan says about the ops of a layer: sizes of their own roundings, in prefill and in decode.
pub(crate) struct Own([Sizes; 2]);

impl Own {
    /// `None` where the candidate has no rules of its own, or nothing was derived.
    pub(crate) fn of(at: &Context<'_>) -> Option<Self> {
        let predicted = at.candidate.rules.and(at.predicted)?;
        Some(Self([Phase::Prefill, Phase::Decode].map(|p| Sizes::of(predicted.terms_in(p)))))
    }

    /// rel-L2 that the op's own roundings cost at a tap; `None` where that can't be told.
    pub(crate) fn error(&self, at: &Context<'_>, op: Op, tap: Tap, phase: Phase, seq: u32) -> Option<f64> {
        let rules = at.candidate.rules?;
        let Size { spread, own } = self.0[phase as usize].at(tap, seq)?;
        let is_one_draw = op.spec().writes.iter().any(|tap| rules.is_one_draw(*tap, phase));
        (!is_one_draw && !rules.untold(phase).contains(&op)).then(|| root_sum([spread, own]))
    }
}

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
    let plan = Own::of(at);
    for (op, rounding, always) in OPS.iter().filter(|(op, ..)| golden.has_op(*op)) {
        if !always && !plan.as_ref().is_some_and(|_| is_asked(at, *op)) {
            continue;
        }
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
            let site = Site::layer(l, *tap);
            let Some(theirs) = seen.get(site, seq) else { continue };
            if theirs.tensor.shape != golden.shape || theirs.rows.len() != golden.rows() {
                continue;
            }
            let phases: Vec<Phase> = theirs.rows.iter().map(|row| at.phase(*tap, *row)).collect();
            let turns: Vec<bool> =
                phases.iter().map(|p| rotate::is_rotated(*tap) && at.candidate.rotates_in(*p)).collect();
            let golden = rotate::rows(std::borrow::Cow::Borrowed(golden), &turns);
            for phase in [Phase::Prefill, Phase::Decode] {
                let judged =
                    |i: &usize| phases[*i] == phase && !(follows_slots(*tap) && moved.contains(&theirs.rows[*i]));
                let of_phase: Vec<usize> = (0..theirs.rows.len()).filter(judged).collect();
                let Some(found) = found(&golden, &theirs.tensor, &of_phase) else { continue };
                let own = plan.as_ref().and_then(|plan| {
                    let own = plan.error(at, *op, *tap, phase, seq)?;
                    let mut within = within(at, plan, (*op, *tap), phase, seq, &made);
                    if *tap == Tap::AttnIndexScore && within > 0.0 {
                        within *= cancel::of_keys(&operands, &golden, &of_phase);
                    }
                    let cancelled = match op {
                        Op::IndexScore => cancel::cost(at, phase, &operands, &golden, &of_phase),
                        _ => 0.0,
                    };
                    // Where nothing cancels it is a part of what the op costs anyway.
                    Some((own, if cancelled > own { root_sum([within, cancelled]) } else { within }))
                });
                if !always && own.is_none() {
                    continue;
                }
                let mut row = row(at, site, phase, &theirs.rows, &of_phase, found.worst);
                row.part = "op".to_string();
                row.n = (of_phase.len() * golden.width()) as u64;
                gate(&mut row, at, (*op, *tap, *rounding), own, &found);
                out.push(row);
                let is_alone = own.is_some_and(|(_, within)| within == 0.0);
                let rounds_once = is_alone && at.predicted.is_some_and(|p| p.rounds_once(*tap, phase));
                let off = last_place::of(&golden, &theirs.tensor, &of_phase).filter(|_| rounds_once);
                if let Some((p99, worst)) = off {
                    let mut row = self::row(at, site, phase, &theirs.rows, &of_phase, worst);
                    row.part = "op.ulp".to_string();
                    row.ulp_p99 = Some(p99);
                    last_place::gate(&mut row, p99);
                    out.push(row);
                }
            }
        }
    }
    Ok(out)
}

/// Keys that one phase prepared rotated and the other reads as they are: what the candidate showed is not what it scored.
fn is_asked(at: &Context<'_>, op: Op) -> bool {
    op != Op::IndexScore || at.candidate.rotates[0] == at.candidate.rotates[1]
}

fn row(at: &Context<'_>, site: Site, phase: Phase, rows: &[RowId], judged: &[usize], worst: usize) -> TapRow {
    let position = rows.get(worst).map(|row| u64::from(row.pos));
    TapRow { rows: judged.len() as u64, max_abs_position: position, ..at.place.row(site, phase) }
}

fn gate(
    row: &mut TapRow,
    at: &Context<'_>,
    (op, tap, rounding): (Op, Tap, Rounding),
    own: Option<(f64, f64)>,
    found: &Distance,
) {
    let phase = if row.phase == Phase::Decode.name() { Phase::Decode } else { Phase::Prefill };
    // Scores only order entries: to store them in bf16 is nobody's fault.
    let stored = if tap == Tap::AttnIndexScore { Rounding::Bf16.rel_l2() } else { 0.0 };
    let bound = own.map(|(own, within)| root_sum([own, within, stored]));
    // What comes on top of the op's own roundings is in no typical one.
    let on_top = own.filter(|(_, within)| *within > 0.0).and(bound).unwrap_or(0.0);
    let predicted = predicted(at, op, rounding, phase).max(on_top);
    let value = ROUNDINGS * predicted;
    let provisional = Tolerance { measure: Measure::RelL2, value, predicted, rounding, provisional: true };
    let carry = effective_rows(found.carry, free_values(tap, row.n / row.rows.max(1)));
    let tolerance = bound.map_or(provisional, |bound| provisional.tightened(bound, carry));
    row.rel_l2 = Some(found.error);
    row.gate = "rel_l2".to_string();
    row.value = Some(found.error);
    row.predicted = Some(tolerance.predicted);
    row.tolerance = Some(tolerance.value);
    row.ratio_to_predicted = Some(found.error / tolerance.predicted);
    // A bound on the error is no estimate of it.
    row.derived = own.filter(|(_, within)| *within == 0.0 && stored == 0.0).map(|(own, _)| own);
    row.effective_rows = bound.map(|_| carry);
    row.basis = match bound {
        Some(_) if tolerance.provisional => "tighter",
        Some(_) => "derived",
        None => "provisional",
    }
    .to_string();
}

/// The op's rounding, or what is claimed for a patch of it that acts in the phase, if that is more.
fn predicted(at: &Context<'_>, op: Op, rounding: Rounding, phase: Phase) -> f64 {
    let acts = at.candidate.patches.iter().filter(|p| p.ops.contains(&op) && p.phases.contains(&phase));
    acts.map(|p| p.claimed_error).fold(rounding.rel_l2(), f64::max)
}

/// What comes on top of an op's own roundings: another result of the same op, which this one is made of; keys that were
/// prepared in the other phase, where that has another rule.
fn within(at: &Context<'_>, plan: &Own, (op, tap): (Op, Tap), phase: Phase, seq: u32, made: &[(Tap, Tensor)]) -> f64 {
    let of = |tap| plan.error(at, op, tap, phase, seq).unwrap_or(0.0);
    match tap {
        // wt is s over a sum of s, s = sqrt(softplus(logit)): ds/s is half of sigmoid over softplus, half at most.
        Tap::FfnWt => {
            let logits = made.iter().find(|(t, _)| *t == Tap::FfnRouterLogits);
            let rms = logits.and_then(|(_, t)| t.as_f32("logits").ok()).map_or(0.0, |v| {
                (v.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>() / v.len().max(1) as f64).sqrt()
            });
            0.5 * rms * of(Tap::FfnRouterLogits)
        }
        Tap::HcFfnCollapsed => of(Tap::HcFfnPre),
        Tap::AttnIndexScore => {
            let rules = at.candidate.rules.filter(|r| r.numerics[0].index != r.numerics[1].index);
            let size = |sizes: &Sizes| sizes.at(Tap::AttnIndexK, seq).map_or(0.0, |s| root_sum([s.spread, s.own]));
            rules.map_or(0.0, |_| root_sum(plan.0.iter().map(size)))
        }
        _ => 0.0,
    }
}

/// How far one result is off over some rows; `None` as [`distance`], and where the values are no f32.
fn found(golden: &Tensor, theirs: &Tensor, rows: &[usize]) -> Option<Distance> {
    let (Data::F32(g), Data::F32(t)) = (&golden.data, &theirs.data) else { return None };
    distance(g, t, golden.width(), rows)
}

#[cfg(test)]
mod tests;
