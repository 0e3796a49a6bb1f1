//! Statistics of the branches, against those of golden's noisy draws.

use std::collections::BTreeMap;

use karat_bundle::TapRow;
use karat_diff::tolerance::DERIVED;
use karat_seam::{Phase, RowId, Site, Tap};

use super::lanes::OfSequence;
use super::linear::{dot, inverse};
use super::unmix::{Branch, Branches, TAPS};
use crate::compare::Context;

/// Relative noise under which f32 alone is at work.
const SMALLEST: f64 = 1e-6;
/// Standard deviations of a gain's noise that are allowed, before the factor.
const SIGMAS: f64 = 3.5;
/// A row whose noise is so many times the median row's is not told apart well: the branches are nearly parallel there.
const POOR: f64 = 3.0;
/// Experts round what they are given with a scale of the row's own: its place between two powers of two makes one row's error up
/// to twice another's, and noise has the typical one. What no branch can make is of second order in it.
const SCALES: f64 = 2.0;
/// Rows of a phase from which on its quantiles are held against the draws' in that phase alone.
const MANY: usize = 32;

/// What the draws of one sequence say.
pub(super) struct Scale {
    branches: Vec<OfBranch>,
}

/// Of one branch.
struct OfBranch {
    /// Relative noise by row, and that of the median row.
    noise: Vec<f64>,
    /// How blurred the rows of draws are.
    blur: Vec<f64>,
    typical: f64,
    /// What the largest row reaches, of a draw among the others.
    worst: f64,
    /// What quantiles reach, by phase.
    quantiles: [[f64; QUANTILES.len()]; PHASES.len()],
    /// How far an entry's share reaches, in standard deviations.
    entry: f64,
    /// RMS of the draws' gains over what their noise and number of values predict.
    gains: f64,
}

/// Shares of rows that are beyond, and what their rows of the table are called.
const QUANTILES: [(f64, &str); 2] = [(0.1, "tenth"), (0.5, "half")];
const PHASES: [Phase; 2] = [Phase::Prefill, Phase::Decode];

/// Noise of each row, over golden's size there.
fn relative(branch: &Branch) -> Vec<f64> {
    let rows = branch.error.chunks_exact(branch.width.max(1));
    rows.zip(&branch.size).map(|(row, size)| dot(row, row).sqrt() / size.max(f64::MIN_POSITIVE)).collect()
}

fn rms(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0u32), |(s, n), v| (s + v * v, n + 1));
    (sum / f64::from(n.max(1))).sqrt()
}

/// The largest; a NaN is larger than all.
fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |a: f64, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) })
}

/// The value that such a share is beyond.
fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all.len().checked_sub(1 + (all.len() as f64 * share) as usize).map_or(0.0, |i| all[i])
}

/// What a run that is as it should be reaches: as far as the furthest draw, with the factor on top, or as far as one in 100,000
/// goes that is drawn as they were (their logarithms by Student's t), where that is more: few draws of what scatters
/// much say little of how far the next one goes. 0 where no draw has any.
pub(super) fn reach(draws: &[f64]) -> f64 {
    let logs: Vec<f64> = draws.iter().filter(|v| **v > 0.0).map(|v| v.ln()).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n.max(1.0);
    let scatter = (logs.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)).sqrt();
    let chance = (mean + student(logs.len()) * scatter * (1.0 + 1.0 / n.max(1.0)).sqrt()).exp();
    largest(draws.iter().copied().chain((n > 1.0).then_some(chance / DERIVED)))
}

/// Student's t that one in 100,000 is beyond, of at most so many draws: a part of the draws may have no row to tell of.
fn student(draws: usize) -> f64 {
    match draws {
        12.. => 7.1,
        8.. => 10.1,
        6.. => 15.5,
        _ => 22.0,
    }
}

/// Values of some rows.
fn of<'v>(values: &'v [f64], is_in: impl Fn(usize) -> bool + 'v) -> impl Iterator<Item = f64> + 'v {
    values.iter().enumerate().filter(move |(s, _)| is_in(*s)).map(|(_, v)| *v)
}

