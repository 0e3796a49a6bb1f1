//! Changed decisions: the candidate's against golden's own on the same layer input, judged by golden's margins.

use std::borrow::Cow;

use karat_bundle::{FlipRow, TapRow};
use karat_diff::discrete::{self, Decisions, Flip};
use karat_diff::logits::expected_flip_probability;
use karat_diff::tolerance::{Measure, root_sum};
use karat_diff::{Claims, Rounding};
use karat_seam::{Error as SeamError, Layer, Op, Phase, Recorded, Recorder, RowId, Site, Tap, Tensor};
use rayon::prelude::*;

use crate::compare::Context;
use crate::facts::LayerFacts;
use crate::index_noise::IndexNoise;
use crate::own_ops::Own;
use crate::{Result, align, predict, slots};

/// A margin under this many standard deviations of the predicted noise (times √2: two scores) is always explained.
const SIGMAS: f64 = 4.0;
/// Chance of one false alarm among all decisions of a tap, when noise alone is at work.
const FALSE_ALARM: f64 = 1e-3;

/// Slope of sqrt(softplus(logit)), at most.
const ROUTER_SLOPE: f64 = 0.32;

/// Compares the decisions of one sequence in one layer. `golden` is the resident golden layer, `on_x2` what it saw at x'
/// with the candidate's decisions: its own decisions follow from its own `ffn.in` and `attn.index_score`.
pub(crate) fn compare(
    at: &Context<'_>,
    (l, seq): (u16, u32),
    golden: &dyn Layer,
    on_x2: &Recorder,
    candidate: &Recorder,
    facts: &LayerFacts,
) -> Result<(Vec<TapRow>, Vec<FlipRow>)> {
    let mut out = (Vec::new(), Vec::new());
    for (tap, op, operand) in
        [(Tap::AttnSelected, Op::Select, Tap::AttnIndexScore), (Tap::FfnIdx, Op::Route, Tap::FfnIn)]
    {
        let Some(theirs) = candidate.get(Site::layer(l, tap), seq) else { continue };
        let Some(own) = own_decisions(golden, on_x2, (l, seq), tap, op, operand)? else { continue };
        let raw = match tap {
            Tap::AttnSelected => on_x2.get(Site::layer(l, Tap::AttnIndexScore), seq),
            _ => on_x2.get(Site::layer(l, Tap::FfnRouterLogits), seq).filter(|_| !facts.hash_routing),
        };
        let deciding = match (tap, raw) {
            (Tap::FfnIdx, Some(raw)) => Some(router_scores(raw, &facts.bias)?),
            (_, raw) => raw.cloned(),
        };
        let operands = IndexNoise::of(on_x2, (l, seq)).filter(|_| tap == Tap::AttnSelected);
        let weights = [on_x2, candidate].map(|seen| seen.get(Site::layer(l, Tap::FfnWt), seq));
        let misordered = match (tap, weights) {
            (Tap::FfnIdx, [Some(ours), Some(shown)]) => {
                let (claims, patches) = (at.candidate.claims, &at.candidate.patches);
                let allowed = |row| predict::tolerance(claims, Tap::FfnWt, at.phase(tap, row), patches, |_| None).value;
                slots::misordered([&own, theirs, ours, shown], allowed)
            }
            _ => Vec::new(),
        };
        let scores = raw.zip(deciding.as_ref());
        let noise = Noise::Layer(operands.as_ref());
        tap_rows(at, Site::layer(l, tap), theirs, (&own, &misordered), scores, &noise, &mut out)?;
    }
    Ok(out)
}

/// The rounding that a score may be stored with before entries are chosen by it.
const STORED: Rounding = Rounding::Bf16;

