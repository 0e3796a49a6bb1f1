//! One row's choice: flips, shortfall in golden's scores, ties at the boundary.

/// One choice that changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flip {
    /// Row.
    pub row: usize,
    /// What golden chose and the candidate didn't; `None` when the candidate chose more.
    pub golden: Option<u32>,
    /// What the candidate chose instead; `None` when it chose less.
    pub candidate: Option<u32>,
    /// Golden's score of `golden` less golden's score of `candidate`: what noise must have bridged. 0 for a tie,
    /// infinite when golden could not see `candidate` (score `-inf`); `None` without scores or without a partner.
    pub margin: Option<f64>,
}

/// Ties at golden's top-k boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ties {
    /// Selected choices that score exactly the k-th largest score.
    pub selected: u32,
    /// Unselected choices that score exactly the same.
    pub unselected: u32,
}

impl Ties {
    /// True when the tie rule (lower index first) decided.
    pub fn is_tied(self) -> bool {
        self.unselected > 0
    }
}

/// Choices as an ascending list without repetition, and how many were out of `0..limit` or repeated.
pub(super) fn set_of(choices: &[i64], limit: i64) -> (Vec<u32>, u32) {
    let mut set: Vec<u32> = choices.iter().filter(|c| (0..limit).contains(*c)).map(|&c| c as u32).collect();
    set.sort_unstable();
    set.dedup();
    let invalid = (choices.len() - set.len()) as u32;
    (set, invalid)
}

/// Pairs golden's lost choices (lowest score first) with the candidate's new ones (highest score first): the pairing
/// that needs the least noise. Both lists are ascending sets.
pub(super) fn flips(row: usize, golden: &[u32], candidate: &[u32], scores: Option<&[f64]>, out: &mut Vec<Flip>) {
    let mut lost: Vec<u32> = golden.iter().copied().filter(|g| candidate.binary_search(g).is_err()).collect();
    let mut new: Vec<u32> = candidate.iter().copied().filter(|c| golden.binary_search(c).is_err()).collect();
    if let Some(scores) = scores {
        lost.sort_by(|&a, &b| scores[a as usize].total_cmp(&scores[b as usize]));
        new.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]));
    }
    for i in 0..lost.len().max(new.len()) {
        let (golden, candidate) = (lost.get(i).copied(), new.get(i).copied());
        let margin = match (golden, candidate, scores) {
            (Some(g), Some(c), Some(scores)) => Some(margin(scores[g as usize], scores[c as usize])),
            _ => None,
        };
        out.push(Flip { row, golden, candidate, margin });
    }
}

fn margin(golden: f64, candidate: f64) -> f64 {
    // Equal scores first: -inf - -inf is no number.
    if golden == candidate { 0.0 } else { golden - candidate }
}

/// How far `choice` (ascending set of indices) is from a top-k of `scores`: best unselected less worst selected, at
/// least 0. An empty or full choice falls short of nothing. NaN scores make it NaN.
pub fn shortfall(scores: &[f64], choice: &[u32]) -> f64 {
    let mut worst = f64::INFINITY;
    let mut best = f64::NEG_INFINITY;
    for (i, &score) in scores.iter().enumerate() {
        if score.is_nan() {
            return f64::NAN;
        }
        if choice.binary_search(&(i as u32)).is_ok() {
            worst = worst.min(score);
        } else {
            best = best.max(score);
        }
    }
    if best == worst { 0.0 } else { (best - worst).max(0.0) }
}

/// Ties at the boundary of the `k` largest `scores`. Scores of `-inf` (not visible) never tie.
pub fn boundary_ties(scores: &[f64], k: usize) -> Ties {
    if k == 0 || k > scores.len() {
        return Ties::default();
    }
    let mut sorted = scores.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let boundary = sorted[k - 1];
    if boundary == f64::NEG_INFINITY {
        return Ties::default();
    }
    let equal = sorted.iter().filter(|s| **s == boundary).count() as u32;
    let selected = sorted[..k].iter().filter(|s| **s == boundary).count() as u32;
    Ties { selected, unselected: equal - selected }
}
