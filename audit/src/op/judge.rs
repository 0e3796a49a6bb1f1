//! A kernel's results beside golden's and the contract's.

use std::collections::BTreeMap;

use karat_diff::tolerance::{DERIVED, F32_MAX_OVER_MAX, Measure, chance};
use karat_diff::{Claims, Grid, Metrics, RowMetrics, Storage, Tolerance, discrete, measure, rows};
use karat_model::Error as Message;
use karat_optimized::Stock;
use karat_seam::{Data, Tap, Tensor};

use super::{Answer, OpJob, Sides, sides};
use crate::{Result, storage};
use karat_diff::Verdict;

/// What a result is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Golden on the same operands.
    Golden,
    /// The contract on the same operands.
    Contract,
}

impl Side {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Golden => "golden",
            Self::Contract => "contract",
        }
    }
}

/// One result of the op against one side.
#[derive(Debug, Clone)]
pub struct OpRow {
    /// Which result.
    pub tap: Tap,
    /// Against what.
    pub against: Side,
    /// Values compared.
    pub n: u64,
    /// ‖d‖/‖x‖; of decisions the share of rows that chose otherwise.
    pub error: f64,
    /// What the gate bounds: the error, max |d| over max |x| where f32 is claimed, or decisions that nothing explains.
    pub value: f64,
    /// Name of that: `rel_l2`, `max_over_max`, `unexplained_flips`.
    pub gate: &'static str,
    /// Largest |d|.
    pub max_abs: f64,
    /// Largest rel-L2 of a row.
    pub row_max: f64,
    /// The row with it: a token position, or an entry's index.
    pub worst: Option<u32>,
    /// 99th percentile of distance in units of the last place of the element type that was given; `None` for decisions.
    pub ulp_p99: Option<f64>,
    /// Values that are not finite on one side.
    pub nonfinite: u64,
    /// Rows that chose otherwise, and the largest of their margins in golden's scores.
    pub flips: Option<(usize, Option<f64>)>,
    /// What the contract itself errs (against golden), or what adding in another order costs (against the contract).
    pub predicted: Option<f64>,
    /// What it may be; `None`: shown, not judged.
    pub tolerance: Option<f64>,
    /// Golden's own noise, f32 against f64.
    pub floor: Option<f64>,
    /// `None` where nothing is judged.
    pub verdict: Option<Verdict>,
}

/// All rows of an op.
#[derive(Debug, Clone)]
pub struct Judged {
    /// In the order of the op's results; golden first.
    pub rows: Vec<OpRow>,
    /// pass, fail or unproven; `None` where nothing was judged (the contract alone).
    pub verdict: Option<Verdict>,
    /// Sentences for people.
    pub notes: Vec<String>,
}

impl Sides {
    /// The contract against golden: what the number formats cost on these operands. Nothing is judged.
    ///
    /// # Errors
    /// None that the operands can bring about: they were checked.
    pub fn contract_alone(&self, job: &OpJob) -> Result<Judged> {
        let mut rows = Vec::new();
        for (tap, made) in &self.contract {
            let stored = storage(claims(job.stock), *tap);
            rows.push(self.compare(job, *tap, Side::Golden, made, stored)?);
        }
        for row in &mut rows {
            (row.tolerance, row.predicted, row.verdict) = (None, None, None);
        }
        Ok(Judged { rows, verdict: None, notes: Vec::new() })
    }

    /// Somebody's results against both.
    ///
    /// # Errors
    /// None that results of the right shapes can bring about.
    pub fn judge(&self, job: &OpJob, answer: &Answer) -> Result<Judged> {
        let mut rows = Vec::new();
        for (tap, made, code) in &answer.results {
            let stored = code.map_or_else(|| storage(claims(job.stock), *tap), karat_diff::Code::storage);
            for against in [Side::Golden, Side::Contract] {
                // Weights of experts follow the slots that they are in.
                let aligned = (*tap == Tap::FfnWt).then(|| self.aligned(answer, against)).flatten();
                rows.push(self.compare(job, *tap, against, aligned.as_ref().unwrap_or(made), stored)?);
            }
        }
        let worst = |verdict| rows.iter().any(|row| row.verdict == Some(verdict));
        let verdict = match () {
            () if worst(Verdict::Fail) => Verdict::Fail,
            () if worst(Verdict::Unproven) || rows.iter().all(|row| row.verdict.is_none()) => Verdict::Unproven,
            () => Verdict::Pass,
        };
        let mut notes = Vec::new();
        let fails = |row: &OpRow, side| row.against == side && row.verdict == Some(Verdict::Fail);
        if rows.iter().any(|row| fails(row, Side::Contract)) && !rows.iter().any(|row| fails(row, Side::Golden)) {
            notes.push(
                "near enough to golden, but not the contract: it rounds elsewhere, or adds something else".to_string(),
            );
        }
        if rows.iter().all(|row| row.against == Side::Golden || row.verdict.is_none()) {
            notes.push("the contract's distance is shown, not judged: name the patch (--patches) to have it judged, where the op has a rule".into());
        }
        Ok(Judged { rows, verdict: Some(verdict), notes })
    }

