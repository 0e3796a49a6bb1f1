//! A visitor that compares what a path makes with what the candidate made, and has the path go on with the latter. Nothing is kept
//! but sums: the taps of a layer of released shapes are gigabytes.

use std::collections::BTreeMap;

use karat_seam::{
    Data, DataMut, OpSpec, Phase, Recorded, Recorder, Result, RowId, Site, Tap, TensorMut, Visitor, Want, copy,
};
use rayon::prelude::*;

use super::KernelSide;
use super::found::Found;
use super::rule::{Budget, Rule};

/// Rows of one task: the same sums for every number of threads.
const ROWS: usize = 16;

/// What was found at one tap of one sequence in one phase.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) found: Found,
    /// What the rows may differ by.
    pub(super) budget: Budget,
    pub(super) rows: u64,
}

impl Compared {
    fn add(&mut self, other: &Self) {
        self.found.merge(&other.found);
        self.budget.merge(&other.budget);
        self.rows += other.rows;
    }
}

/// By tap, sequence and phase.
pub(super) type All = BTreeMap<(Tap, u32, u8), Compared>;

/// Compares, and goes on with what was given.
pub(super) struct Judged<'a> {
    given: &'a Recorder,
    /// What the recorder calls the layer: MTP blocks follow the others.
    l: u16,
    side: &'a KernelSide<'a>,
    phase_of: Box<dyn Fn(Tap, RowId) -> Phase + Send + Sync + 'a>,
    /// Whether ops that no kernel computes are compared too.
    all: bool,
    pub(super) found: All,
}

impl<'a> Judged<'a> {
    pub(super) fn new(
        given: &'a Recorder,
        l: u16,
        side: &'a KernelSide<'a>,
        phase_of: Box<dyn Fn(Tap, RowId) -> Phase + Send + Sync + 'a>,
        all: bool,
    ) -> Self {
        Self { given, l, side, phase_of, all, found: All::new() }
    }

    fn compare(&mut self, tap: Tap, given: &Recorded, of: &[(usize, usize)], rows: &[RowId], tensor: &TensorMut<'_>) {
        let Some(spec) = OpSpec::writer_of(tap) else { return };
        let (to, from) = (tensor.shape.iter().skip(1).product::<usize>(), given.tensor.width());
        for phase in [Phase::Prefill, Phase::Decode] {
            let of: Vec<(usize, usize)> =
                of.iter().copied().filter(|(i, _)| (self.phase_of)(tap, rows[*i]) == phase).collect();
            let by_kernel = (self.side.runs)(spec.op, phase) && !super::is_made_here(tap);
            if of.is_empty() || !(self.all || by_kernel) {
                continue;
            }
            let rule = if by_kernel && self.all { self.side.sizes.rule(tap, phase) } else { Rule::default() };
            let parts: Vec<Compared> = of
                .par_chunks(ROWS)
                .map(|some| {
                    let mut out = Compared { rows: some.len() as u64, ..Compared::default() };
                    for (i, place) in some {
                        let (right, theirs) = (i * to..(i + 1) * to, place * from..place * from + to);
                        let pos = rows[*i].pos;
                        match (&tensor.data, &given.tensor.data) {
                            (DataMut::F32(r), Data::F32(t)) => {
                                out.found.row(pos, &r[right.clone()], &t[theirs]);
                                out.budget.row(&rule, pos, &r[right]);
                            }
                            (DataMut::I64(r), Data::I64(t)) => out.found.discrete(pos, &r[right], &t[theirs]),
                            (DataMut::U8(r), Data::U8(t)) => out.found.discrete(pos, &r[right], &t[theirs]),
                            _ => out.found.nonfinite += to as u64,
                        }
                    }
                    out
                })
                .collect();
            let rows = rows.first().map_or(0, |row| row.seq);
            let at = self.found.entry((tap, rows, phase as u8)).or_default();
            parts.into_iter().for_each(|part| at.add(&part));
        }
    }
}

impl Visitor for Judged<'_> {
    fn want(&self, at: Site) -> Want {
        if at.tap.is_state() { Want::Skip } else { Want::Write }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], mut tensor: TensorMut<'_>) -> Result<()> {
        let site = Site::layer(self.l, at.tap);
        let Some(given) = rows.first().and_then(|row| self.given.get(site, row.seq)) else { return Ok(()) };
        let to = tensor.shape.iter().skip(1).product::<usize>();
        let from = given.tensor.width();
        // A ragged tap was widened when its pieces were joined.
        if from < to || (from != to && !at.tap.is_ragged()) {
            return Ok(());
        }
        let mut next = given.rows.iter().position(|row| Some(row) == rows.first()).unwrap_or(0);
        let mut of = Vec::with_capacity(rows.len());
        for (i, row) in rows.iter().enumerate() {
            if given.rows.get(next) != Some(row) {
                let Some(place) = given.rows.iter().position(|r| r == row) else { continue };
                next = place;
            }
            of.push((i, next));
            next += 1;
        }
        self.compare(at.tap, given, &of, rows, &tensor);
        // Rows that lie alike in both are copied together.
        let alike = |a: &(usize, usize), b: &(usize, usize)| from == to && (a.0 + 1, a.1 + 1) == *b;
        for run in of.chunk_by(alike) {
            let ((i, place), n) = (run[0], run.len() * to);
            let (source, target) = (place * from..place * from + n, i * to..i * to + n);
            match (&given.tensor.data, &mut tensor.data) {
                (Data::F32(s), DataMut::F32(t)) => copy(&mut t[target], &s[source]),
                (Data::I64(s), DataMut::I64(t)) => copy(&mut t[target], &s[source]),
                (Data::U8(s), DataMut::U8(t)) => copy(&mut t[target], &s[source]),
                _ => {}
            }
        }
        Ok(())
    }
}
