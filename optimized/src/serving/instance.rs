//! One serving instance: its pools and its prefix cache. A prefill and a decode instance are two.

use super::{Allocator, Geometry, Hit, Pool, Radix, Tables};

/// Pools and cache of an instance.
#[derive(Debug, Clone)]
pub struct Instance {
    /// By pool, in the order of [`Pool::ALL`].
    pub pools: [Allocator; 4],
    /// Cached prefixes.
    pub radix: Radix,
    geometry: Geometry,
    /// Pages that became free since they were last asked for.
    freed: Vec<(Pool, u32)>,
}

impl Instance {
    /// Pools of `pages` pages each.
    pub fn new(geometry: Geometry, pages: usize, seed: u64) -> Self {
        let pool = |i: u64| Allocator::new(pages, seed.wrapping_mul(31).wrapping_add(i));
        Self { pools: [pool(1), pool(2), pool(3), pool(4)], radix: Radix::new(), geometry, freed: Vec::new() }
    }

    /// What a prompt shares with the cache; its pages are held for the caller.
    pub fn hit(&mut self, ids: &[u32]) -> Hit {
        self.radix.hit(&self.geometry, ids, &mut self.pools)
    }

    /// Caches the whole pages of a sequence's first tokens: those that have a row.
    pub fn insert(&mut self, ids: &[u32], rows: &[usize], tables: &Tables) {
        self.radix.insert(&self.geometry, ids, rows, tables, &mut self.pools);
    }

    /// Makes room for tokens up to `tokens` in all pools, or in none. Cached prefixes give way.
    pub fn reserve(&mut self, tables: &mut Tables, tokens: usize) -> bool {
        let end = self.geometry.pages(tokens);
        for pool in self.geometry.pools() {
            let lacking = end.saturating_sub(tables.of(pool).end());
            while self.pools[pool as usize].free() < lacking {
                if !self.evict_for(pool) {
                    return false;
                }
            }
        }
        for pool in self.geometry.pools() {
            let table = tables.of_mut(pool);
            while table.end() < end {
                let page = self.pools[pool as usize].take().expect("room was made above");
                table.pages.push(page);
            }
        }
        true
    }

    fn evict_for(&mut self, pool: Pool) -> bool {
        if pool == Pool::Window
            && let Some(freed) = self.radix.evict_window(&mut self.pools)
        {
            self.freed.push(freed);
            return true;
        }
        match self.radix.evict(&mut self.pools) {
            Some(freed) => {
                self.freed.extend(freed);
                true
            }
            None => false,
        }
    }

    /// Gives back pages of one pool.
    pub fn release(&mut self, pool: Pool, pages: impl IntoIterator<Item = u32>) {
        for page in pages {
            if self.pools[pool as usize].release(page) {
                self.freed.push((pool, page));
            }
        }
    }

    /// Gives back everything that a sequence holds.
    pub fn release_all(&mut self, tables: &mut Tables) {
        for pool in self.geometry.pools() {
            let table = std::mem::take(tables.of_mut(pool));
            self.release(pool, table.pages);
        }
    }

    /// Gives back the window pages that nothing after `tokens` tokens reads.
    pub fn leave_window(&mut self, tables: &mut Tables, tokens: usize) {
        let gone = tables.of_mut(Pool::Window).drop_before(self.geometry.first_window_page(tokens));
        self.release(Pool::Window, gone);
    }

    /// Gives back the pages past `tokens` tokens.
    pub fn roll_back(&mut self, tables: &mut Tables, tokens: usize) {
        let end = self.geometry.pages(tokens);
        for pool in self.geometry.pools() {
            let gone = tables.of_mut(pool).drop_from(end);
            self.release(pool, gone);
        }
    }

    /// Drops every cached prefix.
    pub fn forget(&mut self) {
        let freed = self.radix.clear(&mut self.pools);
        self.freed.extend(freed);
    }

    /// Pages that became free since the last call. Their content is void.
    pub fn take_freed(&mut self) -> Vec<(Pool, u32)> {
        std::mem::take(&mut self.freed)
    }
}
