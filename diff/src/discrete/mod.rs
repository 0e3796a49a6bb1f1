//! Discrete decisions: which experts, which entries. Judged by golden's margins, never by index equality alone.

mod choice;
#[cfg(test)]
mod tests;

use karat_seam::{Data, Error, Result, Tensor};

pub use choice::{Flip, Ties, boundary_ties, shortfall};

/// Decisions of a tap compared row by row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decisions {
    /// One entry a row.
    pub rows: Vec<RowDecision>,
    /// Every swapped choice, by row.
    pub flips: Vec<Flip>,
}

/// Decisions of one row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowDecision {
    /// Choices of golden.
    pub golden: u32,
    /// Choices of the candidate.
    pub candidate: u32,
    /// Choices of both.
    pub common: u32,
    /// Candidate choices that can't be: out of range, or one choice twice.
    pub invalid: u32,
    /// How far the candidate's choice falls short in golden's scores: best unselected less worst selected, 0 when the
    /// candidate's choice is a top-k of golden's scores, infinite for a choice that golden can't see; `None` without
    /// scores. At or under golden's noise it is harmless.
    pub shortfall: Option<f64>,
    /// Ties across golden's own boundary; `None` without scores.
    pub ties: Option<Ties>,
}

impl RowDecision {
    /// Share of golden's choices that the candidate made too (recall@k); 1 when golden chose nothing.
    pub fn recall(&self) -> f64 {
        if self.golden == 0 { 1.0 } else { f64::from(self.common) / f64::from(self.golden) }
    }

    /// Common choices over all choices of either (Jaccard); 1 when neither chose anything.
    pub fn overlap(&self) -> f64 {
        let all = self.golden + self.candidate - self.common;
        if all == 0 { 1.0 } else { f64::from(self.common) / f64::from(all) }
    }

    /// True when both made the same choices and nothing was invalid.
    pub fn is_same(&self) -> bool {
        self.common == self.golden && self.common == self.candidate && self.invalid == 0
    }
}

impl Decisions {
    /// Mean recall@k over rows; 1 for no rows.
    pub fn recall(&self) -> f64 {
        mean(&self.rows, RowDecision::recall)
    }

    /// Mean overlap over rows; 1 for no rows.
    pub fn overlap(&self) -> f64 {
        mean(&self.rows, RowDecision::overlap)
    }

    /// Rows whose choices differ.
    pub fn rows_changed(&self) -> usize {
        self.rows.iter().filter(|r| !r.is_same()).count()
    }

    /// Choices that can't be.
    pub fn invalid(&self) -> u64 {
        self.rows.iter().map(|r| u64::from(r.invalid)).sum()
    }

    /// Rows where golden's own boundary is a tie.
    pub fn tied_rows(&self) -> usize {
        self.rows.iter().filter(|r| r.ties.is_some_and(Ties::is_tied)).count()
    }

    /// Flips whose margin `noise` (predicted standard deviation of one score) can't explain: margin > 4·noise·√2.
    pub fn unexplained(&self, noise: f64) -> impl Iterator<Item = &Flip> {
        self.flips.iter().filter(move |f| !f.margin.is_some_and(|m| m <= 4.0 * noise * std::f64::consts::SQRT_2))
    }
}

/// Experts `[S,K]` (I64, unordered sets) of golden and candidate. `scores` are golden's `[S,E]` scores that decided
/// (router logits, or scores with bias); without them (hash routing) flips have no margin.
///
/// Errors: shapes or element types that don't fit together. An impossible choice is counted, not refused.
pub fn experts(at: &str, golden: &Tensor, candidate: &Tensor, scores: Option<&Tensor>) -> Result<Decisions> {
    let (g, c) = (golden.as_i64(at)?, candidate.as_i64(at)?);
    if golden.shape.len() != 2 || golden.rows() != candidate.rows() || candidate.shape.len() != 2 {
        return Err(Error::Shape { at: at.into(), expected: golden.shape.clone(), found: candidate.shape.clone() });
    }
    let scores = scores.map(|s| Scores::of(at, s, golden.rows(), None)).transpose()?;
    let (kg, kc) = (golden.width(), candidate.width());
    let mut out = Decisions::default();
    for row in 0..golden.rows() {
        let limit = scores.as_ref().map_or(i64::from(u32::MAX), |s| s.width as i64);
        let (golden, golden_invalid) = choice::set_of(&g[row * kg..(row + 1) * kg], limit);
        if golden_invalid > 0 {
            return Err(Error::Request(format!("{at}: row {row}: golden's own choices are no set of experts")));
        }
        let (candidate, invalid) = choice::set_of(&c[row * kc..(row + 1) * kc], limit);
        out.push(row, &golden, &candidate, invalid, scores.as_ref().map(|s| s.row(row)).as_deref());
    }
    Ok(out)
}

