//! One numeric tap of one sequence: rows of `taps.csv`, one a phase and part.

use std::collections::{BTreeMap, BTreeSet};

use karat_bundle::TapRow;
use karat_diff::tolerance::{Measure, effective_rows};
use karat_diff::{Cell, Grid, Measured, Metrics, Moments, RowMetrics, Split, SplitSums, Storage, Sums, measure, split};
use karat_seam::{Phase, Recorded, RowId, Site, Tap, Tensor};

use crate::candidate::Candidate;
use crate::derive::Predicted;
use crate::place::Place;
use crate::storage::storage;
use crate::{Error, Result, align, predict, rotate};

/// What the lanes saw of one tap.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// C(x').
    pub(crate) candidate: &'a Recorded,
    /// R(x'), with the candidate's decisions; `None` where x' is not known.
    pub(crate) on_x2: Option<&'a Recorded>,
    /// R(x).
    pub(crate) golden: &'a Recorded,
    /// R(x') in f64, same decisions.
    pub(crate) floor: Option<&'a Recorded>,
    /// The candidate's rerun.
    pub(crate) again: Option<&'a Recorded>,
    /// False where R(x) made other decisions that the tap's axes follow (expert slots): no split then.
    pub(crate) splittable: bool,
}

/// What is the same for all taps of a sequence in a layer.
pub(crate) struct Context<'a> {
    pub(crate) candidate: &'a Candidate<'a>,
    pub(crate) place: &'a Place<'a>,
    /// Tokens an entry stands for.
    pub(crate) ratio: Option<u32>,
    /// Moments of x against x', by phase.
    pub(crate) input: &'a BTreeMap<Phase, Sums>,
    /// What the roundings of the candidate's plan cost in this block, where that was derived.
    pub(crate) predicted: Option<&'a Predicted>,
    /// Positions that are not judged by this tap: what the candidate decided there is not known, and noise may change it.
    pub(crate) open: Option<&'a BTreeSet<u32>>,
}

impl Context<'_> {
    /// Phase in which the candidate computed a row; for an entry, the row that completed it.
    pub(crate) fn phase(&self, tap: Tap, row: RowId) -> Phase {
        let pos = match self.ratio {
            Some(ratio) if tap.is_per_entry() => row.pos * ratio + ratio - 1,
            _ => row.pos,
        };
        self.candidate.path.phase_of(RowId { pos, ..row })
    }
}

/// Compares one tap. No row is left out silently: an error says which tap does not fit.
pub(crate) fn tap(at: &Context<'_>, site: Site, seen: Seen<'_>) -> Result<Vec<TapRow>> {
    let rows = align::common(&seen.golden.rows, &seen.candidate.rows);
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let name = site.to_string();
    let width = [Some(seen.candidate), seen.on_x2, Some(seen.golden), seen.floor, seen.again]
        .into_iter()
        .flatten()
        .map(|r| r.tensor.width())
        .max()
        .unwrap_or(0);
    let phases: Vec<Phase> = rows.iter().map(|r| at.phase(site.tap, *r)).collect();
    let rotate: Vec<bool> =
        phases.iter().map(|p| rotate::is_rotated(site.tap) && at.candidate.rotates_in(*p)).collect();
    let missing = || Error::Seam(karat_seam::Error::Request(format!("{name}: golden did not compute every row")));
    let candidate = align::narrow(align::take(site.tap, seen.candidate, &rows, width).ok_or_else(missing)?);
    // Borrowed where rows and frame are the candidate's already: these are the largest tensors of an audit.
    let take = |rec| align::take(site.tap, rec, &rows, width).map(|t| rotate::rows(t, &rotate));
    let golden = take(seen.golden).ok_or_else(missing)?;
    let on_x2 = seen.on_x2.and_then(take);
    let floor = seen.floor.and_then(take);
    let mut grid = Grid::of(&candidate).classes(phases.iter().map(|p| *p as u32).collect())?;
    if site.tap.is_streams() && candidate.shape.len() == 3 {
        grid = grid.equal_parts(candidate.shape[1])?;
    }
    let kind = storage(at.candidate.claims, site.tap);
    // Without R(x') only the total can be told.
    let reference: &Tensor = on_x2.as_ref().unwrap_or(&golden);
    let measured = measure(&name, reference, &candidate, kind, &grid)?;
    let parts = match &on_x2 {
        Some(on_x2) if seen.splittable => Some(split(&name, &golden, on_x2, &candidate, &grid)?),
        _ => None,
    };
    let noise = match (&on_x2, &floor) {
        (Some(a), Some(b)) => Some(measure(&name, a, b, Storage::F32, &grid)?),
        _ => None,
    };
    let again = seen.again.and_then(|again| align::take(site.tap, again, &rows, width)).map(align::narrow);
    let rerun = again.map(|again| measure(&name, &candidate, &again, Storage::F32, &grid)).transpose()?;
    let all = Numbers { rows: &rows, phases: &phases, measured, split: parts, noise, rerun, judged: on_x2.is_some() };
    Ok(all.table(at, site, &candidate))
}

