//! The bad layer, run again: what golden and candidate show, and each op by itself.

use std::collections::BTreeMap;

use karat_bundle::{DerivationRow, FirstBad, KvShares};
use karat_diff::Tolerance;
use karat_diff::tolerance::{DERIVED, F32_MAX_OVER_MAX, ROUNDINGS, root_sum};
use karat_seam::{
    Data, Error as SeamError, Kv, Lane, Layer, NoTaps, Op, OpSpec, Part, Path, Phase, Recorded, Recorder, Routing,
    RowId, Site, Streams, Tap, Tensor,
};

use crate::candidate::Candidate;
use crate::lockstep::{Lockstep, follows_slots};
use crate::own_error::{operands, rel_l2};
use crate::repro::Failing;
use crate::{Result, align, choices, rotate};

use super::cache::{Shown, shares};

/// One op of golden on the operands that the candidate's had.
pub(crate) struct OpError {
    pub(crate) op: Op,
    /// The worst of its taps.
    pub(crate) tap: Tap,
    /// rel-L2 of the candidate's; for a decision the share of rows that decide otherwise.
    pub(crate) error: f64,
    /// What its roundings must cost; 0 for a decision.
    pub(crate) predicted: f64,
    /// The largest that is explained.
    limit: f64,
    /// What golden makes of the operands that the candidate showed.
    pub(crate) golden: BTreeMap<Tap, Tensor>,
    /// Rows of the operands.
    pub(crate) rows: Vec<RowId>,
}

/// The first bad layer under the patch set at fault.
pub(crate) struct Look<'a> {
    pub(crate) l: u16,
    pub(crate) seq: u32,
    pub(crate) candidate: &'a Candidate<'a>,
    /// Golden's layer input, and the candidate's.
    pub(crate) x: Streams,
    pub(crate) x2: Streams,
    pub(crate) golden: Box<dyn Layer + 'a>,
    /// C(x').
    pub(crate) seen: Recorder,
    /// R(x), R(x') with the candidate's decisions.
    pub(crate) on_x: Recorder,
    pub(crate) on_x2: Recorder,
    /// R(x') with its own decisions, and with those of R(x).
    free: Recorder,
    forced: Recorder,
    /// Every op that can be asked, in op order.
    pub(crate) ops: Vec<OpError>,
    /// What the candidate's KV rows bring, where it shows them.
    pub(crate) kv: Option<KvShares>,
}

/// Runs a path up to layer `l`.
pub(super) fn upto(path: &dyn Path, l: u16) -> Result<Option<Streams>> {
    let mut x = path.embed(&mut NoTaps)?;
    for m in 0..l {
        let Some(out) = through(&*path.layer(m)?, &x)? else { return Ok(None) };
        x = out;
    }
    Ok(Some(x))
}

/// Runs one lane through a layer.
pub(super) fn through(layer: &dyn Layer, x: &Streams) -> Result<Option<Streams>> {
    let mut see = NoTaps;
    let mut lanes = [Lane::new(x, &mut see)];
    layer.run(&mut lanes)?;
    Ok(lanes[0].out.take().map(|out| out.streams))
}

/// What a trace holds of the streams that enter layer `l`; golden's where it has no embedding.
fn stored(path: &dyn Path, l: u16, x: &Streams) -> Result<Option<Streams>> {
    if l > 0 {
        return through(&*path.layer(l - 1)?, x);
    }
    match path.embed(&mut NoTaps) {
        Err(SeamError::Unsupported { .. }) => Ok(Some(x.clone())),
        streams => Ok(Some(streams?)),
    }
}