    pub(super) fn of(&self, against: Side, tap: Tap) -> Result<&Tensor> {
        let side = if against == Side::Golden { &self.golden } else { &self.contract };
        let found = side.iter().find(|(t, _)| *t == tap).map(|(_, tensor)| tensor);
        Ok(found.ok_or_else(|| Message::input(format!("{} has no {}", against.name(), tap.name())))?)
    }

    /// What golden wrote, in shape and element type: what a result must look like.
    pub fn wanted(&self) -> &[(Tap, Tensor)] {
        &self.golden
    }

    fn compare(&self, job: &OpJob, tap: Tap, against: Side, made: &Tensor, stored: Storage) -> Result<OpRow> {
        let right = self.of(against, tap)?;
        if tap.is_discrete() {
            return self.decisions(tap, against, right, made);
        }
        let measured = measure(tap.name(), right, made, stored, &Grid::of(right))?;
        let (metrics, of_rows) = (Metrics::of(&measured.total), RowMetrics::of(&measured.rows));
        let worst = of_rows.first_nonfinite.or(of_rows.worst);
        let floor = self.floor(tap, right)?;
        let mut row = OpRow {
            tap,
            against,
            n: metrics.n,
            error: metrics.rel_l2,
            value: metrics.rel_l2,
            gate: Measure::RelL2.name(),
            max_abs: metrics.max_abs,
            row_max: of_rows.rel_l2_max,
            worst: worst.map(|i| self.place(tap, i)),
            ulp_p99: metrics.ulp_p99,
            nonfinite: metrics.nonfinite,
            flips: None,
            predicted: None,
            tolerance: None,
            floor: floor.map(|f| f.rel_l2),
            verdict: None,
        };
        let claims = claims(job.stock);
        let rule = self.rule(job, tap)?;
        let tolerance = match against {
            Side::Contract if !sides::acts(job) || rule == 0.0 => return Ok(row),
            Side::Contract => rel_l2(rule, rule),
            Side::Golden => {
                let contract = self.of(Side::Contract, tap)?;
                let contract = if tap == Tap::FfnWt { self.contract_weights() } else { Some(contract.clone()) };
                let cost = match contract {
                    Some(contract) => {
                        let of = measure(tap.name(), right, &contract, stored, &Grid::of(right))?;
                        Metrics::of(&of.total).rel_l2
                    }
                    None => 0.0,
                };
                if claims == Claims::F32 && job.patches.is_empty() || cost == 0.0 {
                    Tolerance::provisional(Claims::F32, tap, floor.map(|f| f.max_over_max))
                } else {
                    let carry = carry(right);
                    // Arithmetic in f32 outside of products is in no rounding of the contract.
                    rel_l2((DERIVED * chance(carry) * cost + rule).max(F32_MAX_OVER_MAX), cost)
                }
            }
        };
        row.gate = tolerance.measure.name();
        row.value = tolerance.measure.of(&metrics);
        (row.predicted, row.tolerance) = (Some(tolerance.predicted), Some(tolerance.value));
        let floor = floor.filter(|_| against == Side::Golden).map(|f| tolerance.measure.of(&f));
        row.verdict = Some(tolerance.judge(&metrics, floor));
        Ok(row)
    }

    /// What a result may be off the contract's by another order of the sums; 0 where the contract gives no numbers.
    fn rule(&self, job: &OpJob, tap: Tap) -> Result<f64> {
        let contract = self.of(Side::Contract, tap)?;
        let Data::F32(values) = &contract.data else { return Ok(0.0) };
        let width = values.len() / contract.rows().max(1);
        let rows = values.chunks_exact(width.max(1)).enumerate().map(|(i, row)| (self.place(tap, i), row));
        Ok(self.sizes.tolerance_of(tap, job.phase, rows))
    }

    /// Golden's own noise at a tap; `None` for decisions, and where f64 decided otherwise.
    fn floor(&self, tap: Tap, golden: &Tensor) -> Result<Option<Metrics>> {
        let Some((_, wide)) = self.floor.iter().find(|(t, _)| *t == tap) else { return Ok(None) };
        if wide.shape != golden.shape {
            return Ok(None);
        }
        let Data::F32(values) = &golden.data else { return Ok(None) };
        let golden = Tensor::f64(golden.shape.clone(), values.iter().map(|v| f64::from(*v)).collect());
        let measured = measure(tap.name(), wide, &golden, Storage::F64, &Grid::of(wide))?;
        Ok(Some(Metrics::of(&measured.total)))
    }

    fn place(&self, tap: Tap, row: usize) -> u32 {
        let of_tokens = if tap.is_per_entry() { None } else { self.positions.get(row).copied() };
        of_tokens.unwrap_or(row as u32)
    }

