//! The shortest edit between two sequences (Myers, 1986).

use std::ops::Range;

/// A stretch of one sequence in place of a stretch of the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hunk {
    /// Items of the expected sequence that are not found.
    pub(super) expected: Range<usize>,
    /// Items found that are not expected.
    pub(super) found: Range<usize>,
}

/// More edits than this are one difference: nothing could be said about such a prompt turn by turn.
const MAX_EDITS: usize = 1500;

/// Hunks between two sequences, in order.
pub(super) fn hunks<T: PartialEq>(expected: &[T], found: &[T]) -> Vec<Hunk> {
    let before = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    let behind = expected[before..].iter().rev().zip(found[before..].iter().rev()).take_while(|(a, b)| a == b).count();
    let a = &expected[before..expected.len() - behind];
    let b = &found[before..found.len() - behind];
    let moved = |h: Hunk| Hunk {
        expected: h.expected.start + before..h.expected.end + before,
        found: h.found.start + before..h.found.end + before,
    };
    middle(a, b).into_iter().map(moved).collect()
}

fn middle<T: PartialEq>(a: &[T], b: &[T]) -> Vec<Hunk> {
    if a.is_empty() && b.is_empty() {
        return Vec::new();
    }
    let whole = || vec![Hunk { expected: 0..a.len(), found: 0..b.len() }];
    if a.is_empty() || b.is_empty() {
        return whole();
    }
    let Some(trace) = furthest(a, b) else { return whole() };
    // Back along the path: matched pairs, from the last to the first.
    let (mut x, mut y) = (a.len(), b.len());
    let mut pairs = Vec::new();
    for (d, reach) in trace.iter().enumerate().rev() {
        let k = x as isize - y as isize;
        let (from_x, from_y) = if d == 0 {
            (0, 0)
        } else {
            let before = &trace[d - 1];
            let down = is_down(before, k, d);
            let from_k = if down { k + 1 } else { k - 1 };
            let from_x = reach_of(before, from_k, d - 1);
            (from_x, (from_x as isize - from_k) as usize)
        };
        debug_assert!(reach_of(reach, k, d) >= x);
        // The edit comes first, then the diagonal.
        let after_edit = if d == 0 {
            (0, 0)
        } else if from_x as isize - from_y as isize == k + 1 {
            (from_x, from_y + 1)
        } else {
            (from_x + 1, from_y)
        };
        while x > after_edit.0 && y > after_edit.1 {
            x -= 1;
            y -= 1;
            pairs.push((x, y));
        }
        (x, y) = (from_x, from_y);
    }
    pairs.reverse();
    pairs.push((a.len(), b.len()));
    let mut out = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (x, y) in pairs {
        if x > i || y > j {
            out.push(Hunk { expected: i..x, found: j..y });
        }
        (i, j) = (x + 1, y + 1);
    }
    out
}

/// For each number of edits, how far along `a` each diagonal reaches (diagonals -d, -d+2, .., d); `None` beyond the limit.
fn furthest<T: PartialEq>(a: &[T], b: &[T]) -> Option<Vec<Vec<usize>>> {
    let mut trace: Vec<Vec<usize>> = Vec::new();
    for d in 0..=MAX_EDITS {
        let mut reach = Vec::with_capacity(d + 1);
        let mut done = false;
        for k in (-(d as isize)..=d as isize).step_by(2) {
            let mut x = match trace.last() {
                None => 0,
                Some(before) if is_down(before, k, d) => reach_of(before, k + 1, d - 1),
                Some(before) => reach_of(before, k - 1, d - 1) + 1,
            };
            // Never negative: each way starts at 0 and only adds. Beyond the grid nothing is equal, and no way leads back.
            let mut y = (x as isize - k) as usize;
            while x < a.len() && y < b.len() && a[x] == b[y] {
                x += 1;
                y += 1;
            }
            done |= x == a.len() && y == b.len();
            reach.push(x);
        }
        trace.push(reach);
        if done {
            return Some(trace);
        }
    }
    None
}

/// Whether the best way to diagonal `k` with `d` edits takes an item of `b` last. Of two equal ways the expected items
/// go first, so that what is missing stands before what is there instead.
fn is_down(before: &[usize], k: isize, d: usize) -> bool {
    let d = d as isize;
    k == -d || (k != d && reach_of(before, k - 1, d as usize - 1) < reach_of(before, k + 1, d as usize - 1))
}

fn reach_of(reach: &[usize], k: isize, d: usize) -> usize {
    reach[((k + d as isize) >> 1) as usize]
}
