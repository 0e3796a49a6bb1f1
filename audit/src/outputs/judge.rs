//! Statistics of the branches, against those of golden's noisy draws.

use std::collections::{BTreeMap, BTreeSet};

use karat_bundle::{TapRow, student_quantile};
use karat_diff::tolerance::DERIVED;
use karat_seam::{Phase, RowId, Site};

use super::linear::{dot, inverse};
use super::unmix::{Branch, Branches, TAPS};
use crate::place::Place;

/// Relative noise under which f32 alone is at work.
const SMALLEST: f64 = 1e-6;
/// The chance that any statistic of a run that is as it should be is beyond its limit, if they are drawn as golden's are: all have
/// the same share of it (Bonferroni).
const CHANCE: f64 = 0.002;
/// A row whose noise is so many times the median row's is not told apart well: the branches are nearly parallel there.
const POOR: f64 = 3.0;
/// Experts round what they are given with a scale of the row's own: its place between two powers of two makes one row's error up
/// to twice another's, and all its values err alike by it, along a gain; noise has the typical one, value by value. What no
/// branch can make is of second order in it.
const SCALES: f64 = 2.0;

/// Shares of rows that are beyond, and what their rows of the table are called.
const QUANTILES: [(f64, &str); 2] = [(0.1, TENTH), (0.5, "half")];
const TENTH: &str = "tenth";
/// A tenth of fewer than twice so many rows is one of them.
const TEN: usize = 10;
/// Attention's place in [`TAPS`].
const ATTENTION: usize = 0;
const WORST: &str = "worst";
const GAIN: &str = "gain";
const PHASES: [Phase; 2] = [Phase::Prefill, Phase::Decode];

/// How large the noise of the rows of one sequence is.
pub(super) struct Scale(Vec<OfBranch>);

/// Of one branch.
struct OfBranch {
    /// Relative noise by row, and that of the median row.
    noise: Vec<f64>,
    /// How blurred the rows of draws are.
    blur: Vec<f64>,
    typical: f64,
}

fn rms(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0u32), |(s, n), v| (s + v * v, n + 1));
    (sum / f64::from(n.max(1))).sqrt()
}

/// The value that such a share is beyond.
fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all.len().checked_sub(1 + (all.len() as f64 * share) as usize).map_or(0.0, |i| all[i])
}

impl Scale {
    pub(super) fn of(draws: &[&Branches]) -> Self {
        let branch = |b: usize| {
            let rows = draws.first().map_or(0, |draw| draw[b].off.len());
            let told = |s: usize| draws.iter().map(move |draw| &draw[b]).filter(move |of| of.blur[s].is_finite());
            let noise: Vec<f64> = (0..rows).map(|s| rms(told(s).map(|of| of.off[s])).max(SMALLEST)).collect();
            let blur = (0..rows).map(|s| rms(told(s).map(|of| of.blur[s]))).collect();
            OfBranch { blur, typical: quantile(noise.iter().copied(), 0.5), noise }
        };
        Self((0..TAPS.len()).map(branch).collect())
    }
}

impl OfBranch {
    /// True for a row that a single one may be judged by.
    fn is_clear(&self, branch: &Branch, s: usize) -> bool {
        branch.is_closed[s] && self.of_row(branch, s) <= POOR * self.typical
    }

    /// Relative noise of a row in this branch: that of the draws, and as many times more as its streams' ways are nearer to
    /// each other, since all noise of the streams is larger in it then.
    fn of_row(&self, branch: &Branch, s: usize) -> f64 {
        let times = branch.blur[s] / self.blur[s];
        self.noise[s] * if times > 1.0 { times } else { 1.0 }
    }

