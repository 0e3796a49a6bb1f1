//! Something that runs mma.sync: a device, or a model in its place.

use karat_model::{Error, Result};

use super::form::Form;
use super::model::MmaModel;

/// Rows and columns of a tile.
pub const ROWS: usize = 16;
/// See [`ROWS`].
pub const COLUMNS: usize = 8;

/// Operands of whole tiles, row by row along K.
#[derive(Debug, Clone)]
pub struct Tiles {
    /// The form of all instructions.
    pub form: Form,
    /// Instructions one after the other.
    pub steps: usize,
    /// `[tiles, 16, steps * products]`.
    pub a: Vec<u16>,
    /// `[tiles, 8, steps * products]`.
    pub b: Vec<u16>,
    /// Bits of f32 `[tiles, 16, 8]`.
    pub c: Vec<u32>,
}

impl Tiles {
    /// No tile yet.
    pub fn new(form: Form, steps: usize) -> Self {
        Self { form, steps, a: Vec::new(), b: Vec::new(), c: Vec::new() }
    }

    /// Values of a row or column.
    pub fn width(&self) -> usize {
        self.steps * self.form.products()
    }

    /// How many tiles.
    pub fn len(&self) -> usize {
        self.c.len() / (ROWS * COLUMNS)
    }

    /// True without tiles.
    pub fn is_empty(&self) -> bool {
        self.c.is_empty()
    }

    /// Operands of output `i` of all: row, column, accumulator.
    pub fn of(&self, i: usize) -> (&[u16], &[u16], u32) {
        let (tile, row, column) = (i / (ROWS * COLUMNS), i / COLUMNS % ROWS, i % COLUMNS);
        let width = self.width();
        let (a, b) = ((tile * ROWS + row) * width, (tile * COLUMNS + column) * width);
        (&self.a[a..a + width], &self.b[b..b + width], self.c[i])
    }

    /// An error unless the sizes fit each other.
    pub(crate) fn check(&self) -> Result<()> {
        let (n, width) = (self.len(), self.width());
        if self.a.len() != n * ROWS * width
            || self.b.len() != n * COLUMNS * width
            || !self.c.len().is_multiple_of(ROWS * COLUMNS)
        {
            return Err(Error::input("tiles for mma.sync whose sizes don't fit").expected(n).found(self.c.len()));
        }
        Ok(())
    }
}

/// Operands of one output of one instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Bits of the accumulator.
    pub c: u32,
    /// Left operands.
    pub a: Vec<u16>,
    /// Right ones.
    pub b: Vec<u16>,
}

/// Runs mma.sync.
pub trait Machine: Sync {
    /// Bits of f32 `[tiles, 16, 8]`.
    ///
    /// # Errors
    /// The device failed.
    fn run(&self, tiles: &Tiles) -> Result<Vec<u32>>;
}

/// A model in a device's place.
impl Machine for MmaModel {
    fn run(&self, tiles: &Tiles) -> Result<Vec<u32>> {
        tiles.check()?;
        Ok((0..tiles.c.len()).map(|i| tiles.of(i)).map(|(a, b, c)| self.chain(c, a, b)).collect())
    }
}

/// What a machine makes of single cases, each at two places of a tile: what it makes at both, and whether these differ.
pub(super) fn answers(machine: &dyn Machine, form: Form, cases: &[Case]) -> Result<Vec<(u32, bool)>> {
    let mut tiles = Tiles::new(form, 1);
    for some in cases.chunks(COLUMNS) {
        let at = |i: usize| &some[i % some.len()];
        (0..ROWS).for_each(|row| tiles.a.extend(&at(row % COLUMNS).a));
        (0..COLUMNS).for_each(|column| tiles.b.extend(&at(column).b));
        (0..ROWS * COLUMNS).for_each(|i| tiles.c.push(at(i / COLUMNS % COLUMNS).c));
    }
    let found = machine.run(&tiles)?;
    let one = |i: usize| {
        let (tile, place) = (i / COLUMNS * ROWS * COLUMNS, i % COLUMNS);
        let (low, high) = (found[tile + place * COLUMNS + place], found[tile + (place + COLUMNS) * COLUMNS + place]);
        (low, low != high)
    };
    Ok((0..cases.len()).map(one).collect())
}
