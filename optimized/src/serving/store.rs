//! Content of the pages of one layer: numbers in a run, owner tags in a check of the accounting.

use std::collections::BTreeMap;

use super::{Copied, Event, Geometry, Part, Pool, Told};

/// An element of a row.
pub trait Content: Copy {
    /// What a free or never written row reads as. It can't look right.
    const POISON: Self;
    /// What padding rows write.
    const PAD: Self;
    /// What a page holds that was handed out anew.
    const CLEARED: Self;
}

impl Content for f32 {
    const POISON: Self = Self::NAN;
    const PAD: Self = Self::INFINITY;
    const CLEARED: Self = 0.0;
}

/// All pages of one layer, on every instance.
#[derive(Debug, Clone)]
pub struct Store<T> {
    geometry: Geometry,
    layer: u16,
    /// Elements of a row, by part; 0 for a part that the layer lacks.
    widths: [usize; 7],
    /// Written pages `[rows, width]` by instance, part and page. A page that isn't here is poison all over.
    pages: BTreeMap<(u8, Part, u32), Vec<T>>,
    /// One row of poison, as wide as the widest.
    poison: Vec<T>,
}

impl<T: Content> Store<T> {
    /// Pages of a layer without any content.
    pub fn new(geometry: Geometry, layer: u16, width: impl Fn(Part) -> usize) -> Self {
        let widths = Part::ALL.map(&width);
        let most = widths.iter().copied().max().unwrap_or(0);
        Self { geometry, layer, widths, pages: BTreeMap::new(), poison: vec![T::POISON; most] }
    }

    /// Elements of a row.
    pub fn width(&self, part: Part) -> usize {
        self.widths[part as usize]
    }

    /// Where the kernels find a row: physical page and row in it. `None` when the table they were told has no such page.
    pub fn place(&self, told: &Told, part: Part, index: usize) -> Option<(u32, usize)> {
        place(&self.geometry, told, part, index)
    }

    /// A row; poison where there is none.
    pub fn read(&self, told: &Told, part: Part, index: usize) -> &[T] {
        let width = self.width(part);
        let found = self.place(told, part, index);
        let page = found.and_then(|(page, row)| Some((self.pages.get(&(told.instance, part, page))?, row)));
        page.map_or_else(|| self.poison(part), |(values, row)| &values[row * width..(row + 1) * width])
    }

    /// What a row that isn't there reads as.
    pub fn poison(&self, part: Part) -> &[T] {
        &self.poison[..self.width(part)]
    }

    /// Writes a row. One whose page the tables lack is lost.
    pub fn write(&mut self, told: &Told, part: Part, index: usize, values: &[T]) {
        let width = self.width(part);
        let Some((page, row)) = self.place(told, part, index) else { return };
        let rows = self.geometry.rows(part);
        let content = self.pages.entry((told.instance, part, page)).or_insert_with(|| vec![T::POISON; rows * width]);
        content[row * width..(row + 1) * width].copy_from_slice(values);
    }

    /// What an event other than a forward call's computation does to the pages: freed ones become poison, cleared
    /// ones zero, moved ones are copied, padding rows are written.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Freed { instance, pool, page } => self.void(*instance, *pool, *page),
            Event::Cleared { instance, part, page } => self.clear(*instance, *part, *page),
            Event::Moved { copies, .. } => copies.iter().for_each(|c| self.copy(c)),
            Event::Forward { pads, .. } => pads.iter().for_each(|told| self.pad(told)),
            Event::Done { .. } => {}
        }
    }

    fn void(&mut self, instance: u8, pool: Pool, page: u32) {
        for part in Part::ALL.into_iter().filter(|p| p.pool() == pool) {
            self.pages.remove(&(instance, part, page));
        }
    }

    fn clear(&mut self, instance: u8, part: Part, page: u32) {
        let size = self.geometry.rows(part) * self.width(part);
        if size > 0 {
            self.pages.insert((instance, part, page), vec![T::CLEARED; size]);
        }
    }

    fn copy(&mut self, copied: &Copied) {
        if !copied.layers.contains(&self.layer) {
            return;
        }
        for (from, to) in &copied.pages {
            let from = (copied.instances.0, copied.part, *from);
            let to = (copied.instances.1, copied.part, *to);
            match self.pages.get(&from).cloned() {
                Some(content) => self.pages.insert(to, content),
                None => self.pages.remove(&to),
            };
        }
    }

    /// A padding row computes something, and its kernels store it.
    fn pad(&mut self, told: &Told) {
        for part in Part::ALL {
            let junk = vec![T::PAD; self.width(part)];
            if junk.is_empty() {
                continue;
            }
            let index = told.seen / self.geometry.ratio(part).max(1);
            self.write(told, part, index, &junk);
        }
    }
}

/// Physical page and row of a row, by the tables that a kernel was told.
pub fn place(geometry: &Geometry, told: &Told, part: Part, index: usize) -> Option<(u32, usize)> {
    let (page, row) = geometry.place(part, index);
    let table = if part.is_state() { &told.state } else { told.tables.of(part.pool()) };
    table.get(page).map(|page| (page, row))
}