impl Scale {
    /// `None` with fewer than two draws.
    pub(super) fn of(draws: &[Branches], phases: &[Phase]) -> Option<Self> {
        let branch = |b: usize| {
            let each: Vec<Vec<f64>> = draws.iter().map(|draw| relative(&draw[b])).collect();
            let over = |s: usize, but: Option<usize>| {
                let is_told = |k: usize| Some(k) != but && draws[k][b].blur[s].is_finite();
                rms(each.iter().enumerate().filter(|(k, _)| is_told(*k)).map(|(_, of)| of[s])).max(SMALLEST)
            };
            let noise: Vec<f64> = (0..phases.len()).map(|s| over(s, None)).collect();
            let typical = quantile(noise.iter().copied(), 0.5);
            let blur =
                (0..phases.len()).map(|s| rms(draws.iter().map(|draw| draw[b].blur[s]).filter(|b| b.is_finite())));
            let blur = blur.collect();
            let mut out =
                OfBranch { noise, blur, typical, worst: 0.0, quantiles: Default::default(), entry: 0.0, gains: 1.0 };
            let mut worst = Vec::new();
            let mut quantiles: [[Vec<f64>; QUANTILES.len()]; PHASES.len()] = Default::default();
            for (k, values) in each.iter().enumerate() {
                // Each draw against the others, as the candidate is against all.
                let among: Vec<f64> = values
                    .iter()
                    .enumerate()
                    .map(|(s, v)| v / over(s, Some(k)) / out.blurred(&draws[k][b], s))
                    .collect();
                worst.push(largest(of(&among, |s| out.is_clear(&draws[k][b], s))));
                for (i, phase) in PHASES.into_iter().enumerate() {
                    for (j, (share, _)) in QUANTILES.into_iter().enumerate() {
                        quantiles[i][j].push(quantile(of(&among, |s| phases[s] == phase), share));
                    }
                }
            }
            out.worst = reach(&worst);
            out.quantiles = quantiles.map(|of| of.map(|of| reach(&of)));
            // A phase of few rows has quantiles that chance moves.
            for j in 0..QUANTILES.len() {
                let all = out.quantiles[0][j].max(out.quantiles[1][j]);
                for (i, phase) in PHASES.into_iter().enumerate() {
                    if phases.iter().filter(|p| **p == phase).count() < MANY {
                        out.quantiles[i][j] = all;
                    }
                }
            }
            let mut all = Vec::new();
            let mut furthest = Vec::new();
            for draw in draws {
                for phase in PHASES {
                    all.extend(gains(&draw[b], &out, phases, phase).into_iter().map(|g| g.value / g.noise));
                    furthest.extend(entries(&draw[b], &out, phases, phase).map(|(_, z)| z.abs()));
                }
            }
            (out.entry, out.gains) = (reach(&furthest), rms(all.into_iter()).max(1.0));
            out
        };
        (draws.len() > 1).then(|| Self { branches: (0..TAPS.len()).map(branch).collect() })
    }
}

impl OfBranch {
    /// True for a row that a single one may be judged by.
    fn is_clear(&self, branch: &Branch, s: usize) -> bool {
        branch.is_closed[s] && self.of_row(branch, s) <= POOR * self.typical
    }

    /// How many times the draws' noise of a row is in this branch, whose streams are others: where its ways are nearer to each
    /// other there, all noise of the streams is larger in it.
    fn blurred(&self, branch: &Branch, s: usize) -> f64 {
        let times = branch.blur[s] / self.blur[s];
        if times > 1.0 { times } else { 1.0 }
    }

    /// Relative noise of a row in this branch.
    fn of_row(&self, branch: &Branch, s: usize) -> f64 {
        self.noise[s] * self.blurred(branch, s)
    }
}

/// The gain of one part of a branch: what its value is multiplied by, less one.
struct Gain {
    value: f64,
    /// Standard deviation, if errors of one row's values have nothing to do with each other.
    noise: f64,
    /// What rounding may do to all rows alike.
    bias: f64,
}

/// Gains that explain most of the error over the rows of a phase, each row in units of its noise.
fn gains(branch: &Branch, scale: &OfBranch, phases: &[Phase], phase: Phase) -> Vec<Gain> {
    let (w, n) = (branch.width, branch.parts.len());
    let (mut square, mut right) = (vec![vec![0.0; n]; n], vec![0.0; n]);
    let (mut noise, mut size) = (0.0, vec![0.0; n]);
    for s in (0..phases.len()).filter(|s| phases[*s] == phase) {
        let range = s * w..(s + 1) * w;
        let of_row = (scale.of_row(branch, s) * branch.size[s]).powi(2);
        if !of_row.is_finite() || of_row <= 0.0 {
            continue;
        }
        // The variance of one value of the row.
        let variance = of_row / w as f64;
        noise += (scale.noise[s].min(2.0 * scale.typical) * branch.size[s]).powi(2);
        for i in 0..n {
            let part = &branch.parts[i][range.clone()];
            size[i] += dot(part, part);
            right[i] += dot(part, &branch.error[range.clone()]) / variance;
            for j in 0..n {
                square[i][j] += dot(part, &branch.parts[j][range.clone()]) / variance;
            }
        }
    }
    let Some(inverse) = inverse(&square) else { return Vec::new() };
    // What rounds to a grid errs along its value by the square of its relative error at most. Of parts that one op makes each
    // has the branch's; of others the error may be one's alone.
    let bias = |i: usize| if branch.is_one_op { scale.typical.powi(2) } else { noise / size[i].max(f64::MIN_POSITIVE) };
    (0..n).map(|i| Gain { value: dot(&inverse[i], &right), noise: inverse[i][i].sqrt(), bias: bias(i) }).collect()
}

