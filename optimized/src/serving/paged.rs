//! A program together with its sizes, and somebody who watches the rows that go to and come from its pages.

use std::fmt;
use std::sync::Arc;

use super::{Geometry, Part, Program};

/// A row on its way between a layer and its pages.
#[derive(Debug, Clone, Copy)]
pub struct PageRow<'a> {
    /// Layer.
    pub layer: u16,
    /// Tensor.
    pub part: Part,
    /// Position, or the entry's index.
    pub index: usize,
    /// Which forward call's piece (in time order); the number of pieces for a read of the final content.
    pub piece: usize,
    /// Which request of the program.
    pub request: usize,
    /// Physical page and row; `None` when the table has no page there.
    pub at: Option<(u32, usize)>,
    /// The row.
    pub values: &'a [f32],
}

/// Sees every row that a layer reads from its pages before it computes, and every row that it writes to them after.
/// Layers are watched one at a time, in time order within a layer and lane.
pub trait Watch: Send + Sync {
    /// A layer reads a row.
    fn read(&self, row: &PageRow<'_>);
    /// A layer wrote a row.
    fn wrote(&self, row: &PageRow<'_>);
}

/// What a path with pages runs.
#[derive(Clone)]
pub struct Paged {
    /// Name of the history, for messages.
    pub name: String,
    /// Pages and rings.
    pub geometry: Geometry,
    /// The schedule.
    pub program: Program,
    /// Sees the rows.
    pub watch: Option<Arc<dyn Watch>>,
}

impl fmt::Debug for Paged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &mut f.debug_struct("Paged");
        shown.field("name", &self.name).field("geometry", &self.geometry).finish_non_exhaustive()
    }
}