    /// The variance of one value of a row, and the row's weight among others: over that, or over what the row itself is off
    /// by where this is more, so that no single row carries a sum. `None` for a row that tells nothing.
    fn weight(&self, branch: &Branch, s: usize) -> Option<(f64, f64)> {
        let of = |relative: f64| (relative * branch.size[s]).powi(2) / branch.width as f64;
        let variance = of(self.of_row(branch, s));
        let is_told = variance.is_finite() && variance > 0.0;
        is_told
            .then(|| (variance, 1.0 / if branch.off[s].is_nan() { variance } else { variance.max(of(branch.off[s])) }))
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

/// Gains that explain most of the error over these rows.
fn gains(branch: &Branch, scale: &OfBranch, rows: &[usize]) -> Vec<Gain> {
    let (w, n) = (branch.width, branch.parts.len());
    let (mut square, mut spread, mut right) = (vec![vec![0.0; n]; n], vec![vec![0.0; n]; n], vec![0.0; n]);
    let (mut noise, mut size) = (0.0, vec![0.0; n]);
    for s in rows.iter().copied() {
        let Some((variance, weight)) = scale.weight(branch, s) else { continue };
        let range = s * w..(s + 1) * w;
        noise += (scale.noise[s].min(2.0 * scale.typical) * branch.size[s]).powi(2);
        for i in 0..n {
            let part = &branch.parts[i][range.clone()];
            size[i] += dot(part, part);
            right[i] += dot(part, &branch.error[range.clone()]) * weight;
            for j in 0..n {
                let both = dot(part, &branch.parts[j][range.clone()]) * weight;
                square[i][j] += both;
                spread[i][j] += both * weight * variance;
            }
        }
    }
    let Some(inverse) = inverse(&square) else { return Vec::new() };
    let noise_of = |i: usize| {
        let through: Vec<f64> = (0..n).map(|j| dot(&spread[j], &inverse[i])).collect();
        dot(&inverse[i], &through).sqrt()
    };
    // What rounds to a grid errs along its value by the square of its relative error at most. Of parts that one op makes each
    // has the branch's; of others, the experts, the error may be one's alone, and what goes through the bend of their gate errs
    // by as much again.
    let bias =
        |i: usize| if branch.is_one_op { scale.typical.powi(2) } else { 2.0 * noise / size[i].max(f64::MIN_POSITIVE) };
    (0..n).map(|i| Gain { value: dot(&inverse[i], &right), noise: noise_of(i), bias: bias(i) }).collect()
}

/// The entry whose share in these rows is furthest from golden's, in standard deviations.
fn entry(branch: &Branch, scale: &OfBranch, rows: &[usize]) -> Option<(usize, f64)> {
    let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for s in rows.iter().copied() {
        let Some((variance, weight)) = scale.weight(branch, s) else { continue };
        for (entry, error, square) in branch.along.get(s).into_iter().flatten() {
            let sums = sums.entry(*entry).or_default();
            *sums = (sums.0 + error * weight, sums.1 + square * weight * weight * variance);
        }
    }
    let far =
        sums.into_iter().filter(|(_, (_, square))| *square > 0.0).map(|(at, (e, square))| (at, e / square.sqrt()));
    far.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))
}