impl<'a> Look<'a> {
    /// `None` when the bad place is in no layer, the candidate does not tell what enters it, or it is a trace that does not
    /// hold every row.
    pub(crate) fn at(setup: &'a Lockstep<'a>, bad: &FirstBad, terms: &[DerivationRow]) -> Result<Option<Self>> {
        let Ok(l) = bad.layer.parse::<u16>() else { return Ok(None) };
        let Some(candidate) = setup.candidates.iter().find(|c| c.patch_set == bad.patch_set) else { return Ok(None) };
        let requests = setup.golden.requests();
        let Some(seq) = requests.seqs.iter().position(|s| s.id == bad.sequence) else { return Ok(None) };
        let Some(x) = upto(setup.golden, l)? else { return Ok(None) };
        let x2 = match &candidate.holds {
            None => upto(candidate.path, l)?,
            Some(rows) if *rows == x.rows => stored(candidate.path, l, &x)?,
            Some(_) => None,
        };
        let Some(x2) = x2 else { return Ok(None) };
        let Some(aligned) = align::streams(&x2, &x.rows) else { return Ok(None) };
        let facts = setup.facts.layer(l);
        let [mut seen, mut on_x, mut on_x2, mut free, mut forced] =
            [(); 5].map(|()| Recorder::new(|site| !site.tap.is_state()));
        candidate.path.layer(l)?.run(&mut [Lane::new(&x2, &mut seen)])?;
        let golden = setup.golden.layer(l)?;
        golden.run(&mut [Lane::new(&x, &mut on_x)])?;
        let theirs = choices::of(l, &seen, requests, &facts, &x.rows);
        let ours = choices::of(l, &on_x, requests, &facts, &x.rows);
        golden.run(&mut [
            Lane { routing: Routing::Forced(&theirs), ..Lane::new(&aligned, &mut on_x2) },
            Lane::new(&aligned, &mut free),
            Lane { routing: Routing::Forced(&ours), ..Lane::new(&aligned, &mut forced) },
        ])?;
        let seq = seq as u32;
        let mut kv = None;
        if let Some(shown) = Shown::of(&seen, l, seq) {
            let [mut on_kv, mut on_kv2, mut on_both] = [(); 3].map(|()| Recorder::new(|site| site.tap == Tap::AttnOut));
            let (kv2, routing) = (Kv::Given(&shown), Routing::Forced(&theirs));
            golden.run(&mut [
                Lane { routing, ..Lane::new(&x, &mut on_kv) },
                Lane { kv: kv2, routing, ..Lane::new(&x, &mut on_kv2) },
                Lane { kv: kv2, routing, ..Lane::new(&aligned, &mut on_both) },
            ])?;
            kv = shares(Site::layer(l, Tap::AttnOut), seq, [&on_kv, &on_x2, &on_kv2, &on_both, &seen]);
        }
        let ops = Vec::new();
        let mut look = Self { l, seq, candidate, x, x2, golden, seen, on_x, on_x2, free, forced, ops, kv };
        let phase = if bad.phase == Phase::Decode.name() { Phase::Decode } else { Phase::Prefill };
        let is_of =
            |t: &&DerivationRow| t.sequence.is_empty() || (&t.sequence, &t.scenario) == (&bad.sequence, &bad.scenario);
        let terms: Vec<&DerivationRow> = terms.iter().filter(is_of).collect();
        look.ops = look.each_op(phase, &terms)?;
        Ok(Some(look))
    }

    fn each_op(&self, phase: Phase, terms: &[&DerivationRow]) -> Result<Vec<OpError>> {
        let mut all = Vec::new();
        let ops = OpSpec::graph().iter().filter(|s| s.part != Part::Head && self.golden.has_op(s.op));
        for spec in ops {
            let at = (self.l, self.seq);
            let found = operands(spec, &*self.golden, &BTreeMap::new(), at, &self.x2, &self.seen);
            let Some((operands, rows)) = found else { continue };
            let written = match self.golden.op(spec.op, &operands, &rows) {
                Ok(written) => written,
                // A trace may show operands of another shape or type: other rows of the table say so.
                Err(
                    SeamError::Unsupported { .. }
                    | SeamError::Request(_)
                    | SeamError::Shape { .. }
                    | SeamError::Dtype { .. },
                ) if self.candidate.holds.is_some() => {
                    continue;
                }
                Err(other) => return Err(other.into()),
            };
            let mut golden = BTreeMap::new();
            for (tap, tensor) in written {
                golden.insert(tap, self.rotated(tap, &rows, tensor));
            }
            let mut worst: Option<OpError> = None;
            for (tap, tensor) in &golden {
                let Some(theirs) = self.seen.get(Site::layer(self.l, *tap), self.seq) else { continue };
                let Some(error) = self.error(*tap, tensor, theirs, phase, &golden) else { continue };
                let (predicted, limit) = self.expected(*tap, terms);
                if worst.as_ref().is_none_or(|w| error / limit > w.error / w.limit) {
                    let (golden, rows) = (BTreeMap::new(), Vec::new());
                    worst = Some(OpError { op: spec.op, tap: *tap, error, predicted, limit, golden, rows });
                }
            }
            all.extend(worst.map(|w| OpError { golden, rows, ..w }));
        }
        Ok(all)
    }

