//! Two programs take turns, so that whatever else the machine does meets both.

use anyhow::Result;

/// Times of one program, in seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Times(pub(super) Vec<f64>);

impl Times {
    /// The shortest.
    pub(super) fn best(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The longest.
    pub(super) fn worst(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }
}

/// A B B A, so many times, after one of each that doesn't count.
pub(super) fn turns(
    rounds: u16,
    mut a: impl FnMut() -> Result<f64>,
    mut b: impl FnMut() -> Result<f64>,
) -> Result<(Times, Times)> {
    a()?;
    b()?;
    turns_at_once(rounds, a, b)
}

/// A B B A, so many times, and every turn counts.
pub(super) fn turns_at_once(
    rounds: u16,
    mut a: impl FnMut() -> Result<f64>,
    mut b: impl FnMut() -> Result<f64>,
) -> Result<(Times, Times)> {
    let (mut of_a, mut of_b) = (Times::default(), Times::default());
    for _ in 0..rounds {
        of_a.0.push(a()?);
        of_b.0.push(b()?);
        of_b.0.push(b()?);
        of_a.0.push(a()?);
    }
    Ok((of_a, of_b))
}

#[cfg(test)]
mod tests;