/// The entry whose share in the rows of a phase is furthest from golden's, in standard deviations.
fn entries(branch: &Branch, scale: &OfBranch, phases: &[Phase], phase: Phase) -> Option<(usize, f64)> {
    let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for (s, along) in branch.along.iter().enumerate().filter(|(s, _)| phases[*s] == phase) {
        let variance = (scale.of_row(branch, s) * branch.size[s]).powi(2) / branch.width as f64;
        for (entry, error, square) in along.iter().filter(|_| variance > 0.0 && variance < f64::INFINITY) {
            let sums = sums.entry(*entry).or_default();
            *sums = (sums.0 + error / variance, sums.1 + square / variance);
        }
    }
    let z = sums
        .into_iter()
        .filter(|(_, (_, square))| *square > 0.0)
        .map(|(entry, (e, square))| (entry, e / square.sqrt()));
    z.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))
}

/// One statistic of a branch in a phase.
struct Found {
    tap: Tap,
    phase: Phase,
    part: &'static str,
    /// Rows, and values, that it is of.
    n: (usize, usize),
    value: f64,
    /// What draws of the noise reach.
    reach: f64,
    /// The row it is about.
    at: Option<usize>,
}

/// All statistics of a candidate's branches. `phases`: of each row; `ratio`: tokens an entry stands for.
fn statistics(found: &Branches, scale: &Scale, phases: &[Phase], rows: &[RowId], ratio: usize) -> Vec<Found> {
    let mut out = Vec::new();
    for ((branch, scale), tap) in found.iter().zip(&scale.branches).zip(TAPS) {
        let each: Vec<f64> = relative(branch).iter().enumerate().map(|(s, v)| v / scale.of_row(branch, s)).collect();
        for (i, phase) in PHASES.into_iter().enumerate() {
            let mine: Vec<usize> = (0..phases.len()).filter(|s| phases[*s] == phase).collect();
            let n = (mine.len(), mine.len() * branch.width);
            // What no draw has a row for can't be told from noise.
            let mut put = |part, value, reach: f64, at| {
                let found = Found { tap, phase, part, n, value, reach, at };
                out.extend((reach != 0.0).then_some(found));
            };
            if mine.is_empty() {
                continue;
            }
            let worst = mine.iter().copied().max_by(|a, b| each[*a].total_cmp(&each[*b]));
            let is_clear = |s: &usize| scale.is_clear(branch, *s) || each[*s].is_nan();
            let clear: Vec<usize> = mine.iter().copied().filter(is_clear).collect();
            if let Some(s) = clear.iter().copied().max_by(|a, b| each[*a].total_cmp(&each[*b])) {
                let of_row = if tap == Tap::AttnOut { 1.0 } else { SCALES };
                put("worst", each[s], of_row * scale.worst, Some(s));
            }
            for (j, (share, name)) in QUANTILES.into_iter().enumerate() {
                put(name, quantile(mine.iter().map(|s| each[*s]), share), scale.quantiles[i][j], worst);
            }
            if let Some((entry, z)) = entries(branch, scale, phases, phase) {
                let last = (entry + 1) * ratio - 1;
                put("entry", z.abs(), scale.entry, rows.iter().position(|r| r.pos as usize == last));
            }
            let gains = gains(branch, scale, phases, phase);
            let allowed = |g: &Gain| SIGMAS * scale.gains * g.noise + g.bias;
            let far = |g: &Gain| if g.value.is_nan() { f64::INFINITY } else { g.value.abs() / allowed(g) };
            if let Some(g) = gains.iter().max_by(|a, b| far(a).total_cmp(&far(b))) {
                put("gain", g.value.abs(), allowed(g), None);
            }
        }
    }
    out
}

/// Rows of the table for one sequence of a candidate.
pub(super) fn rows(
    at: &Context<'_>,
    l: u16,
    rows: &[RowId],
    found: &Branches,
    null: &OfSequence,
    factor: f64,
) -> Vec<TapRow> {
    let phases: Vec<Phase> = rows.iter().map(|row| at.phase(Tap::Out, *row)).collect();
    let found = statistics(found, &null.judge, &phases, rows, at.ratio.unwrap_or(1) as usize);
    let row = |f: Found| TapRow {
        part: format!("unmixed.{}", f.part),
        rows: f.n.0 as u64,
        n: f.n.1 as u64,
        gate: format!("noises_{}", f.part),
        value: Some(f.value),
        tolerance: Some(factor * f.reach),
        basis: "noise lanes".to_string(),
        max_abs_position: f.at.map(|s| u64::from(rows[s].pos)),
        ..at.place.row(Site::layer(l, f.tap), f.phase)
    };
    found.into_iter().map(row).collect()
}