    /// Golden's values as the candidate shows them.
    fn rotated(&self, tap: Tap, rows: &[RowId], tensor: Tensor) -> Tensor {
        if !rotate::is_rotated(tap) {
            return tensor;
        }
        let ratio = self.seen.get(Site::layer(self.l, tap), self.seq).filter(|_| tap.is_per_entry());
        let of = ratio.map_or(rows, |r| r.rows.as_slice());
        let flags: Vec<bool> = of.iter().map(|r| self.candidate.rotates_in(self.phase(tap, *r))).collect();
        rotate::rows(std::borrow::Cow::Owned(tensor), &flags).into_owned()
    }

    /// Phase of a row; entries are taken as what completes them.
    pub(crate) fn phase(&self, tap: Tap, row: RowId) -> Phase {
        let tokens = self.x.rows.iter().filter(|r| r.seq == self.seq).count() as u32;
        let entries = self.seen.get(Site::layer(self.l, tap), self.seq).map_or(1, |r| r.rows.len() as u32).max(1);
        let pos = if tap.is_per_entry() { (row.pos + 1) * (tokens / entries).max(1) - 1 } else { row.pos };
        self.candidate.path.phase_of(RowId { pos: pos.min(tokens.saturating_sub(1)), ..row })
    }

    fn error(
        &self,
        tap: Tap,
        golden: &Tensor,
        theirs: &Recorded,
        phase: Phase,
        all: &BTreeMap<Tap, Tensor>,
    ) -> Option<f64> {
        let acts = |row: &RowId| self.phase(tap, *row) == phase;
        if tap.is_discrete() {
            return share_of_rows(golden, theirs, &acts);
        }
        // The weights of another choice of experts are other numbers.
        let moved: Vec<RowId> = match (all.get(&Tap::FfnIdx), self.seen.get(Site::layer(self.l, Tap::FfnIdx), self.seq))
        {
            (Some(ours), Some(idx)) if follows_slots(tap) => differing(ours, idx),
            _ => Vec::new(),
        };
        let golden = match golden.shape == theirs.tensor.shape {
            true => golden.clone(),
            false => {
                let ours = Recorded { rows: theirs.rows.clone(), tensor: golden.clone() };
                align::take(tap, &ours, &theirs.rows, theirs.tensor.width())?.into_owned()
            }
        };
        rel_l2(&golden, &theirs.tensor, &theirs.rows, &|row| acts(row) && !moved.contains(row))
    }

    /// What an op's roundings cost, and the most that they explain.
    fn expected(&self, tap: Tap, terms: &[&DerivationRow]) -> (f64, f64) {
        let layer = self.l.to_string();
        let of = terms.iter().filter(|t| t.layer == layer && t.tap == tap.name());
        let derived = root_sum(of.map(|t| t.cost * t.times.sqrt()));
        let provisional = Tolerance::provisional(self.candidate.claims, tap, None);
        let claim = self.candidate.patches.iter().filter(|p| p.own_taps().contains(&tap));
        let claim = claim.map(|p| p.claimed_error).fold(0.0, f64::max);
        if tap.is_discrete() {
            return (0.0, 1e-9);
        }
        if derived == 0.0 || claim > 0.0 {
            let predicted = provisional.predicted.max(claim);
            return (predicted, (ROUNDINGS * predicted).max(F32_MAX_OVER_MAX));
        }
        (derived, (DERIVED * derived).max(F32_MAX_OVER_MAX))
    }

