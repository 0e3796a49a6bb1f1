//! Block table: the physical pages of one sequence in one pool.

/// Pages by page index. Those before `first` were given back (they left the window) or never held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Page index of `pages[0]`.
    pub first: usize,
    /// Physical pages.
    pub pages: Vec<u32>,
}

impl Table {
    /// The physical page of a page index.
    pub fn get(&self, index: usize) -> Option<u32> {
        self.pages.get(index.checked_sub(self.first)?).copied()
    }

    /// One past the last page index.
    pub fn end(&self) -> usize {
        self.first + self.pages.len()
    }

    /// Takes out the pages before page index `first`.
    pub fn drop_before(&mut self, first: usize) -> Vec<u32> {
        let n = first.saturating_sub(self.first).min(self.pages.len());
        self.first += n;
        self.pages.drain(..n).collect()
    }

    /// Takes out the pages from page index `end` on.
    pub fn drop_from(&mut self, end: usize) -> Vec<u32> {
        self.pages.split_off(end.saturating_sub(self.first).min(self.pages.len()))
    }
}

/// One sequence's tables in all pools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tables {
    /// By pool, in the order of [`super::Pool::ALL`].
    pub pools: [Table; 4],
}

impl Tables {
    /// The table of a pool.
    pub fn of(&self, pool: super::Pool) -> &Table {
        &self.pools[pool as usize]
    }

    /// The table of a pool, to change it.
    pub fn of_mut(&mut self, pool: super::Pool) -> &mut Table {
        &mut self.pools[pool as usize]
    }
}
