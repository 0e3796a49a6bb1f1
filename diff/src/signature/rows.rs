//! Signatures that look at whole rows and where they stand.

use super::{Seen, Tested, squares};

/// A row is bad when it holds this much more than its share of the error of an even spread.
const BAD: f64 = 0.1;
/// Another row fits when it leaves so much of a row's squared error.
const LEFT: f64 = 0.1;
/// Bad rows that are looked at.
const LOOKED_AT: usize = 64;
/// Errors on one side of a place that are this small beside the other's (by rel-L2) are none.
const NONE: f64 = 0.1;

impl Seen<'_> {
    /// The worst rows that hold nearly all of the error, the worst first.
    fn bad(&self) -> Vec<usize> {
        let even = self.dd / self.by_row.len().max(1) as f64;
        let mut bad: Vec<usize> = (0..self.by_row.len()).filter(|i| self.by_row[*i][0] > BAD * even).collect();
        bad.sort_by(|a, b| self.by_row[*b][0].total_cmp(&self.by_row[*a][0]));
        bad.truncate(LOOKED_AT);
        bad
    }

    /// For each bad row the row of golden that it is instead, when one fits.
    fn instead(&self) -> Vec<(usize, usize)> {
        let best = |i: usize| {
            let of = |j: usize| squares(self.golden(j), self.candidate(i))[0];
            let others = (0..self.by_row.len()).filter(|j| *j != i);
            let (j, left) = others.map(|j| (j, of(j))).min_by(|a, b| a.1.total_cmp(&b.1))?;
            (left <= LEFT * self.by_row[i][0]).then_some((i, j))
        };
        self.bad().into_iter().filter_map(best).collect()
    }

    /// Share of the looked-at error that these rows hold.
    fn held(&self, rows: impl Iterator<Item = usize>) -> f64 {
        let looked: f64 = self.bad().iter().map(|i| self.by_row[*i][0]).sum();
        rows.map(|i| self.by_row[i][0]).sum::<f64>() / looked.max(f64::MIN_POSITIVE)
    }

    /// Share of ‖d‖² in rows that `admits` takes, and rel-L2 inside and outside.
    fn sides(&self, admits: impl Fn(usize) -> bool) -> Option<(f64, f64, f64)> {
        let (mut inside, mut outside) = ([0.0; 2], [0.0; 2]);
        for (i, row) in self.by_row.iter().enumerate() {
            let to = if admits(i) { &mut inside } else { &mut outside };
            to[0] += row[0];
            to[1] += row[1];
        }
        let rel = |s: [f64; 2]| (s[1] > 0.0).then(|| (s[0] / s[1]).sqrt());
        Some((inside[0] / self.dd, rel(inside)?, rel(outside)?))
    }
}

/// Rows that are each other's.
pub(super) fn swapped(seen: &Seen<'_>) -> Tested {
    let instead = seen.instead();
    let pairs: Vec<&(usize, usize)> = instead.iter().filter(|(i, j)| instead.contains(&(*j, *i))).collect();
    let share = seen.held(pairs.iter().map(|(i, _)| *i));
    Tested::of("swapped rows", share, !pairs.is_empty(), || {
        let (i, j) = pairs[0];
        let at = seen.rows.positions;
        format!("rows are swapped: {} of them, such as positions {} and {}", pairs.len(), at[*i.min(j)], at[*i.max(j)])
    })
}

/// Rows that are golden's of an earlier position.
pub(super) fn stale(seen: &Seen<'_>) -> Tested {
    let earlier: Vec<(usize, usize)> = seen.instead().into_iter().filter(|(i, j)| j < i).collect();
    let share = seen.held(earlier.iter().map(|(i, _)| *i));
    Tested::of("stale rows", share, !earlier.is_empty(), || {
        let at = seen.rows.positions;
        let by = |(i, j): &(usize, usize)| at[*i] - at[*j];
        let first = by(&earlier[0]);
        let how = match earlier.iter().all(|e| by(e) == first) {
            true => format!("all by {first}"),
            false => "by different distances".to_string(),
        };
        let (i, j) = earlier[0];
        format!("rows are stale, {how}: position {} holds what belongs to {}", at[i], at[j])
    })
}

/// An error in decode rows alone.
pub(super) fn only_decode(seen: &Seen<'_>) -> Tested {
    let Some((share, inside, outside)) = seen.sides(|i| seen.rows.decode[i]) else { return Tested::no("only decode") };
    Tested::of("only decode", share, outside <= NONE * inside, || "only rows that were decoded".to_string())
}

/// An error from a boundary on, and none before.
pub(super) fn after_boundary(seen: &Seen<'_>) -> Tested {
    let name = "after a boundary";
    let mut best = Tested::no(name);
    for (at, what) in seen.rows.boundaries {
        let before = seen.rows.positions.iter().filter(|p| *p < at).count();
        let Some((share, inside, outside)) = seen.sides(|i| seen.rows.positions[i] >= *at) else { continue };
        let tested = Tested::of(name, share, before >= 4 && outside <= NONE * inside, || {
            format!("only from position {at} on ({what})")
        });
        // The latest boundary that explains it.
        if tested.fits.is_some() || best.fits.is_none() {
            best = tested;
        }
    }
    best
}

/// An error that grows with the position: the last quarter against the first, row by row in between.
pub(super) fn growing(seen: &Seen<'_>) -> Tested {
    let name = "growing with position";
    let n = seen.by_row.len();
    if n < 16 {
        return Tested::no(name);
    }
    let rel = |rows: &[[f64; 2]]| {
        let (d, x) = rows.iter().fold((0.0, 0.0), |(d, x), r| (d + r[0], x + r[1]));
        (d / x.max(f64::MIN_POSITIVE)).sqrt()
    };
    let eighths: Vec<f64> = (0..8).map(|i| rel(&seen.by_row[i * n / 8..(i + 1) * n / 8])).collect();
    let pairs = (0..8).flat_map(|i| (i + 1..8).map(move |j| (i, j)));
    let (rising, all) = pairs.fold((0, 0), |(r, n), (i, j)| (r + u32::from(eighths[j] > eighths[i]), n + 1));
    let share = f64::from(rising) / f64::from(all);
    let factor = rel(&seen.by_row[3 * n / 4..]) / rel(&seen.by_row[..n / 4]).max(f64::MIN_POSITIVE);
    Tested::of(name, share, factor >= 2.0, || {
        let shown = if factor < 1e4 { format!("{factor:.1} times") } else { "many times".to_string() };
        format!("it grows with the position: {shown} from the first quarter to the last")
    })
}