    /// The op to blame: the first whose own error its roundings don't explain; the writer of the bad tap where every op
    /// explains its own. `None` where that one could not be asked.
    pub(crate) fn suspect(&self, bad: &FirstBad) -> Option<&OpError> {
        let named = self.ops.iter().find(|o| o.op.spec().name == bad.op);
        // Decisions may differ by noise: one is to blame only when the judged rows say so.
        let is_over =
            |o: &&OpError| (o.error.is_nan() || o.error > o.limit) && (!o.tap.is_discrete() || o.tap.name() == bad.tap);
        let first = self.ops.iter().find(is_over);
        first.or(named)
    }

    /// All about an op that its repro needs; `None` where the candidate does not show its results whole.
    pub(crate) fn failing(&self, op: &OpError, said: Vec<String>, ids: &[u32]) -> Option<Failing> {
        let spec = op.op.spec();
        let of = operands(spec, &*self.golden, &BTreeMap::new(), (self.l, self.seq), &self.x2, &self.seen);
        let (operands, rows) = of?;
        let mut candidate = BTreeMap::new();
        for (tap, golden) in &op.golden {
            let Some(theirs) = self.seen.get(Site::layer(self.l, *tap), self.seq) else { continue };
            let tensor = align::narrow(align::take(*tap, theirs, &theirs.rows, golden.width())?).into_owned();
            if tensor.shape == golden.shape {
                candidate.insert(*tap, Recorded { rows: theirs.rows.clone(), tensor });
            }
        }
        let shown = candidate.get(&op.tap)?;
        let rotates = |row: &RowId| rotate::is_rotated(op.tap) && self.candidate.rotates_in(self.phase(op.tap, *row));
        let ids = rows.iter().map(|row| ids.get(row.pos as usize).copied().unwrap_or_default()).collect();
        Some(Failing {
            l: self.l,
            op: op.op,
            tap: op.tap,
            allowed: (!op.tap.is_discrete()).then_some(op.limit),
            rotated: shown.rows.iter().map(rotates).collect(),
            golden: op.golden.clone(),
            operands,
            rows,
            ids,
            candidate,
            said,
        })
    }

    /// Share of the inherited error that other decisions bring: 1 - |H| with golden's decisions on x over |H| with its
    /// own on x'. `None` when nothing was inherited.
    pub(crate) fn routing_share(&self) -> Option<f64> {
        let site = Site::layer(self.l, Tap::Out);
        let get = |r: &Recorder| r.get(site, self.seq).map(|r| r.tensor.clone());
        let (Some(x), Some(free), Some(forced)) = (get(&self.on_x), get(&self.free), get(&self.forced)) else {
            return None;
        };
        let rows: Vec<RowId> = self.on_x.get(site, self.seq).map_or(Vec::new(), |r| r.rows.clone());
        let of = |t: &Tensor| rel_l2(&x, t, &rows, &|_| true).unwrap_or(0.0);
        let (free, forced) = (of(&free), of(&forced));
        (free > 0.0).then(|| 1.0 - forced / free)
    }
}

/// Rows of a decision that differ.
fn differing(ours: &Tensor, theirs: &Recorded) -> Vec<RowId> {
    let at = |i: usize| {
        let (a, b) = (ours.width(), theirs.tensor.width());
        match (&ours.data, &theirs.tensor.data) {
            (Data::I64(x), Data::I64(y)) => {
                let sorted = |v: &[i64]| {
                    let mut v = v.to_vec();
                    v.sort_unstable();
                    v
                };
                sorted(&x[i * a..(i + 1) * a]) != sorted(&y[i * b..(i + 1) * b])
            }
            (Data::U8(x), Data::U8(y)) => {
                let n = a.min(b);
                x[i * a..i * a + n] != y[i * b..i * b + n]
            }
            _ => true,
        }
    };
    theirs.rows.iter().enumerate().filter(|(i, _)| at(*i)).map(|(_, r)| *r).collect()
}

fn share_of_rows(ours: &Tensor, theirs: &Recorded, acts: &dyn Fn(&RowId) -> bool) -> Option<f64> {
    if ours.rows() != theirs.rows.len() {
        return None;
    }
    let all = theirs.rows.iter().filter(|r| acts(r)).count();
    let moved = differing(ours, theirs).iter().filter(|r| acts(r)).count();
    (all > 0).then(|| moved as f64 / all as f64)
}
