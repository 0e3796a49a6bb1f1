//! A captured decode graph: its kernels read their metadata from buffers of fixed shape, which a replay must fill again
//! for every batch, padding rows included.

use super::allocator::PAD_PAGE;
use super::{Geometry, Piece, Pool, Table, Tables, Told};

/// Metadata buffers of one graph. Tables are indexed by page index from 0; what isn't held points at the padding page.
#[derive(Debug, Clone)]
pub struct Captured {
    geometry: Geometry,
    instance: u8,
    /// By row: tokens in the cache.
    seen: Vec<usize>,
    /// By row and pool: `[pages]` physical pages.
    tables: Vec<[Vec<u32>; 4]>,
}

impl Captured {
    /// Captures a graph for `size` rows of up to `pages` pages each: all rows are padding.
    pub fn new(geometry: Geometry, instance: u8, size: usize, pages: usize) -> Self {
        let row = || std::array::from_fn(|_| vec![PAD_PAGE; pages]);
        Self { geometry, instance, seen: vec![0; size], tables: (0..size).map(|_| row()).collect() }
    }

    /// Rows of the graph.
    pub fn size(&self) -> usize {
        self.seen.len()
    }

    /// Fills the buffers for a batch of at most `size` rows; the rest becomes padding.
    pub fn refresh(&mut self, pieces: &[Piece]) {
        for row in 0..self.size() {
            let told = pieces.get(row).map(|piece| &piece.told);
            self.seen[row] = told.map_or(0, |told| told.seen);
            for pool in Pool::ALL {
                let buffer = &mut self.tables[row][pool as usize];
                let table = told.map(|told| told.tables.of(pool));
                for (index, page) in buffer.iter_mut().enumerate() {
                    *page = table.and_then(|table| table.get(index)).unwrap_or(PAD_PAGE);
                }
            }
        }
    }

    /// What the kernels find in a row's buffers.
    pub fn told(&self, row: usize) -> Told {
        let seen = self.seen[row];
        let mut tables = Tables::default();
        for pool in self.geometry.pools() {
            let pages = self.tables[row][pool as usize][..self.geometry.pages(seen + 1)].to_vec();
            *tables.of_mut(pool) = Table { first: 0, pages };
        }
        let state = tables.of(Pool::Window).clone();
        Told { instance: self.instance, seen, tables, state }
    }
}
