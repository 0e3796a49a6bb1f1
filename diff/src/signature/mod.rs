//! What an error looks like: small pure functions over golden's and the candidate's rows of one tap.
//!
//! A signature fits when it tells nearly all of ‖d‖² by itself. Several may fit at once (a factor that is wrong in decode
//! only); which were tested is part of the result.

mod columns;
mod rows;
#[cfg(test)]
mod tests;
mod values;

/// Share of ‖d‖² that a signature must explain.
pub const FITS: f64 = 0.9;

/// Rows of one tap on the same operands, with what is known about them.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// `[n, width]` golden.
    pub golden: &'a [f32],
    /// `[n, width]` candidate.
    pub candidate: &'a [f32],
    /// Elements in a row.
    pub width: usize,
    /// Position of each row, ascending.
    pub positions: &'a [u32],
    /// Whether the candidate computed the row in decode.
    pub decode: &'a [bool],
    /// Positions at which something begins: a turn, the end of the first window, a chunk.
    pub boundaries: &'a [(u32, &'a str)],
    /// Equal parts of a row, by kind (head, expert, group), with the label of each part of each row.
    pub parts: &'a [Parts<'a>],
    /// Constants of the config that a wrong factor may be.
    pub constants: &'a [(&'a str, f64)],
    /// Mantissa bits of the format that the tap is stored in.
    pub mantissa: u32,
}

/// A cut of every row into equal parts.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// What a part is: head, expert, stream.
    pub kind: &'a str,
    /// Parts in a row.
    pub count: usize,
    /// `[n, count]` labels; empty when the label is the part's own number.
    pub labels: &'a [u32],
}

/// What testing one signature gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Tested {
    /// Name.
    pub name: &'static str,
    /// Share of ‖d‖² that it explains, 0 to 1.
    pub share: f64,
    /// The finding in words, when it fits.
    pub fits: Option<String>,
}

impl Tested {
    fn no(name: &'static str) -> Self {
        Self { name, share: 0.0, fits: None }
    }

    fn of(name: &'static str, share: f64, is_told: bool, words: impl FnOnce() -> String) -> Self {
        let fits = (share >= FITS && is_told).then(words);
        Self { name, share, fits }
    }
}

/// Every signature, the most telling first. Empty where the two are equal or not finite.
pub fn all(rows: &Rows<'_>) -> Vec<Tested> {
    let seen = Seen::of(rows);
    if !(seen.dd.is_finite() && seen.dd > 0.0) {
        return Vec::new();
    }
    let mut out = vec![
        values::zeros(&seen),
        values::gain(&seen),
        rows::swapped(&seen),
        rows::stale(&seen),
        values::clamp_missing(&seen),
        values::clamp_added(&seen),
        values::grid(&seen),
        columns::part_set(&seen),
        columns::tail(&seen),
        rows::only_decode(&seen),
        rows::after_boundary(&seen),
        rows::growing(&seen),
    ];
    // A whole tap of zeros is a gain of 0 and a clamp at 0 too: the plainer word is enough.
    if out[0].fits.is_some() {
        out.iter_mut().filter(|t| ["gain", "clamp", "clamp missing"].contains(&t.name)).for_each(|t| t.fits = None);
    }
    out
}

/// Rows with their sums.
struct Seen<'a> {
    rows: &'a Rows<'a>,
    /// ‖d‖² and ‖x‖² of each row.
    by_row: Vec<[f64; 2]>,
    /// ‖d‖².
    dd: f64,
}

impl<'a> Seen<'a> {
    fn of(rows: &'a Rows<'a>) -> Self {
        let width = rows.width.max(1);
        let pairs = rows.golden.chunks_exact(width).zip(rows.candidate.chunks_exact(width));
        let by_row: Vec<[f64; 2]> = pairs.map(|(x, y)| squares(x, y)).collect();
        let dd = by_row.iter().map(|r| r[0]).sum();
        Self { rows, by_row, dd }
    }

    fn pairs(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.rows.golden.iter().zip(self.rows.candidate).map(|(x, y)| (f64::from(*x), f64::from(*y)))
    }

    fn golden(&self, row: usize) -> &'a [f32] {
        &self.rows.golden[row * self.rows.width..(row + 1) * self.rows.width]
    }

    fn candidate(&self, row: usize) -> &'a [f32] {
        &self.rows.candidate[row * self.rows.width..(row + 1) * self.rows.width]
    }

    /// ‖d‖² over the elements that `admits` takes, by value.
    fn share(&self, admits: impl Fn(f64, f64) -> bool) -> f64 {
        let dd: f64 = self.pairs().filter(|(x, y)| admits(*x, *y)).map(|(x, y)| (y - x) * (y - x)).sum();
        dd / self.dd
    }
}

/// ‖y - x‖² and ‖x‖².
fn squares(x: &[f32], y: &[f32]) -> [f64; 2] {
    let mut out = [0.0; 2];
    for (x, y) in x.iter().zip(y) {
        // A masked score is the same infinity on both sides.
        if x == y && !x.is_nan() {
            out[1] += if x.is_finite() { f64::from(*x).powi(2) } else { 0.0 };
            continue;
        }
        out[0] += (f64::from(*y) - f64::from(*x)).powi(2);
        out[1] += f64::from(*x).powi(2);
    }
    out
}
