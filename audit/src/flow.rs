//! Streams on their way through the layers, and what of a block is known already.

use karat_seam::{Block, Recorder, Site, Streams, Tap};

use crate::cache::{self, Cache, Hash, Key, Kind};
use crate::lockstep::{Lockstep, Walk};
use crate::record::Record;
use crate::states::Kept;
use crate::{Error, Result, align};

/// Streams by content. The values are there when this run made them or had need of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flow {
    /// Content; all zero without a cache.
    pub(crate) hash: Hash,
    held: Option<Kept>,
}

impl Flow {
    /// Streams that were made, kept for later runs. They wait for their block.
    pub(crate) fn made(setup: &Lockstep<'_>, streams: Streams) -> Self {
        let hash = setup.cache.map_or([0; 32], |cache| cache.put_content(&cache::write_streams(&streams)));
        Self { hash, held: Some(Kept::waiting(streams, setup.states.as_ref())) }
    }

    /// Streams that an earlier run made.
    pub(crate) fn known(hash: Hash) -> Self {
        Self { hash, held: None }
    }

    /// The values, from their file or from the cache when they are not here. [`Error::CacheGap`] when the cache lost them.
    pub(crate) fn hold(&mut self, cache: Option<&Cache>) -> Result<&Streams> {
        match &mut self.held {
            Some(kept) => kept.bring()?,
            none => {
                let found = cache.and_then(|cache| cache.get(Kind::Other, &self.hash, cache::read_streams));
                *none = found.map(Kept::here);
            }
        }
        self.values()
    }

    /// The values, once held.
    pub(crate) fn values(&self) -> Result<&Streams> {
        self.held.as_ref().and_then(Kept::values).ok_or(Error::CacheGap)
    }
}

/// The keys of a run, as far as they are the same for all blocks.
pub(crate) struct Keys {
    golden: Key,
    candidates: Vec<Key>,
    /// Those of their layers, where these tell what they read: without what only other blocks read.
    layers: Vec<Option<Key>>,
}

/// What is known of a block before it runs.
pub(crate) struct Known {
    /// Keys of the comparisons; `None` without a cache.
    keys: Vec<Option<Hash>>,
    /// Comparisons that were made before.
    pub(crate) records: Vec<Option<Record>>,
    /// Streams that leave golden's block on x (all zero from the head); `None` when it must run.
    pub(crate) golden: Option<Hash>,
    golden_key: Option<Key>,
}

impl Keys {
    /// Everything that rows follow from and that is no input of a block.
    pub(crate) fn of(setup: &Lockstep<'_>, cache: &Cache) -> Self {
        let mut run = cache.key("comparison").part("golden", &setup.golden.identity());
        for (seq, sequence) in setup.golden.requests().seqs.iter().enumerate() {
            let scenario = setup.scenarios.get(seq).map_or("", String::as_str);
            run = run.part("scenario", scenario.as_bytes()).part("sequence", sequence.id.as_bytes());
            run = run.shown("spans", &sequence.spans());
        }
        run = run.shown("facts", &setup.facts).shown("asks", &setup.asks);
        // Tolerances of a candidate without rules are derived from the first one's.
        fn rules<'a>(c: &crate::Candidate<'a>) -> Option<[&'a karat_optimized::Numerics; 2]> {
            c.rules.map(|r| r.numerics)
        }
        run = run.shown("rules", &setup.candidates.first().and_then(rules));
        // The floor is measured on the first candidate, and its derivations are told.
        let own = |i: usize, c: &crate::Candidate<'_>| {
            let key = run.clone().part("claims", c.claims.name().as_bytes()).part("backend", c.backend.as_bytes());
            let key = key.part("history", c.history.as_bytes()).shown("holds", &c.holds).shown("first", &(i == 0));
            let key = key.shown("claimed", &c.claimed.map(|c| (c.rules.numerics, c.is_whole)));
            match setup.floor.filter(|_| i == 0) {
                Some(floor) => key.part("floor", &floor.identity()),
                None => key,
            }
        };
        let one = |(i, c): (usize, &crate::Candidate<'_>)| {
            let key = own(i, c).part("set", c.patch_set.as_bytes()).shown("rules", &rules(c));
            let key = key.shown("patches", &c.patches).shown("rotates", &c.rotates);
            // The name stands in notes. That of a plan tells its options, which bear on the layers that use them only.
            key.part("name", if c.holds.is_some() { c.path.name() } else { String::new() }.as_bytes())
        };
        let layer = |(i, c): (usize, &crate::Candidate<'_>)| c.rules.map(|_| own(i, c).part("of", b"layer"));
        let all = || setup.candidates.iter().enumerate();
        let golden = cache.key("golden").part("golden", &setup.golden.identity());
        Self { golden, candidates: all().map(one).collect(), layers: all().map(layer).collect() }
    }

    /// The key of a candidate's comparison in a block. Of a layer of a known plan neither its name nor patches and rules that
    /// the layer does not read are in it: they move no number of it, and its hash tells the others apart.
    fn of_block(&self, setup: &Lockstep<'_>, i: usize, block: Block) -> Key {
        let c = &setup.candidates[i];
        let (Block::Layer(l), Some(key)) = (block, &self.layers[i]) else { return self.candidates[i].clone() };
        let facts = setup.facts.layer(l);
        let patches: Vec<&crate::PatchSpec> = c.patches.iter().filter(|p| p.bears_on(&facts)).collect();
        key.clone().shown("patches", &patches).shown("rotates", &c.rotates.map(|r| r && facts.selects_entries))
    }
}

