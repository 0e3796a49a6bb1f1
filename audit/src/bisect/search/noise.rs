//! Answers that are wrong now and then: the same question again, until the answer is as sure as asked.

use super::Answer;

/// How noisy single answers are, and how sure a whole search must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// Chance that a single answer is wrong, under one half.
    pub wrong: f64,
    /// Chance that any answer of the whole search is wrong in the end, at most.
    pub error: f64,
}

impl Noise {
    /// How far one answer must lead over the other before it is believed, for the question with this number (from 0).
    ///
    /// Wald's sequential test of "wrong with chance w" against "right with chance w": a lead of k has odds
    /// ((1-w)/w)^k, so it is wrong with chance at most 1/(1 + ((1-w)/w)^k). Question i may use error/((i+1)(i+2)) of the
    /// search's error; over all questions, however many, that sums to less than the error.
    pub fn lead(&self, question: usize) -> u32 {
        let i = question as f64;
        let alpha = self.error / ((i + 1.0) * (i + 2.0));
        let odds = (1.0 - self.wrong) / self.wrong;
        if self.wrong <= 0.0 {
            return 1;
        }
        (((1.0 - alpha) / alpha).ln() / odds.ln()).ceil().max(1.0) as u32
    }
}

/// Asks again until one answer leads far enough. A skip is believed at once.
///
/// # Errors
/// Those of `ask`.
pub fn steady<E>(noise: Noise, question: usize, mut ask: impl FnMut() -> Result<Answer, E>) -> Result<Answer, E> {
    let lead = noise.lead(question);
    let (mut good, mut bad) = (0u32, 0u32);
    loop {
        match ask()? {
            Answer::Skip => return Ok(Answer::Skip),
            Answer::Good => good += 1,
            Answer::Bad => bad += 1,
        }
        if good >= bad + lead {
            return Ok(Answer::Good);
        }
        if bad >= good + lead {
            return Ok(Answer::Bad);
        }
    }
}
