//! total = inherited + injected of the bad tap, part by part: streams, heads, experts, buckets of positions.

use std::collections::BTreeMap;

use karat_bundle::{FirstBad, TapRow};
use karat_diff::SplitSums;
use karat_seam::{Data, Phase, Recorder, RowId, Site, Tap, Tensor};

use super::Look;
use crate::lockstep::{Lockstep, follows_slots};
use crate::place::Place;
use crate::{align, rotate};

/// Buckets of positions.
const BUCKETS: usize = 8;

/// Equal parts of a row of a tap, by kind.
pub(super) fn kind(tap: Tap, shape: &[usize]) -> Option<(&'static str, usize)> {
    let kind = match tap {
        Tap::AttnQ | Tap::AttnO | Tap::AttnLse => "head",
        Tap::AttnIndexQ | Tap::AttnIndexW => "index_head",
        Tap::FfnExpertAct | Tap::FfnWt => "expert",
        Tap::FfnRouterLogits => "expert",
        tap if tap.is_streams() => "stream",
        _ => return None,
    };
    shape.get(1).map(|n| (kind, *n)).filter(|(_, n)| *n > 1)
}

/// Experts in the slots of a tap, as labels of its parts.
pub(super) fn labels(look: &Look<'_>, tap: Tap, rows: &[RowId]) -> Vec<u32> {
    let idx = look.seen.get(Site::layer(look.l, Tap::FfnIdx), look.seq).filter(|_| follows_slots(tap));
    let Some(idx) = idx.and_then(|r| align::gather(&r.rows, &r.tensor, rows)) else { return Vec::new() };
    match &idx.data {
        Data::I64(v) => v.iter().map(|e| u32::try_from(*e).unwrap_or(u32::MAX)).collect(),
        _ => Vec::new(),
    }
}

/// Rows of `taps.csv`, one a part of the bad tap, in the bad phase; they are not gated.
pub(super) fn rows(setup: &Lockstep<'_>, look: &Look<'_>, bad: &FirstBad) -> Vec<TapRow> {
    let Some(tap) = Tap::from_name(&bad.tap).filter(|t| !t.is_discrete()) else { return Vec::new() };
    let site = Site::layer(look.l, tap);
    let Some(theirs) = look.seen.get(site, look.seq) else { return Vec::new() };
    let phase = if bad.phase == Phase::Decode.name() { Phase::Decode } else { Phase::Prefill };
    let rows: Vec<RowId> = theirs.rows.iter().copied().filter(|r| look.phase(tap, *r) == phase).collect();
    let flags = vec![rotate::is_rotated(tap) && look.candidate.rotates_in(phase); rows.len()];
    let width = theirs.tensor.width();
    let take = |seen: &Recorder| -> Option<Tensor> {
        let recorded = seen.get(site, look.seq)?;
        let taken = align::take(tap, recorded, &rows, width)?;
        Some(rotate::rows(taken, &flags).into_owned())
    };
    let Some(candidate) = align::take(tap, theirs, &rows, width) else { return Vec::new() };
    let (Some(on_x), Some(on_x2)) = (take(&look.on_x), take(&look.on_x2)) else { return Vec::new() };
    let all = [&on_x.data, &on_x2.data, &candidate.data].map(|d| if let Data::F32(v) = d { v.as_slice() } else { &[] });
    if all.iter().any(|v| v.len() != rows.len() * width) {
        return Vec::new();
    }
    let sequence = &setup.golden.requests().seqs[look.seq as usize].id;
    let place =
        Place { candidate: look.candidate, scenario: &bad.scenario, sequence, layers: setup.golden.blocks().layers };
    let mut out = Vec::new();
    let mut add = |name: String, sums: &SplitSums, n: u64| {
        let mut row = TapRow { part: name, rows: n, n: sums.n, nonfinite: sums.nonfinite, ..place.row(site, phase) };
        fill(&mut row, sums);
        out.push(row);
    };
    if let Some((kind, count)) = kind(tap, &candidate.shape) {
        let labels = labels(look, tap, &rows);
        // R(x) may have other experts in its slots: then there is no inherited part to tell.
        if labels.is_empty()
            || look.on_x.get(Site::layer(look.l, Tap::FfnIdx), look.seq).is_some_and(|ours| {
                look.seen.get(Site::layer(look.l, Tap::FfnIdx), look.seq).is_some_and(|t| t.tensor == ours.tensor)
            })
        {
            let label = |row: usize, part: usize| labels.get(row * count + part).copied().unwrap_or(part as u32);
            for (part, sums) in cut(all, width, count, label) {
                add(format!("{kind}.{part}"), &sums, rows.len() as u64);
            }
        }
    }
    let per = rows.len().div_ceil(BUCKETS).max(1);
    if !follows_slots(tap) {
        for (bucket, sums) in cut(all, width, 1, |row, _| (row / per) as u32) {
            let first = bucket as usize * per;
            let last = (first + per).min(rows.len()) - 1;
            let name = format!("positions.{}-{}", rows[first].pos, rows[last].pos);
            add(name, &sums, (last + 1 - first) as u64);
        }
    }
    out
}

/// Sums by label of the parts of rows. `all` are R(x), R(x') and C(x').
pub(super) fn cut(
    all: [&[f32]; 3],
    width: usize,
    count: usize,
    label: impl Fn(usize, usize) -> u32,
) -> BTreeMap<u32, SplitSums> {
    let mut out: BTreeMap<u32, SplitSums> = BTreeMap::new();
    let part = (width / count.max(1)).max(1);
    for (i, ((a, b), c)) in all[0].iter().zip(all[1]).zip(all[2]).enumerate() {
        let (row, column) = (i / width, i % width);
        let sums = out.entry(label(row, column / part)).or_default();
        let (a, b, c) = (f64::from(*a), f64::from(*b), f64::from(*c));
        sums.n += 1;
        if !(a.is_finite() && b.is_finite() && c.is_finite()) {
            if a == b && b == c {
                sums.masked += 1;
            } else {
                sums.nonfinite += 1;
            }
            continue;
        }
        let (h, j) = (b - a, c - b);
        sums.golden2 += a * a;
        sums.total2 += (c - a) * (c - a);
        sums.inherited2 += h * h;
        sums.injected2 += j * j;
        sums.cross += h * j;
    }
    out
}

fn fill(row: &mut TapRow, sums: &SplitSums) {
    let relative = |norm: f64| if norm == 0.0 { 0.0 } else { norm / sums.golden() };
    row.total = Some(relative(sums.total()));
    row.inherited = Some(relative(sums.inherited()));
    row.injected = Some(relative(sums.injected()));
    row.cross = Some(if sums.cross == 0.0 { 0.0 } else { sums.cross / (sums.golden() * sums.golden()) });
    row.sum_golden = Some(sums.golden2);
    row.sum_total = Some(sums.total2);
    row.sum_inherited = Some(sums.inherited2);
    row.sum_cross = Some(sums.cross);
    row.sum_dd = Some(sums.injected2);
}
