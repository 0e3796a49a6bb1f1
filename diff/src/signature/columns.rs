//! Signatures that look at where in a row the error sits.

use std::collections::BTreeMap;

use super::{FITS, Seen, Tested};

/// Sizes of tiles that kernels work in.
const TILES: [usize; 6] = [8, 16, 32, 64, 128, 256];
/// Share of all elements that a set of places may make up at most.
const FEW: f64 = 0.5;
/// Labels that are named.
const NAMED: usize = 6;

/// A set of heads, experts, streams or groups.
pub(super) fn part_set(seen: &Seen<'_>) -> Tested {
    let name = "a set of parts";
    let (mut best, mut least) = (Tested::no(name), f64::INFINITY);
    for parts in seen.rows.parts.iter().filter(|p| p.count > 0 && seen.rows.width.is_multiple_of(p.count)) {
        let width = seen.rows.width / parts.count;
        let mut by_label: BTreeMap<u32, (f64, u64)> = BTreeMap::new();
        for row in 0..seen.by_row.len() {
            let (x, y) = (seen.golden(row), seen.candidate(row));
            for part in 0..parts.count {
                let label = parts.labels.get(row * parts.count + part).copied().unwrap_or(part as u32);
                let cut = part * width..(part + 1) * width;
                let (dd, n) = by_label.entry(label).or_default();
                *dd += super::squares(&x[cut.clone()], &y[cut])[0];
                *n += 1;
            }
        }
        let all: u64 = by_label.values().map(|(_, n)| n).sum();
        let mut labels: Vec<(u32, (f64, u64))> = by_label.into_iter().collect();
        labels.sort_by(|a, b| b.1.0.total_cmp(&a.1.0).then(a.0.cmp(&b.0)));
        let (mut dd, mut n, mut taken) = (0.0, 0, Vec::new());
        for (label, of) in &labels {
            if dd >= 0.95 * seen.dd {
                break;
            }
            dd += of.0;
            n += of.1;
            taken.push(*label);
        }
        let is_few = n as f64 <= FEW * all as f64 && taken.len() < labels.len();
        taken.sort_unstable();
        let (kind, of) = (parts.kind, labels.len());
        let tested = Tested::of(name, dd / seen.dd, is_few, || {
            let shown: Vec<String> = taken.iter().take(NAMED).map(ToString::to_string).collect();
            let more = if taken.len() > NAMED { ", ..." } else { "" };
            format!("only {kind} {}{more} of {of}", shown.join(", "))
        });
        // The smallest set that fits tells most.
        let size = if tested.fits.is_some() { n as f64 / all.max(1) as f64 } else { f64::INFINITY };
        if size < least || (best.fits.is_none() && tested.share > best.share) {
            (best, least) = (tested, size);
        }
    }
    best
}

/// The end of every tile: of columns, or of positions.
pub(super) fn tail(seen: &Seen<'_>) -> Tested {
    let width = seen.rows.width;
    let mut columns = vec![0.0; width];
    for row in 0..seen.by_row.len() {
        for (sum, (x, y)) in columns.iter_mut().zip(seen.golden(row).iter().zip(seen.candidate(row))) {
            let d = if x == y { 0.0 } else { f64::from(*y) - f64::from(*x) };
            *sum += d * d;
        }
    }
    let by_position: Vec<(usize, f64)> =
        seen.rows.positions.iter().zip(&seen.by_row).map(|(p, r)| (*p as usize, r[0])).collect();
    let by_column: Vec<(usize, f64)> = columns.into_iter().enumerate().collect();
    let mut best = Tested::no("tail of a tile");
    for (what, places) in [("columns", by_column), ("positions", by_position)] {
        for tile in TILES.into_iter().filter(|t| places.len() > *t) {
            let from = tail_of(&places, tile, seen.dd);
            let share = places.iter().filter(|(at, _)| at % tile >= from).map(|(_, d)| d).sum::<f64>() / seen.dd;
            let is_few = tile - from <= tile / 4;
            let tested = Tested::of("tail of a tile", share, is_few, || {
                let (n, end) = (tile - from, tile - 1);
                format!("the tail of tiles of {tile} {what}: the last {n} ({from} to {end} of each)")
            });
            if best.fits.is_none() && (tested.fits.is_some() || tested.share > best.share) {
                best = tested;
            }
        }
    }
    best
}

/// Where the tail begins that holds the error: the largest start that still holds enough.
fn tail_of(places: &[(usize, f64)], tile: usize, dd: f64) -> usize {
    let mut by_rest = vec![0.0; tile];
    places.iter().for_each(|(at, d)| by_rest[at % tile] += d);
    let (mut held, mut from) = (0.0, tile);
    while from > 0 && held < FITS.max(0.95) * dd {
        from -= 1;
        held += by_rest[from];
    }
    from
}
