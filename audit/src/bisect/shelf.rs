//! What blocks make of streams, by content: a layer that two patch sets run alike on the same streams runs once, and golden's
//! layers come from the cache of earlier audits.

use std::collections::HashMap;

use karat_seam::{Block, Streams};
use sha2::{Digest, Sha256};

use crate::cache::{self, Cache, Hash, Key, Kind};

/// Bytes of streams that are held in memory at most.
const ROOM: usize = 256 << 20;

/// Streams with their content's hash.
#[derive(Debug, Clone)]
pub(super) struct Hashed {
    pub(super) hash: Hash,
    pub(super) streams: Streams,
}

impl Hashed {
    pub(super) fn new(streams: Streams) -> Self {
        Self { hash: Sha256::digest(cache::write_streams(&streams)).into(), streams }
    }
}

/// Who runs a block.
pub(super) enum Runner<'a> {
    /// Golden, by its identity.
    Golden(&'a [u8; 32]),
    /// A candidate's layer, by its own.
    Layer(&'a [u8; 32]),
    /// One whose numbers somebody changes under way, by name: known in this process only.
    Changed(&'a str),
}

/// See the module.
pub(super) struct Shelf<'a> {
    cache: Option<&'a Cache>,
    held: HashMap<Hash, Hashed>,
    bytes: usize,
}

impl<'a> Shelf<'a> {
    pub(super) fn new(cache: Option<&'a Cache>) -> Self {
        Self { cache, held: HashMap::new(), bytes: 0 }
    }

    /// Name of what a block makes of streams. Golden's is the one that audits give it.
    pub(super) fn key(&self, runner: &Runner<'_>, block: Block, x: &Hash) -> Hash {
        let new = |what: &str| self.cache.map_or_else(|| Key::new(what), |cache| cache.key(what));
        let key = match runner {
            Runner::Golden(identity) => new("golden").part("golden", *identity),
            Runner::Layer(identity) => new("bisect").part("layer", *identity),
            Runner::Changed(name) => new("changed").part("set", name.as_bytes()),
        };
        key.part("block", format!("{block:?}").as_bytes()).part("x", x).part("entry", b"next").finish()
    }

    /// What is known under a name.
    pub(super) fn get(&self, key: &Hash) -> Option<Hashed> {
        if let Some(found) = self.held.get(key) {
            return Some(found.clone());
        }
        let cache = self.cache?;
        let hash: Hash = cache.get(Kind::Other, key, |bytes| bytes.try_into().ok())?;
        let streams = cache.get(Kind::Other, &hash, cache::read_streams)?;
        Some(Hashed { hash, streams })
    }

    /// Keeps what a block made: on disk too, unless it is of this process only.
    pub(super) fn put(&mut self, runner: &Runner<'_>, key: Hash, made: &Hashed) {
        if let (Some(cache), Runner::Golden(_) | Runner::Layer(_)) = (self.cache, runner) {
            cache.put_content(&cache::write_streams(&made.streams));
            cache.put(&key, &made.hash);
        }
        let size = 8 * made.streams.data.data.len();
        if self.bytes + size <= ROOM {
            self.bytes += size;
            self.held.insert(key, made.clone());
        }
    }
}
