//! Which size of a fault to try next: a pure function of what was tried.

use super::{Added, Amount, Tried};

/// Without a better guess a size is a quarter of the one before.
const STEP: usize = 4;
/// Smaller shares than this are not tried: 4^-8, under the last place of bf16.
const LEAST: f32 = 1.6e-5;

/// The next size: smaller until one is missed, then between the two. `None` when the smallest size that is seen is at most
/// twice the largest that is missed, or nothing smaller can be made. Where what the whole fault adds has a tolerance, the
/// share that would just fill it is tried first: a guess that saves trials and decides nothing.
pub fn next(tried: &[Tried]) -> Option<Amount> {
    let Some(whole) = tried.first() else { return Some(Amount::Share(1.0)) };
    if !whole.is_seen() || (whole.by_rows && whole.rows.len() < 2) {
        return None;
    }
    if whole.by_rows {
        let rows = |t: &Tried| if let Amount::Rows(n) = t.amount { n } else { whole.rows.len() };
        let seen = tried.iter().filter(|t| t.is_seen()).map(rows).min()?;
        let missed = tried.iter().filter(|t| !t.is_seen()).map(rows).filter(|n| *n < seen).max();
        return match missed {
            None if seen == 1 => None,
            None => Some(Amount::Rows((seen / STEP).max(1))),
            Some(missed) if seen > 2 * missed => Some(Amount::Rows(seen.div_ceil(2))),
            Some(_) => None,
        };
    }
    let share = |t: &Tried| if let Amount::Share(s) = t.amount { s } else { 1.0 };
    let seen = tried.iter().filter(|t| t.is_seen()).map(share).min_by(f32::total_cmp)?;
    let missed = tried.iter().filter(|t| !t.is_seen()).map(share).filter(|s| *s < seen).max_by(f32::total_cmp);
    // Codes are wrong in one row at least, and a value changes by its last place: then a smaller share is the same size.
    let size = |t: &Tried| t.added.as_ref().map(|a| (a.tap.clone(), a.phase.clone(), a.rel_l2.to_bits()));
    let same = tried.iter().filter(|t| t.is_seen() && share(t) > seen).min_by(|a, b| share(a).total_cmp(&share(b)));
    let least = tried.iter().find(|t| t.is_seen() && share(t) <= seen);
    if missed.is_none() && same.zip(least).is_some_and(|(a, b)| size(a).is_some() && size(a) == size(b)) {
        return None;
    }
    let over = whole.added.as_ref().map(Added::over).filter(|over| *over > 2.0 && over.is_finite());
    match (missed, over) {
        (None, _) if seen < LEAST => None,
        (None, Some(over)) if seen == 1.0 => Some(Amount::Share(power((1.0 / over) as f32).max(LEAST))),
        (None, Some(_)) => Some(Amount::Share(seen / 2.0)),
        (None, None) => Some(Amount::Share(seen / STEP as f32)),
        (Some(missed), _) if seen > 2.1 * missed => Some(Amount::Share(power((seen * missed).sqrt()))),
        (Some(_), _) => None,
    }
}

/// The smallest power of two that is at least `x`.
fn power(x: f32) -> f32 {
    x.log2().ceil().exp2()
}