/// Decisions of the ops alone: golden's, on the operands that the candidate's ops were given. Only what those ops round
/// themselves can change one. Rows of part `op`; none without a plan that tells what they round.
pub(crate) fn own(
    at: &Context<'_>,
    (l, seq): (u16, u32),
    golden: &dyn Layer,
    candidate: &Recorder,
    facts: &LayerFacts,
) -> Result<Vec<TapRow>> {
    let Some(plan) = Own::of(at) else { return Ok(Vec::new()) };
    let mut out = (Vec::new(), Vec::new());
    for (tap, op, operand) in
        [(Tap::AttnSelected, Op::Select, Tap::AttnIndexScore), (Tap::FfnIdx, Op::Route, Tap::FfnIn)]
    {
        let (Some(theirs), Some(input)) =
            (candidate.get(Site::layer(l, tap), seq), candidate.get(Site::layer(l, operand), seq))
        else {
            continue;
        };
        if !golden.has_op(op) {
            continue;
        }
        let made = match golden.op(op, &[(operand, input.tensor.clone())], &input.rows) {
            Ok(made) => made,
            Err(SeamError::Unsupported { .. } | SeamError::Request(_) | SeamError::Shape { .. }) => continue,
            Err(other) => return Err(other.into()),
        };
        let of = |tap| made.iter().find(|(t, _)| *t == tap).map(|(_, t)| t.clone());
        let recorded = |tensor| Recorded { rows: input.rows.clone(), tensor };
        let Some(own) = of(tap).map(recorded) else { continue };
        let raw = match tap {
            Tap::AttnSelected => Some(input.clone()),
            _ => of(Tap::FfnRouterLogits).map(recorded).filter(|_| !facts.hash_routing),
        };
        let deciding = match (tap, &raw) {
            (Tap::FfnIdx, Some(raw)) => Some(router_scores(raw, &facts.bias)?),
            (_, raw) => raw.clone(),
        };
        let noise = |phase, raw: &Tensor, row| {
            let values = row_values(raw, row).into_iter().filter(|v| v.is_finite());
            let (squares, top, n) =
                values.fold((0.0, 0.0, 0u32), |(s, m, n), v| (s + v * v, f64::max(m, v.abs()), n + 1));
            match tap {
                Tap::AttnSelected => STORED.rel_l2() * top,
                _ => {
                    let relative = plan.error(at, op, Tap::FfnRouterLogits, phase, seq).unwrap_or(0.0).max(F32);
                    ROUTER_SLOPE * relative * (squares / f64::from(n.max(1))).sqrt()
                }
            }
        };
        let scores = raw.as_ref().zip(deciding.as_ref());
        tap_rows(at, Site::layer(l, tap), theirs, (&own, &[]), scores, &Noise::Own(&noise), &mut out)?;
    }
    out.0.iter_mut().for_each(|row| row.part = "op".to_string());
    Ok(out.0)
}

/// Relative error of f32 products.
const F32: f64 = 1e-6;

/// Where the noise of a deciding score comes from.
enum Noise<'a> {
    /// Everything from the layer's input on; of entries by golden's operands, where those are known.
    Layer(Option<&'a IndexNoise<'a>>),
    /// The op alone: by phase, raw scores and row.
    Own(&'a (dyn Fn(Phase, &Tensor, usize) -> f64 + Sync)),
}

/// What golden itself decides at x'.
fn own_decisions(
    golden: &dyn Layer,
    on_x2: &Recorder,
    (l, seq): (u16, u32),
    tap: Tap,
    op: Op,
    operand: Tap,
) -> Result<Option<Recorded>> {
    // Without scores (HCA sees every visible entry) nothing was forced: what the lane saw is golden's own.
    let Some(input) = on_x2.get(Site::layer(l, operand), seq).filter(|_| golden.has_op(op)) else {
        return Ok(on_x2.get(Site::layer(l, tap), seq).cloned());
    };
    let written = match golden.op(op, &[(operand, input.tensor.clone())], &input.rows) {
        Ok(written) => written,
        Err(karat_seam::Error::Unsupported { .. }) => return Ok(None),
        Err(other) => return Err(other.into()),
    };
    let tensor = written.into_iter().find(|(t, _)| *t == tap).map(|(_, tensor)| tensor);
    Ok(tensor.map(|tensor| Recorded { rows: input.rows.clone(), tensor }))
}

/// Scores that decide which experts run: sqrt(softplus(logit)) + bias (spec 2.11), in f64.
fn router_scores(logits: &Recorded, bias: &[f32]) -> Result<Recorded> {
    let values = logits.tensor.as_f32("ffn.router_logits")?;
    let width = logits.tensor.width().max(1);
    let bias = |e: usize| f64::from(bias.get(e).copied().unwrap_or(0.0));
    let score = |(i, &v): (usize, &f32)| router_score(f64::from(v)) + bias(i % width);
    let scores = values.iter().enumerate().map(score).collect();
    Ok(Recorded { rows: logits.rows.clone(), tensor: Tensor::f64(logits.tensor.shape.clone(), scores) })
}

/// sqrt(softplus(logit)).
pub(crate) fn router_score(logit: f64) -> f64 {
    softplus(logit).sqrt()
}

fn softplus(v: f64) -> f64 {
    if v > 0.0 { v + (-v).exp().ln_1p() } else { v.exp().ln_1p() }
}

