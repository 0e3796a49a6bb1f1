//! Which pages of the mapped files are memory of this process: those of the blocks that somebody works with.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::Checkpoint;
use super::store::{Id, Store};

/// Bytes of a block that are worth reading ahead.
const FETCHED: usize = 4 << 20;

/// How many work with each block.
pub(super) type Users = Mutex<BTreeMap<String, usize>>;

/// Somebody works with a block's tensors. When the last one is done, the block's pages are given back to the system: what is
/// read of a checkpoint then doesn't add up over the layers.
pub struct Pages<'a> {
    checkpoint: &'a Checkpoint,
    block: String,
}

impl Checkpoint {
    /// Marks the block `layers.N` or `mtp.N` as in use until the guard is dropped.
    pub fn pages(&self, block: &str) -> Pages<'_> {
        *self.users.lock().unwrap_or_else(PoisonError::into_inner).entry(block.to_string()).or_default() += 1;
        Pages { checkpoint: self, block: block.to_string() }
    }

    /// Gives back the pages of bytes that this checkpoint handed out: a part of a block that nobody needs for now. Who reads
    /// them again gets the same bytes from the file. Bytes that lie elsewhere, or in memory, stay as they are.
    pub fn done_with(&self, bytes: &[u8]) {
        let at = bytes.as_ptr().addr();
        for (_, blob) in &self.store.shards {
            let file = blob.bytes();
            let start = file.as_ptr().addr();
            if (start..start + file.len()).contains(&at) {
                blob.give_back(&(at - start..(at - start + bytes.len()).min(file.len())));
            }
        }
    }

    /// Has a block's tensors read from the disk into the system's cache while something else is computed. Returns at once;
    /// does nothing for a block that doesn't exist, is small, or lies in memory.
    pub fn fetch(&self, block: &str) {
        let spans = spans(&self.store, of_block(&self.store, block));
        if spans.values().flatten().map(ExactSizeIterator::len).sum::<usize>() >= FETCHED {
            spans.into_iter().for_each(|(shard, ranges)| self.store.shards[shard].1.fetch(ranges));
        }
    }
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        let mut users = self.checkpoint.users.lock().unwrap_or_else(PoisonError::into_inner);
        let left = users.get_mut(&self.block).map_or(0, |n| {
            *n -= 1;
            *n
        });
        if left == 0 {
            users.remove(&self.block);
            let store = &self.checkpoint.store;
            give_back(store, of_block(store, &self.block));
        }
    }
}

impl fmt::Debug for Pages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pages").field(&self.block).finish()
    }
}

/// Gives back the pages of these tensors.
pub(super) fn give_back(store: &Store, ids: impl IntoIterator<Item = Id>) {
    for (shard, ranges) in spans(store, ids) {
        ranges.iter().for_each(|range| store.shards[shard].1.give_back(range));
    }
}

/// Tensors under a prefix.
fn of_block<'s>(store: &'s Store, block: &'s str) -> impl Iterator<Item = Id> + 's {
    let is_in = move |key: &str| key.strip_prefix(block).is_some_and(|rest| rest.starts_with('.'));
    (0..store.entries.len()).filter(move |&id| store.slot(id).is_some_and(|(key, _)| is_in(key)))
}

/// Their bytes by file: ranges in ascending order, joined where they touch, so that few pages are cut.
fn spans(store: &Store, ids: impl IntoIterator<Item = Id>) -> BTreeMap<usize, Vec<Range<usize>>> {
    let mut spans: BTreeMap<usize, Vec<Range<usize>>> = BTreeMap::new();
    for id in ids {
        let stored = &store.entries[id];
        spans.entry(stored.shard).or_default().push(stored.range.clone());
    }
    for ranges in spans.values_mut() {
        ranges.sort_by_key(|range| range.start);
        ranges.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
    }
    spans
}
