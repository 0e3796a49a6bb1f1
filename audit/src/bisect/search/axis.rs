//! Search by halves along an ordered axis, with points that cannot be tested.

use std::ops::RangeInclusive;

use super::Answer;

/// Where an axis turns from good to bad.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// The first bad point.
    At(usize),
    /// The first bad point is one of these: all before the last of them were skipped.
    Among(RangeInclusive<usize>),
}

/// The first bad point of `0..=last`, where point 0 is known to be good and point `last` to be bad. Every point from the
/// first bad one on counts as bad.
///
/// Asks ⌈log2(last)⌉ questions when none is skipped. After a skip it goes on away from the skipped point, as `git bisect`
/// does, and it asks no point twice.
///
/// # Errors
/// Those of `ask`.
pub fn first_bad<E>(last: usize, mut ask: impl FnMut(usize) -> Result<Answer, E>) -> Result<Turn, E> {
    let (mut low, mut high) = (0, last);
    let mut skipped = vec![false; last + 1];
    let mut tries = 0;
    loop {
        let Some(next) = untried(&skipped, low, high, tries) else {
            return Ok(if high - low <= 1 { Turn::At(high) } else { Turn::Among(low + 1..=high) });
        };
        match ask(next)? {
            Answer::Good => (low, tries) = (next, 0),
            Answer::Bad => (high, tries) = (next, 0),
            Answer::Skip => {
                skipped[next] = true;
                tries += 1;
            }
        }
    }
}

/// The point strictly between `low` and `high` to ask next: the one nearest to the middle; after skips to a quarter, three
/// quarters, an eighth and so on, so that a run of points that can't be tested is left soon.
fn untried(skipped: &[bool], low: usize, high: usize, tries: u32) -> Option<usize> {
    let target = low as f64 + (high - low) as f64 * fraction(tries + 1);
    let open = (low + 1..high).filter(|i| !skipped[*i]);
    // Of two that are as near the lower one.
    open.min_by(|a, b| (*a as f64 - target).abs().total_cmp(&(*b as f64 - target).abs()))
}

/// 1/2, 1/4, 3/4, 1/8, 5/8, ...: the bits of n behind the point, in reverse.
fn fraction(mut n: u32) -> f64 {
    let (mut out, mut unit) = (0.0, 0.5);
    while n > 0 {
        out += unit * f64::from(n & 1);
        unit /= 2.0;
        n >>= 1;
    }
    out
}
