//! Prefix cache: a radix tree whose edges are the token ids of whole pages. What two prompts look like as text is no key.
//! Where an MTP block runs, its row of a token follows from the next token too, so a page's key has that of its last one.

use std::collections::BTreeMap;

use super::{Allocator, Geometry, Pool, Table, Tables};

/// One cached page of a prefix, in every pool.
#[derive(Debug, Clone)]
struct Node {
    parent: usize,
    key: Box<[u32]>,
    children: BTreeMap<Box<[u32]>, usize>,
    /// By pool. `None` where the model has no such pool, and in the window pool once the page was evicted from there: the
    /// prefix still stands for its entries, but a hit cannot end near here.
    pages: [Option<u32>; 4],
    /// Which computed row stands at each token.
    rows: Vec<usize>,
    used: u64,
}

/// Cached prefixes of one instance. It is one holder of each of its pages.
#[derive(Debug, Clone)]
pub struct Radix {
    /// The root has no pages. A removed node is `None`.
    nodes: Vec<Option<Node>>,
    clock: u64,
}

/// What a prompt shares with the cache.
#[derive(Debug, Clone, Default)]
pub struct Hit {
    /// Tokens, a multiple of the page.
    pub tokens: usize,
    /// Their pages; in the window pool only those that a next token may still read.
    pub tables: Tables,
    /// Which computed row stands at each token.
    pub rows: Vec<usize>,
}

const ROOT: usize = 0;

/// Keys of the whole pages of the first `tokens` tokens.
fn keys(geometry: &Geometry, ids: &[u32], tokens: usize) -> impl Iterator<Item = Box<[u32]>> {
    let (page, speculative) = (geometry.page, geometry.speculative);
    (0..tokens / page).map(move |i| {
        let end = (i + 1) * page;
        // The row of the last token of all has its own token for the next one.
        let next = speculative.then(|| ids.get(end).copied().unwrap_or(ids[end - 1]));
        ids[end - page..end].iter().copied().chain(next).collect()
    })
}

impl Radix {
    /// An empty cache.
    pub fn new() -> Self {
        let root = Node {
            parent: ROOT,
            key: Box::new([]),
            children: BTreeMap::new(),
            pages: [None; 4],
            rows: Vec::new(),
            used: 0,
        };
        Self { nodes: vec![Some(root)], clock: 0 }
    }

    fn node(&self, at: usize) -> &Node {
        self.nodes[at].as_ref().expect("a child or parent index always points at a live node")
    }

    fn node_mut(&mut self, at: usize) -> &mut Node {
        self.nodes[at].as_mut().expect("a child or parent index always points at a live node")
    }

    /// The longest cached prefix of `ids` that leaves at least one token to compute and whose window rows are resident.
    /// The hit's pages get the caller as one more holder.
    pub fn hit(&mut self, geometry: &Geometry, ids: &[u32], pools: &mut [Allocator; 4]) -> Hit {
        self.clock += 1;
        let mut path = Vec::new();
        let mut at = ROOT;
        for page in keys(geometry, ids, ids.len().saturating_sub(1)) {
            let Some(child) = self.node(at).children.get(&page) else { break };
            at = *child;
            path.push(at);
        }
        let resident = |n: usize| {
            let first = geometry.first_window_page(n * geometry.page);
            path[first..n].iter().all(|node| self.node(*node).pages[Pool::Window as usize].is_some())
        };
        let n = (0..=path.len()).rev().find(|n| resident(*n)).unwrap_or(0);
        let mut hit = Hit { tokens: n * geometry.page, ..Hit::default() };
        for pool in geometry.pools() {
            let first = if pool == Pool::Window { geometry.first_window_page(hit.tokens) } else { 0 };
            let pages: Vec<u32> =
                path[first..n].iter().filter_map(|node| self.node(*node).pages[pool as usize]).collect();
            pages.iter().for_each(|page| pools[pool as usize].hold(*page));
            *hit.tables.of_mut(pool) = Table { first, pages };
        }
        for node in &path[..n] {
            let clock = self.clock;
            let node = self.node_mut(*node);
            node.used = clock;
            hit.rows.extend(&node.rows);
        }
        hit
    }