struct Numbers<'a> {
    rows: &'a [RowId],
    phases: &'a [Phase],
    measured: Measured,
    split: Option<Split>,
    noise: Option<Measured>,
    rerun: Option<Measured>,
    judged: bool,
}

impl Numbers<'_> {
    fn table(&self, at: &Context<'_>, site: Site, candidate: &Tensor) -> Vec<TapRow> {
        let mut table = Vec::new();
        for phase in [Phase::Prefill, Phase::Decode] {
            if !self.phases.contains(&phase) {
                continue;
            }
            let class = phase as u32;
            let mut whole = at.place.row(site, phase);
            whole.rows = self.phases.iter().filter(|p| **p == phase).count() as u64;
            let moments = self.measured.class(class);
            self.fill(&mut whole, &moments, self.split.as_ref().map(|s| s.class(class)), at.input.get(&phase));
            let of_phase: Vec<Sums> =
                self.measured.rows.iter().zip(self.phases).filter(|(_, p)| **p == phase).map(|(s, _)| *s).collect();
            whole.row_p99_rel_l2 = self.judged.then(|| RowMetrics::of(&of_phase).rel_l2_p99);
            if self.judged {
                self.gate(&mut whole, at, site, phase, &moments);
            }
            table.push(whole);
            if site.tap.is_streams() && candidate.shape.len() == 3 {
                for part in 0..candidate.shape[1] {
                    let mut row = at.place.row(site, phase);
                    row.part = format!("stream.{part}");
                    let cell = Cell { class, part };
                    let Some(moments) = self.measured.cells.get(&cell) else { continue };
                    let sums = self.split.as_ref().and_then(|s| s.cells.get(&cell)).copied();
                    self.fill(&mut row, moments, sums, None);
                    row.rows = table.last().map_or(0, |r| r.rows);
                    table.push(row);
                }
            }
        }
        table
    }

    fn fill(&self, row: &mut TapRow, moments: &Moments, split: Option<SplitSums>, input: Option<&Sums>) {
        let (m, s) = (Metrics::of(moments), &moments.sums);
        row.n = m.n;
        row.nonfinite = m.nonfinite;
        row.saturated = m.saturated;
        let golden = (s.xx.sqrt() > 0.0).then(|| s.xx.sqrt());
        if !self.judged {
            // C(x') against R(x): the total error, and nothing else.
            row.total = Some(m.rel_l2);
            return;
        }
        row.rel_l2 = Some(m.rel_l2);
        row.max_abs = Some(m.max_abs);
        row.max_abs_position = m.max_abs_at.and_then(|a| self.rows.get(a.row as usize)).map(|r| u64::from(r.pos));
        row.max_abs_index = m.max_abs_at.map(|a| a.column);
        row.cosine = Some(m.cosine);
        row.gain = Some(m.gain);
        row.residual = Some(m.residual);
        row.calc_diff = Some(m.calc_diff);
        row.snr_db = Some(m.snr_db);
        row.ulp_p99 = m.ulp_p99;
        row.sign_bias = Some(m.sign_bias);
        row.sum_x = Some(s.x);
        row.sum_y = Some(s.y);
        row.sum_xx = Some(s.xx);
        row.sum_yy = Some(s.yy);
        row.sum_xy = Some(s.xy);
        row.sum_d = Some(s.d);
        row.sum_abs_d = Some(s.abs_d);
        row.sum_dd = Some(s.dd);
        row.max_x = Some(s.max_x);
        let Some(split) = split else {
            // No R(x) to relate to: the injected share is relative to R(x').
            row.injected = golden.map(|_| m.rel_l2);
            return;
        };
        let relative = |norm: f64| if norm == 0.0 { 0.0 } else { norm / split.golden() };
        row.total = Some(relative(split.total()));
        row.inherited = Some(relative(split.inherited()));
        row.injected = Some(relative(split.injected()));
        row.cross = Some(if split.cross == 0.0 { 0.0 } else { split.cross / (split.golden() * split.golden()) });
        row.amplification = input.and_then(|x| split.amplification(x));
        row.sum_golden = Some(split.golden2);
        row.sum_total = Some(split.total2);
        row.sum_inherited = Some(split.inherited2);
        row.sum_cross = Some(split.cross);
    }

    fn gate(&self, row: &mut TapRow, at: &Context<'_>, site: Site, phase: Phase, moments: &Moments) {
        // Streams whose decisions nobody knows are judged by what they are taken apart into.
        if site.tap == Tap::Out && at.open.is_some() {
            return;
        }
        let noise = self.noise.as_ref().map(|n| Metrics::of(&n.class(phase as u32)));
        let floor = |measure: Measure| noise.as_ref().map(|n| measure.of(n));
        let tolerance = predict::tolerance(at.candidate.claims, site.tap, phase, &at.candidate.patches, floor);
        let is_judged = |row: &RowId| at.open.is_none_or(|open| !open.contains(&row.pos));
        let of_phase = || self.rows.iter().zip(self.phases).enumerate().filter(|(_, (_, p))| **p == phase);
        let judged: Vec<usize> = of_phase().filter(|(_, (row, _))| is_judged(row)).map(|(s, _)| s).collect();
        if judged.is_empty() {
            return;
        }
        let metrics = Metrics::of(moments);
        let value = match tolerance.measure {
            Measure::RelL2 if metrics.nonfinite == 0 && judged.len() < of_phase().count() => {
                let of = |of: fn(&Sums) -> f64| judged.iter().map(|s| of(&self.measured.rows[*s])).sum::<f64>();
                let (error, size) = (of(|s| s.dd), of(|s| s.xx));
                if error == 0.0 { 0.0 } else { (error / size).sqrt() }
            }
            measure => measure.of(&metrics),
        };
        row.gate = tolerance.measure.name().to_string();
        row.value = Some(value);
        let mine = judged.iter().map(|s| &self.rows[*s]);
        let free = predict::free_values(site.tap, row.n / row.rows.max(1));
        let derived = at.predicted.and_then(|p| p.over(site.tap, mine));
        let derived = derived.map(|(error, rows)| (error, effective_rows(rows, free)));
        let is_told = at.candidate.is_told(site.tap, phase);
        let before = tolerance.value;
        let tolerance = match derived {
            Some((derived, rows)) if is_told => tolerance.tightened(derived, rows),
            _ => tolerance,
        };
        // Index scores are sums of signed products: what is left of one that cancels keeps the errors of all its terms. A
        // patched path pays what stock's roundings cost too, or as much for others.
        let tolerance = match derived.filter(|_| site.tap == Tap::AttnIndexScore) {
            Some((derived, rows)) => tolerance.raised(derived, rows),
            None => tolerance,
        };
        (row.derived, row.effective_rows) = derived.unzip();
        row.basis = match derived {
            Some(_) if tolerance.value > before => "raised",
            Some(_) if !tolerance.provisional => "derived",
            Some(_) if is_told => "tighter",
            _ => "provisional",
        }
        .to_string();
        row.floor = floor(tolerance.measure);
        row.rerun = self.rerun.as_ref().map(|n| tolerance.measure.of(&Metrics::of(&n.class(phase as u32))));
        row.predicted = Some(tolerance.predicted);
        row.tolerance = Some(tolerance.value);
        row.ratio_to_predicted = Some(value / tolerance.predicted);
    }
}
