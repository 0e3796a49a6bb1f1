//! What another processor can say of values that it computed and still holds.

use crate::Result;

/// The sketch of one row as words: bits of its norm, of its largest size and of its 16 signed sums (f32), how many values are not
/// finite, and its 64-bit hash, low half first. What each is, `karat-trace` says (`sketch`).
pub type SketchLine = [u32; 21];

/// Rows of f32 on the processor that computed them.
pub trait There {
    /// Begins to sketch `rows` rows of equal length, and doesn't wait for it. `ragged`: of each row without the minus infinities at
    /// its end. `None`: they are held no more, or nothing there can do it.
    ///
    /// # Errors
    /// The device failed.
    fn sketch(&self, rows: usize, ragged: bool) -> Result<Option<Box<dyn Later>>>;
}

/// Sketches that were begun.
pub trait Later: Send {
    /// One a row, in order; waits for them.
    ///
    /// # Errors
    /// The device failed.
    fn lines(self: Box<Self>) -> Result<Vec<SketchLine>>;
}