/// Which statistic: place in [`TAPS`], phase, name, and of a gain which part's.
pub(super) type Name = (usize, Phase, &'static str, usize);

/// One statistic of a branch in a phase.
pub(super) struct Statistic {
    pub(super) name: Name,
    /// In units of noise, as golden's draws have it.
    value: f64,
    /// What is no noise, in the same unit.
    bias: f64,
    /// The unit.
    unit: f64,
    /// Rows, and values, that it is of.
    n: (usize, usize),
    /// The row it is about.
    at: Option<usize>,
}

/// All statistics of one sequence taken apart: of gains one a part, of all others one a branch and phase. `phases`: of each
/// row; `ratio`: tokens an entry stands for.
pub(super) fn statistics(
    found: &Branches,
    scale: &Scale,
    phases: &[Phase],
    rows: &[RowId],
    ratio: usize,
) -> Vec<Statistic> {
    let mut out = Vec::new();
    for (b, (branch, scale)) in found.iter().zip(&scale.0).enumerate() {
        let each: Vec<f64> = (0..phases.len()).map(|s| branch.off[s] / scale.of_row(branch, s)).collect();
        for phase in PHASES {
            let mine: Vec<usize> = (0..phases.len()).filter(|s| phases[*s] == phase).collect();
            let n = (mine.len(), mine.len() * branch.width);
            let new = |part, value, at| Statistic { name: (b, phase, part, 0), value, bias: 0.0, unit: 1.0, n, at };
            let furthest = |of: &mut dyn Iterator<Item = usize>| of.max_by(|a, b| each[*a].total_cmp(&each[*b]));
            let Some(worst) = furthest(&mut mine.iter().copied()) else { continue };
            let is_clear = |s: &usize| scale.is_clear(branch, *s) || each[*s].is_nan();
            if let Some(s) = furthest(&mut mine.iter().copied().filter(is_clear)) {
                out.push(new(WORST, each[s], Some(s)));
            }
            for (share, name) in QUANTILES {
                out.push(new(name, quantile(mine.iter().map(|s| each[*s]), share), Some(worst)));
            }
            if let Some((entry, z)) = entry(branch, scale, &mine) {
                let last = (entry + 1) * ratio - 1;
                out.push(new("entry", z.abs(), rows.iter().position(|r| r.pos as usize == last)));
            }
            for (part, g) in gains(branch, scale, &mine).into_iter().enumerate() {
                let new = new(GAIN, g.value.abs() / g.noise, None);
                let name = (b, phase, GAIN, part);
                out.push(Statistic { name, bias: g.bias / g.noise, unit: g.noise, ..new });
            }
        }
    }
    out
}

/// How far the furthest draw of a statistic goes, and how far chance does.
type Reach = [f64; 2];

/// What golden's draws have of every statistic, in the order in which they were drawn.
pub(super) struct Draws {
    all: Vec<BTreeMap<Name, Vec<f64>>>,
    /// Layers times sequences of the run: so many times its statistics are judged.
    times: usize,
    /// By how many draws there were.
    reaches: BTreeMap<usize, BTreeMap<Name, Reach>>,
}

impl Draws {
    pub(super) fn new(times: usize) -> Self {
        Self { all: Vec::new(), times, reaches: BTreeMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Some more.
    pub(super) fn extend(&mut self, drawn: impl IntoIterator<Item = Vec<Statistic>>) {
        for drawn in drawn {
            let mut all: BTreeMap<Name, Vec<f64>> = BTreeMap::new();
            for of in drawn.into_iter().filter(|of| of.value.is_finite()) {
                all.entry(of.name).or_default().push(of.value);
            }
            self.all.push(all);
        }
        let count: usize = self.all.first().map_or(1, |all| all.values().map(Vec::len).sum());
        let chance = CHANCE / (count * self.times).max(1) as f64;
        let names: BTreeSet<Name> = self.all.iter().flat_map(|all| all.keys().copied()).collect();
        let of = |name: Name| self.all.iter().filter_map(|all| all.get(&name)).flatten().copied().collect::<Vec<f64>>();
        let reaches = names.into_iter().filter_map(|name| Some((name, reach(&of(name), name.2 == GAIN, chance)?)));
        self.reaches.insert(self.all.len(), reaches.collect());
    }
}

/// How far the furthest of these draws goes, and how far one of 1 / `chance` goes that is drawn as they were. What no draw
/// has a row for can't be told from noise: `None`.
fn reach(draws: &[f64], is_gain: bool, chance: f64) -> Option<Reach> {
    let furthest = draws.iter().copied().fold(0.0, f64::max);
    let logs: Vec<f64> = draws.iter().filter(|v| **v > 0.0).map(|v| v.ln()).collect();
    let n = logs.len() as f64;
    if logs.len() < 2 {
        return None;
    }
    let far = if is_gain {
        // Errors on either side of none.
        rms(draws.iter().copied()) * student_quantile(0.5 * chance, draws.len() as f64)
    } else {
        let mean = logs.iter().sum::<f64>() / n;
        let scatter = (logs.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        (mean + student_quantile(chance, n - 1.0) * scatter * (1.0 + 1.0 / n).sqrt()).exp()
    };
    Some([furthest, far])
}

/// How many times the noise of the draws that of a right candidate may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Factors {
    pub(super) all: f64,
    /// Of attention, by phase: what a plan's attention rounds may be untold, and the draws lack it then.
    pub(super) attention: [f64; 2],
}

impl Factors {
    fn of(&self, (b, phase, ..): Name) -> f64 {
        if b == ATTENTION { self.attention[phase as usize] } else { self.all }
    }
}

/// What became of a statistic beside the draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Judged {
    /// No further than the draws go.
    Passes,
    /// Further than chance goes.
    Fails,
    /// Between: more draws tell.
    Undecided,
}

impl Statistic {
    /// Beside the first `draws`, and the limit that it has there; `None` for what can't be judged.
    pub(super) fn judged(&self, of: &Draws, draws: usize, factors: Factors) -> Option<(Judged, f64)> {
        let [furthest, chance] = *of.reaches.get(&draws)?.get(&self.name)?;
        let (b, _, part, _) = self.name;
        let is_one_row = part == WORST || (part == TENTH && self.n.0 < 2 * TEN);
        let own = if b != ATTENTION && (is_one_row || part == GAIN) { SCALES } else { 1.0 };
        let factor = factors.of(self.name);
        let near = factor * (own * furthest + self.bias);
        let far = near.max(factor * (own * chance / DERIVED + self.bias));
        let judged = match self.value {
            v if v <= near => Judged::Passes,
            v if v <= far => Judged::Undecided,
            _ => Judged::Fails,
        };
        Some((judged, far))
    }
}

#[cfg(test)]
impl Statistic {
    /// One of this value.
    pub(super) fn made(name: Name, value: f64) -> Self {
        Self { name, value, bias: 0.0, unit: 1.0, n: (1, 1), at: None }
    }
}

/// Rows of the table for one sequence of a candidate: of gains that nearest to its limit. `draws`: how many were asked.
pub(super) fn rows(
    place: &Place<'_>,
    l: u16,
    rows: &[RowId],
    found: &[Statistic],
    of: &Draws,
    (draws, factors): (usize, Factors),
) -> Vec<TapRow> {
    let mut nearest: BTreeMap<(usize, Phase, &str), (f64, TapRow)> = BTreeMap::new();
    for f in found {
        let Some((_, limit)) = f.judged(of, draws, factors) else { continue };
        let (b, phase, part, _) = f.name;
        let ratio = if f.value.is_nan() { f64::INFINITY } else { f.value / limit };
        if nearest.get(&(b, phase, part)).is_some_and(|(other, _)| *other >= ratio) {
            continue;
        }
        let row = TapRow {
            part: format!("unmixed.{part}"),
            rows: f.n.0 as u64,
            n: f.n.1 as u64,
            gate: format!("noises_{part}"),
            value: Some(f.value * f.unit),
            tolerance: Some(limit * f.unit),
            basis: "noise lanes".to_string(),
            max_abs_position: f.at.map(|s| u64::from(rows[s].pos)),
            ..place.row(Site::layer(l, TAPS[b]), phase)
        };
        nearest.insert((b, phase, part), (ratio, row));
    }
    nearest.into_values().map(|(_, row)| row).collect()
}