fn tap_rows(
    at: &Context<'_>,
    site: Site,
    theirs: &Recorded,
    (own, misordered): (&Recorded, &[RowId]),
    scores: Option<(&Recorded, &Recorded)>,
    from: &Noise<'_>,
    out: &mut (Vec<TapRow>, Vec<FlipRow>),
) -> Result<()> {
    let rows = align::common(&own.rows, &theirs.rows);
    let width = own.tensor.width().max(theirs.tensor.width());
    let name = site.to_string();
    let (Some(g), Some(c)) = (align::take(site.tap, own, &rows, width), align::take(site.tap, theirs, &rows, width))
    else {
        return Ok(());
    };
    let score_tap = if site.tap == Tap::AttnSelected { Tap::AttnIndexScore } else { Tap::FfnRouterLogits };
    let score_width = if site.tap == Tap::AttnSelected { width } else { 0 };
    let (raw, scores) = scores.unzip();
    let pick =
        |s: Option<&'_ Recorded>| s.and_then(|s| align::take(score_tap, s, &rows, score_width).map(Cow::into_owned));
    let (raw, scores) = (pick(raw), pick(scores));
    let score_size = raw.as_ref().map_or(1, Tensor::width);
    let decisions = match site.tap {
        Tap::AttnSelected => discrete::entries(&name, &g, &c, scores.as_ref())?,
        _ => discrete::experts(&name, &g, &c, scores.as_ref())?,
    };
    let noise = |flip: &Flip, phase: Phase| {
        let operands = match from {
            Noise::Own(noise) => return Some(noise(phase, raw.as_ref()?, flip.row)),
            Noise::Layer(operands) => operands,
        };
        let pair = operands.and_then(|o| o.of_pair(at, phase, flip.row, [flip.golden, flip.candidate]));
        pair.or_else(|| {
            let own = derived(at, score_tap, &rows, flip.row);
            Some(predicted_noise(at, score_tap, phase, raw.as_ref()?, flip.row, own))
        })
    };
    let noises: Vec<Option<f64>> =
        decisions.flips.par_iter().map(|flip| noise(flip, at.phase(site.tap, rows[flip.row]))).collect();
    for phase in [Phase::Prefill, Phase::Decode] {
        let mine = |row: usize| at.phase(site.tap, rows[row]) == phase;
        let of_phase: Vec<usize> = (0..rows.len()).filter(|r| mine(*r)).collect();
        if of_phase.is_empty() {
            continue;
        }
        let mut row = tap_row(at, site, phase, &decisions, &of_phase, &rows, &noises, of_phase.len() * score_size);
        let misplaced: Vec<u32> =
            misordered.iter().filter(|r| at.phase(site.tap, **r) == phase).map(|r| r.pos).collect();
        row.value = row.value.map(|value| value + misplaced.len() as f64);
        row.max_abs_position = row.max_abs_position.or(misplaced.first().map(|pos| u64::from(*pos)));
        out.0.push(row);
        for (flip, noise) in decisions.flips.iter().zip(&noises).filter(|(f, _)| mine(f.row)) {
            out.1.push(flip_row(at, site, phase, flip, rows[flip.row], *noise));
        }
    }
    Ok(())
}

/// Standard deviation of one deciding score that the claimed formats must cost, from the size of the row's raw scores.
///
/// An index score is a product of two quantised vectors: measured on random data, its error is 0.18 of the scores' size
/// with FP4 operands and 0.045 with FP8 (spec 2.8). Otherwise the tap's predicted error is taken. Experts are decided
/// by sqrt(softplus(logit)), whose slope is at most 0.32. `derived` is what the plan's roundings cost this row's scores, as
/// a relative error: where the layer amplifies what it rounds, that is more than one rounding. Patches bring errors of
/// their own on top, which add up in squares.
pub(crate) fn predicted_noise(
    at: &Context<'_>,
    score: Tap,
    phase: Phase,
    raw: &Tensor,
    row: usize,
    derived: Option<f64>,
) -> f64 {
    let claims = at.candidate.claims;
    let tolerance = predict::tolerance(claims, score, phase, &at.candidate.patches, |_| None);
    let one = tolerance.value / karat_diff::tolerance::ROUNDINGS;
    let predicted = match derived {
        Some(derived) => {
            let claimed = predict::claimed(score, phase, &at.candidate.patches);
            // A plan of its own has its patches' roundings in it.
            let apart = !(at.candidate.rules.is_some() && at.candidate.is_told(score, phase));
            one.max(root_sum(claimed.filter(|_| apart).chain([derived])))
        }
        None => one,
    };
    let relative = match (score, claims) {
        (Tap::AttnIndexScore, Claims::Official) => predicted.max(0.18),
        (Tap::AttnIndexScore, Claims::Sglang | Claims::Vllm) => predicted.max(0.045),
        (Tap::FfnRouterLogits, _) => ROUTER_SLOPE * predicted,
        _ => predicted,
    };
    let values = row_values(raw, row);
    let finite: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    let size = match tolerance.measure {
        Measure::MaxOverMax => finite.iter().fold(0.0, |m: f64, v| m.max(v.abs())),
        Measure::RelL2 => (finite.iter().map(|v| v * v).sum::<f64>() / finite.len().max(1) as f64).sqrt(),
    };
    relative * size
}

