//! The visitor: one writable look at every tensor that a path computes.

use crate::{Later, Result, RowId, Site, TensorMut, There};

/// What a visitor wants of a tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Nothing: the path need not even materialise the tensor.
    Skip,
    /// To read it.
    Read,
    /// To change it (seeded fault, fix-one, break-one, noise). The path goes on with what the visitor leaves.
    Write,
}

/// Looks at the tensors of a path while it runs.
///
/// `visit` is called with rows of ONE sequence at a time, in ascending order of position, perhaps in several pieces
/// (chunks, single decode rows). Per-entry taps come with one `RowId` an entry (`pos` = entry index) and only with the
/// entries that are new since the last call. State taps come once a sequence, after its last row, with no rows but
/// that last one. Visiting happens in op order within a piece. A shape never changes under a visitor.
pub trait Visitor: Send {
    /// What is wanted at this place.
    fn want(&self, at: Site) -> Want;

    /// True if index scores and selections may come in pieces of few rows, each as wide as the entries that its last row sees. A
    /// visitor that widens what it joined with every piece is better off with many rows at once, which is what it gets unless it
    /// says so; few rows are still in the processor's caches when they are shown.
    fn takes_few_rows(&self) -> bool {
        false
    }

    /// Sees the tensor; called only when `want` said `Read` or `Write`.
    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> Result<()>;
    /// The same where the values also lie on the processor that computed them; called only when `want` said `Read`. Who has no use
    /// for that is shown the tensor as any other.
    fn visit_there(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>, there: &dyn There) -> Result<()> {
        let _ = there;
        self.visit(at, rows, tensor)
    }

    /// True if sketches of rows of `width` values are all that is wanted here: values that a path holds on another processor alone need
    /// not be brought here for it ([`Visitor::visit_sketched`]).
    fn takes_sketches(&self, at: Site, width: usize) -> bool {
        let _ = (at, width);
        false
    }

    /// Rows whose values stayed on the processor that computed them, a line each; called only when `want` said `Read` and
    /// `takes_sketches` did. Whoever takes sketches has this, too.
    fn visit_sketched(&mut self, at: Site, rows: &[RowId], lines: Box<dyn Later>) -> Result<()> {
        let _ = (at, rows, lines);
        Ok(())
    }
}

/// A visitor that wants nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTaps;

impl Visitor for NoTaps {
    fn want(&self, _: Site) -> Want {
        Want::Skip
    }

    fn visit(&mut self, _: Site, _: &[RowId], _: TensorMut<'_>) -> Result<()> {
        Ok(())
    }
}