    /// Adds the whole pages of a sequence's first tokens, as many as there are `rows`; a page that is cached already stays as it is, but gets
    /// its window page back if it had lost it.
    pub fn insert(
        &mut self,
        geometry: &Geometry,
        ids: &[u32],
        rows: &[usize],
        tables: &Tables,
        pools: &mut [Allocator; 4],
    ) {
        self.clock += 1;
        let mut at = ROOT;
        for (i, page) in keys(geometry, ids, rows.len()).enumerate() {
            let own = |pool: Pool| tables.of(pool).get(i);
            let (child, fresh) = match self.node(at).children.get(&page) {
                Some(child) => (*child, false),
                None => (self.add(at, page, &rows[i * geometry.page..(i + 1) * geometry.page]), true),
            };
            let clock = self.clock;
            let node = self.node_mut(child);
            node.used = clock;
            for pool in geometry.pools() {
                // Entries of a page that was cached before belong to other rows than this sequence's: never mixed.
                let lacks = node.pages[pool as usize].is_none();
                if let Some(page) = own(pool).filter(|_| fresh || (pool == Pool::Window && lacks)) {
                    pools[pool as usize].hold(page);
                    node.pages[pool as usize] = Some(page);
                }
            }
            at = child;
        }
    }

    fn add(&mut self, parent: usize, key: Box<[u32]>, rows: &[usize]) -> usize {
        let node = Node {
            parent,
            key: key.clone(),
            children: BTreeMap::new(),
            pages: [None; 4],
            rows: rows.to_vec(),
            used: self.clock,
        };
        let at = self.nodes.iter().position(Option::is_none).unwrap_or(self.nodes.len());
        if at == self.nodes.len() {
            self.nodes.push(None);
        }
        self.nodes[at] = Some(node);
        self.node_mut(parent).children.insert(key, at);
        at
    }

    /// Nodes that a filter lets through, the least recently used first.
    fn oldest(&self, filter: impl Fn(&Node) -> bool) -> Option<usize> {
        let live = self.nodes.iter().enumerate().skip(1).filter_map(|(at, node)| Some((at, node.as_ref()?)));
        live.filter(|(_, node)| filter(node)).min_by_key(|(at, node)| (node.used, *at)).map(|(at, _)| at)
    }

    /// Gives back the window page of the least recently used page that nobody else holds.
    pub fn evict_window(&mut self, pools: &mut [Allocator; 4]) -> Option<(Pool, u32)> {
        let allocator = &mut pools[Pool::Window as usize];
        let alone = |node: &Node| node.pages[Pool::Window as usize].is_some_and(|p| allocator.holders(p) == 1);
        let at = self.oldest(alone)?;
        let page = self.node_mut(at).pages[Pool::Window as usize].take()?;
        allocator.release(page);
        Some((Pool::Window, page))
    }

    /// Removes the least recently used last page of a prefix that nobody else holds, or when there is none, of any: what
    /// a running sequence holds may stand above pages that are only cached. Gives the pages that are free now.
    pub fn evict(&mut self, pools: &mut [Allocator; 4]) -> Option<Vec<(Pool, u32)>> {
        let alone = |node: &Node| {
            let held = Pool::ALL.iter().zip(&node.pages).filter_map(|(pool, page)| Some((*pool, (*page)?)));
            node.children.is_empty() && held.into_iter().all(|(pool, page)| pools[pool as usize].holders(page) == 1)
        };
        let at = self.oldest(alone).or_else(|| self.oldest(|node| node.children.is_empty()))?;
        Some(self.remove(at, pools))
    }

    /// Removes everything, whoever else holds the pages.
    pub fn clear(&mut self, pools: &mut [Allocator; 4]) -> Vec<(Pool, u32)> {
        let mut freed = Vec::new();
        while let Some(at) = self.oldest(|node| node.children.is_empty()) {
            freed.extend(self.remove(at, pools));
        }
        freed
    }

    fn remove(&mut self, at: usize, pools: &mut [Allocator; 4]) -> Vec<(Pool, u32)> {
        let Some(node) = self.nodes[at].take() else { return Vec::new() };
        self.node_mut(node.parent).children.remove(&node.key);
        let held = Pool::ALL.iter().zip(node.pages).filter_map(|(pool, page)| Some((*pool, page?)));
        held.filter(|(pool, page)| pools[*pool as usize].release(*page)).collect()
    }

    /// Every page that the cache holds.
    pub fn held(&self) -> impl Iterator<Item = (Pool, u32)> + '_ {
        let nodes = self.nodes.iter().flatten();
        nodes.flat_map(|node| Pool::ALL.iter().zip(node.pages).filter_map(|(pool, page)| Some((*pool, page?))))
    }
}

impl Default for Radix {
    fn default() -> Self {
        Self::new()
    }
}