/// Relative error that the plan's roundings cost a row of scores: of the row itself or of all rows, whichever is more (one
/// draw of noise may be small).
fn derived(at: &Context<'_>, score: Tap, rows: &[RowId], row: usize) -> Option<f64> {
    let predicted = at.predicted?;
    let (own, _) = predicted.over(score, rows.get(row).into_iter())?;
    let (all, _) = predicted.over(score, rows.iter())?;
    Some(own.max(all))
}

fn row_values(tensor: &Tensor, row: usize) -> Vec<f64> {
    let range = row * tensor.width()..(row + 1) * tensor.width();
    match &tensor.data {
        karat_seam::Data::F32(v) => v[range].iter().map(|&v| f64::from(v)).collect(),
        karat_seam::Data::F64(v) => v[range].to_vec(),
        _ => Vec::new(),
    }
}

/// So many standard deviations can noise alone reach where `compared` decisions were looked at: the largest of so many
/// noises is larger than one is (a union bound).
pub(crate) fn sigmas(compared: usize) -> f64 {
    (2.0 * (2.0 * compared.max(1) as f64 / FALSE_ALARM).ln()).sqrt().max(SIGMAS)
}

fn is_explained(flip: &Flip, noise: Option<f64>, compared: usize) -> bool {
    let sigmas = sigmas(compared);
    let bound = noise.map(|s| sigmas * s * std::f64::consts::SQRT_2);
    matches!((flip.margin, bound), (Some(m), Some(b)) if m <= b)
}

fn tap_row(
    at: &Context<'_>,
    site: Site,
    phase: Phase,
    decisions: &Decisions,
    of_phase: &[usize],
    rows: &[RowId],
    noises: &[Option<f64>],
    compared: usize,
) -> TapRow {
    let mut row = at.place.row(site, phase);
    row.rows = of_phase.len() as u64;
    row.n = of_phase.iter().map(|r| u64::from(decisions.rows[*r].golden)).sum();
    let invalid: u64 = of_phase.iter().map(|r| u64::from(decisions.rows[*r].invalid)).sum();
    let unexplained: Vec<&Flip> = decisions
        .flips
        .iter()
        .zip(noises)
        .filter(|(f, noise)| of_phase.binary_search(&f.row).is_ok() && !is_explained(f, **noise, compared))
        .map(|(flip, _)| flip)
        .collect();
    let worst = unexplained.iter().max_by(|a, b| {
        let size = |f: &Flip| f.margin.unwrap_or(f64::INFINITY);
        size(a).total_cmp(&size(b))
    });
    row.max_abs_position = worst.map(|f| u64::from(rows[f.row].pos));
    row.gate = "unexplained_flips".to_string();
    row.value = Some(unexplained.len() as f64 + invalid as f64);
    row.tolerance = Some(0.0);
    row
}

fn flip_row(at: &Context<'_>, site: Site, phase: Phase, flip: &Flip, row: RowId, noise: Option<f64>) -> FlipRow {
    let choice = |c: Option<u32>| c.map_or(-1, i64::from);
    let margin = flip.margin.unwrap_or(f64::INFINITY);
    FlipRow {
        scenario: at.place.scenario.to_string(),
        sequence: at.place.sequence.to_string(),
        history: at.candidate.history.clone(),
        layer: at.place.layer(site.block),
        kind: if site.tap == Tap::AttnSelected { "entry" } else { "expert" }.to_string(),
        position: u64::from(row.pos),
        golden: choice(flip.golden),
        candidate: choice(flip.candidate),
        margin,
        predicted_noise: noise,
        expected_probability: noise.map(|s| expected_flip_probability(margin, s)),
        patch_set: at.candidate.patch_set.clone(),
        phase: phase.name().to_string(),
    }
}