/// Entries `[S,T]` (U8 masks, 1 = attended) of golden and candidate. `scores` are golden's index scores `[S,T]`
/// (`-inf` = not visible); without them (HCA) flips have no margin.
///
/// Errors: shapes or element types that don't fit together.
pub fn entries(at: &str, golden: &Tensor, candidate: &Tensor, scores: Option<&Tensor>) -> Result<Decisions> {
    let (g, c) = (golden.as_u8(at)?, candidate.as_u8(at)?);
    if golden.shape != candidate.shape || golden.shape.len() != 2 {
        return Err(Error::Shape { at: at.into(), expected: golden.shape.clone(), found: candidate.shape.clone() });
    }
    let width = golden.width();
    let scores = scores.map(|s| Scores::of(at, s, golden.rows(), Some(width))).transpose()?;
    let mut out = Decisions::default();
    for row in 0..golden.rows() {
        let chosen = |mask: &[u8]| -> Vec<u32> {
            let mask = &mask[row * width..(row + 1) * width];
            mask.iter().enumerate().filter(|(_, m)| **m != 0).map(|(i, _)| i as u32).collect()
        };
        out.push(row, &chosen(g), &chosen(c), 0, scores.as_ref().map(|s| s.row(row)).as_deref());
    }
    Ok(out)
}

/// How many elements of two integer tensors differ, and where the first is (flat index).
///
/// Errors: different shapes or element types, float tensors.
pub fn codes(at: &str, golden: &Tensor, candidate: &Tensor) -> Result<(u64, Option<usize>)> {
    if golden.shape != candidate.shape {
        return Err(Error::Shape { at: at.into(), expected: golden.shape.clone(), found: candidate.shape.clone() });
    }
    fn differing<T: PartialEq>(a: &[T], b: &[T]) -> (u64, Option<usize>) {
        let places = || a.iter().zip(b).enumerate().filter(|(_, (a, b))| a != b).map(|(i, _)| i);
        (places().count() as u64, places().next())
    }
    match (&golden.data, &candidate.data) {
        (Data::I64(a), Data::I64(b)) => Ok(differing(a, b)),
        (Data::U8(a), Data::U8(b)) => Ok(differing(a, b)),
        (Data::I64(_) | Data::U8(_), other) => {
            Err(Error::Dtype { at: at.into(), expected: golden.data.dtype(), found: other.dtype() })
        }
        (other, _) => Err(Error::Dtype { at: at.into(), expected: "i64 or u8", found: other.dtype() }),
    }
}

impl Decisions {
    fn push(&mut self, row: usize, golden: &[u32], candidate: &[u32], invalid: u32, scores: Option<&[f64]>) {
        let common = golden.iter().filter(|g| candidate.binary_search(g).is_ok()).count() as u32;
        self.rows.push(RowDecision {
            golden: golden.len() as u32,
            candidate: candidate.len() as u32,
            common,
            invalid,
            shortfall: scores.map(|s| shortfall(s, candidate)),
            ties: scores.map(|s| boundary_ties(s, golden.len())),
        });
        choice::flips(row, golden, candidate, scores, &mut self.flips);
    }
}

/// Golden's scores of a tensor of decisions.
struct Scores<'a> {
    width: usize,
    data: &'a Data,
}

impl<'a> Scores<'a> {
    fn of(at: &str, scores: &'a Tensor, rows: usize, width: Option<usize>) -> Result<Self> {
        if scores.shape.len() != 2 || scores.rows() != rows || width.is_some_and(|w| w != scores.width()) {
            let expected = vec![rows, width.unwrap_or(scores.width())];
            return Err(Error::Shape { at: format!("{at}: scores"), expected, found: scores.shape.clone() });
        }
        match &scores.data {
            Data::F32(_) | Data::F64(_) => Ok(Self { width: scores.width(), data: &scores.data }),
            other => Err(Error::Dtype { at: at.into(), expected: "f32 or f64", found: other.dtype() }),
        }
    }

    fn row(&self, row: usize) -> Vec<f64> {
        let range = row * self.width..(row + 1) * self.width;
        match self.data {
            Data::F32(v) => v[range].iter().map(|&s| f64::from(s)).collect(),
            Data::F64(v) => v[range].to_vec(),
            Data::I64(_) | Data::U8(_) => Vec::new(),
        }
    }
}

fn mean(rows: &[RowDecision], f: impl Fn(&RowDecision) -> f64) -> f64 {
    if rows.is_empty() { 1.0 } else { rows.iter().map(f).sum::<f64>() / rows.len() as f64 }
}