    fn decisions(&self, tap: Tap, against: Side, right: &Tensor, made: &Tensor) -> Result<OpRow> {
        let scores = self.scores();
        let (found, noise) = match tap {
            // Entries are chosen among the scores that all sides were given.
            Tap::AttnSelected => (discrete::entries(tap.name(), right, made, None)?, 0.0),
            _ => (
                discrete::experts(tap.name(), right, made, scores.as_ref().map(|(s, _)| s))?,
                scores.as_ref().map_or(0.0, |(_, n)| *n),
            ),
        };
        let changed = found.rows_changed();
        let margin = found.flips.iter().filter_map(|flip| flip.margin).reduce(f64::max);
        let unexplained = found.unexplained(noise).count() as u64 + found.invalid();
        let (tolerance, verdict) = match against {
            Side::Golden => (Some(0.0), Some(if unexplained > 0 { Verdict::Fail } else { Verdict::Pass })),
            Side::Contract => (None, None),
        };
        Ok(OpRow {
            tap,
            against,
            n: made.data.len() as u64,
            error: changed as f64 / made.rows().max(1) as f64,
            value: unexplained as f64,
            gate: "unexplained_flips",
            max_abs: 0.0,
            row_max: 0.0,
            worst: found.rows.iter().position(|row| !row.is_same()).map(|i| self.place(tap, i)),
            ulp_p99: None,
            nonfinite: 0,
            flips: Some((changed, margin)),
            predicted: None,
            tolerance,
            floor: None,
            verdict,
        })
    }

    /// Golden's scores that decided about experts, sqrt(softplus(logit)) plus bias, and what the contract's error of a logit makes of
    /// one: ds/dlogit is at most a half. `None` for hash routing: there is no margin.
    fn scores(&self) -> Option<(Tensor, f64)> {
        let bias = self.bias.as_ref()?;
        let logits = |side: &[(Tap, Tensor)]| {
            let found = side.iter().find(|(t, _)| *t == Tap::FfnRouterLogits);
            found.and_then(|(_, t)| if let Data::F32(v) = &t.data { Some((t.shape.clone(), v.clone())) } else { None })
        };
        let ((shape, golden), (_, contract)) = (logits(&self.golden)?, logits(&self.contract)?);
        let score = |(i, x): (usize, &f32)| f64::from(*x).exp().ln_1p().sqrt() as f32 + bias[i % bias.len()];
        let scores = Tensor::f32(shape, golden.iter().enumerate().map(score).collect());
        let squares: f64 = golden.iter().zip(&contract).map(|(g, c)| f64::from(c - g).powi(2)).sum();
        // Where nothing is rounded a last place still is.
        let rms = (squares / golden.len().max(1) as f64).sqrt().max(1e-6);
        Some((scores, 0.5 * rms))
    }

    /// Routing weights of an answer in a side's slots; rows that chose otherwise as that side has them. `None` when nothing differs.
    fn aligned(&self, answer: &Answer, against: Side) -> Option<Tensor> {
        let of = |tap| answer.results.iter().find(|(t, ..)| *t == tap).map(|(_, tensor, _)| tensor);
        let side = (self.of(against, Tap::FfnIdx).ok()?, self.of(against, Tap::FfnWt).ok()?);
        in_slots((of(Tap::FfnIdx)?, of(Tap::FfnWt)?), side)
    }

    /// The contract's routing weights in golden's slots.
    fn contract_weights(&self) -> Option<Tensor> {
        let side = |s| Some((self.of(s, Tap::FfnIdx).ok()?, self.of(s, Tap::FfnWt).ok()?));
        in_slots(side(Side::Contract)?, side(Side::Golden)?)
    }
}

/// Weights in another side's slots: a row that chose other experts is that side's own, so that it counts among decisions alone.
fn in_slots((idx, wt): (&Tensor, &Tensor), (of, like): (&Tensor, &Tensor)) -> Option<Tensor> {
    let (Data::I64(idx), Data::F32(wt), Data::I64(of), Data::F32(own)) = (&idx.data, &wt.data, &of.data, &like.data)
    else {
        return None;
    };
    let k = like.width().max(1);
    let mut out = own.clone();
    for (row, slots) in of.chunks_exact(k).enumerate() {
        let at = row * k..(row + 1) * k;
        let theirs: BTreeMap<i64, f32> = idx[at.clone()].iter().copied().zip(wt[at.clone()].iter().copied()).collect();
        let values: Option<Vec<f32>> = slots.iter().map(|e| theirs.get(e).copied()).collect();
        if let Some(values) = values {
            out[at].copy_from_slice(&values);
        }
    }
    Some(Tensor::f32(like.shape.clone(), out))
}

/// What a profile claims.
fn claims(stock: Stock) -> Claims {
    crate::Subject { stock, patches: Vec::new(), history: karat_optimized::History::Cold }.claims()
}

fn rel_l2(value: f64, predicted: f64) -> Tolerance {
    let rounding = Claims::F32.rounding(Tap::Out);
    Tolerance { measure: Measure::RelL2, value, predicted, rounding, provisional: false }
}

/// Rows that carry the size.
fn carry(right: &Tensor) -> f64 {
    let Data::F32(values) = &right.data else { return 1.0 };
    let all: Vec<usize> = (0..right.rows()).collect();
    rows::distance(values, values, right.width(), &all).map_or(1.0, |d| d.carry)
}
