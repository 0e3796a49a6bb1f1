//! Pages of one pool: which are free, and how many hold each of the others.

use super::shuffle::Shuffle;

/// The page that padding rows write to. It is never handed out.
pub const PAD_PAGE: u32 = 0;

/// Hands out pages in a seeded order, and counts who holds them.
#[derive(Debug, Clone)]
pub struct Allocator {
    free: Vec<u32>,
    /// By page; 0 for a free one.
    holders: Vec<u32>,
    order: Shuffle,
}

impl Allocator {
    /// A pool of `pages` pages beside the padding page.
    pub fn new(pages: usize, seed: u64) -> Self {
        let mut order = Shuffle::new(seed);
        let mut free: Vec<u32> = (1..=pages as u32).collect();
        for i in (1..free.len()).rev() {
            free.swap(i, order.below(i + 1));
        }
        Self { free, holders: vec![0; pages + 1], order }
    }

    /// Pages that nobody holds.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Pages in all.
    pub fn pages(&self) -> usize {
        self.holders.len() - 1
    }

    /// Takes a free page; its caller is the one holder.
    pub fn take(&mut self) -> Option<u32> {
        let page = self.free.pop()?;
        self.holders[page as usize] = 1;
        Some(page)
    }

    /// One more holder of a page that somebody holds.
    ///
    /// # Panics
    /// When the page is free: whoever asks has a page that is no longer its own.
    pub fn hold(&mut self, page: u32) {
        let holders = &mut self.holders[page as usize];
        assert!(*holders > 0, "page {page} is free and cannot be held");
        *holders += 1;
    }

    /// One holder less. True when that was the last: the page is free and its content is void.
    ///
    /// # Panics
    /// When the page is free already: it was given back twice.
    pub fn release(&mut self, page: u32) -> bool {
        let holders = &mut self.holders[page as usize];
        assert!(*holders > 0, "page {page} was given back twice");
        *holders -= 1;
        if *holders > 0 {
            return false;
        }
        // Anywhere in the list, so that a page comes back neither first nor last as a rule.
        self.free.push(page);
        let (at, last) = (self.order.below(self.free.len()), self.free.len() - 1);
        self.free.swap(at, last);
        true
    }

    /// Holders of a page.
    pub fn holders(&self, page: u32) -> u32 {
        self.holders[page as usize]
    }
}