impl Known {
    /// Candidates whose comparison is not known.
    pub(crate) fn missing(&self) -> Vec<usize> {
        (0..self.records.len()).filter(|i| self.records[*i].is_none()).collect()
    }

    /// Those among `of`.
    pub(crate) fn missing_of(&self, of: &[usize]) -> Vec<usize> {
        of.iter().copied().filter(|i| self.records.get(*i).is_some_and(Option::is_none)).collect()
    }

    /// True when nothing has to run.
    pub(crate) fn is_all(&self) -> bool {
        self.golden.is_some() && self.records.iter().all(Option::is_some)
    }

    /// Key of golden's block on x.
    pub(crate) fn golden_key(&self) -> Option<&Key> {
        self.golden_key.as_ref()
    }

    /// What golden showed in the block on x, when an earlier run kept it.
    pub(crate) fn golden_taps(&self, cache: Option<&Cache>) -> Option<Recorder> {
        // Without the streams that leave the block it has to run anyway.
        self.golden?;
        let key = self.golden_key.clone()?.part("entry", b"taps").finish();
        cache?.get(Kind::Other, &key, cache::read_recorder)
    }

    /// Key of a candidate's comparison, for what follows from its content.
    pub(crate) fn key(&self, i: usize) -> Option<Hash> {
        self.keys.get(i).copied().flatten()
    }
}

impl Walk<'_, '_> {
    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.setup.cache
    }

    /// Looks up what earlier runs left of a block. In the head a comparison also follows from the first candidate's: a
    /// patch is judged by what it adds to stock's noise.
    pub(crate) fn look_up(&self, block: Block) -> Known {
        self.look_up_part(block, "")
    }

    /// As [`Walk::look_up`], one part of a block.
    pub(crate) fn look_up_part(&self, block: Block, part: &str) -> Known {
        let n = self.runners.len();
        let unknown = || Known { keys: vec![None; n], records: vec![None; n], golden: None, golden_key: None };
        let (Some(cache), Some(keys)) = (self.cache(), &self.keys) else { return unknown() };
        let mut known = unknown();
        let label = format!("{block:?}{part}");
        let golden = keys.golden.clone().part("block", label.as_bytes()).part("x", &self.x.hash);
        let next = golden.clone().part("entry", b"next").finish();
        known.golden = self.found(cache, Kind::Golden, &next, |bytes| bytes.try_into().ok());
        known.golden_key = Some(golden);
        let wanted: Vec<u8> = Tap::ALL.iter().map(|tap| u8::from(self.admits(Site { block, tap: *tap }))).collect();
        for i in 0..n {
            let path = self.setup.candidates[i].path;
            let identity = match block {
                Block::Layer(l) => path.layer_identity(l),
                _ => path.identity(),
            };
            let mut key =
                keys.of_block(self.setup, i, block).part("candidate", &identity).part("block", label.as_bytes());
            key = key.part("taps", &wanted).part("x", &self.x.hash);
            key = key.part("x'", self.runners[i].x.as_ref().map_or(&[], |flow| flow.hash.as_slice()));
            if let Some(Some(first)) = known.keys.first().filter(|_| i > 0 && block == Block::Head) {
                key = key.part("first", first);
            }
            let key = key.finish();
            known.keys[i] = Some(key);
            let record = self.found(cache, Kind::Comparison, &key, Record::read);
            let is_shared = matches!(block, Block::Layer(_)) && keys.layers[i].is_some();
            known.records[i] =
                record.map(|record| if is_shared { record.of(&self.setup.candidates[i]) } else { record });
        }
        known
    }

    /// Looks, or only counts that there was something to look for.
    fn found<T>(&self, cache: &Cache, kind: Kind, key: &Hash, read: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
        if self.reads_cache {
            return cache.get(kind, key, read);
        }
        cache.asked(kind);
        None
    }

    /// Keeps what golden showed and gave out in a block on x.
    pub(crate) fn keep_golden(&self, known: &Known, seen: &Recorder, next: &Hash) {
        let (Some(cache), Some(key)) = (self.cache(), known.golden_key.clone()) else { return };
        cache.put(&key.clone().part("entry", b"taps").finish(), &cache::write_recorder(seen));
        // Last: it says that the rest is there.
        cache.put(&key.part("entry", b"next").finish(), next);
    }

    /// Keeps a comparison.
    pub(crate) fn keep(&self, known: &Known, i: usize, record: &Record) {
        if let (Some(cache), Some(key)) = (self.cache(), known.key(i)) {
            cache.put(&key, &record.write());
        }
    }

    /// Brings x, and x' of these candidates, into memory, and x' into golden's row order. At the first layer golden's
    /// embedding stands in for one that is not known.
    pub(crate) fn hold(&mut self, missing: &[usize], is_first: bool) -> Result<()> {
        let cache = self.setup.cache;
        let x = self.x.hold(cache)?;
        for i in missing {
            let runner = &mut self.runners[*i];
            let own = runner.x.as_mut().map(|flow| flow.hold(cache)).transpose()?;
            let aligned = own.and_then(|own| align::streams(own, &x.rows));
            runner.x_golden_rows = aligned.or_else(|| is_first.then(|| x.clone()));
        }
        Ok(())
    }
}
