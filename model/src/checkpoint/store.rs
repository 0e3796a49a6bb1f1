//! Everything on disk, before anyone asks whether it fits: config, side files, tensors by name and by slot.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::header::{self, Entry};
use super::index::{self, INDEX, Layout};
use super::names::{Meaning, Part, meaning};
use super::source::{Blob, Source};
use crate::config::{ExpertDtype, read};
use crate::{Config, Error, Result};

/// Largest side file (tokenizer.json of the real model has 8 MB).
const SIDE_LIMIT: u64 = 256 << 20;

/// A tensor's number in [`Store::entries`].
pub(crate) type Id = usize;

/// A tensor on disk.
pub(crate) struct Stored {
    /// File it lies in, an index of [`Store::shards`].
    pub(crate) shard: usize,
    /// Its header entry.
    pub(crate) entry: Entry,
    /// What its name means.
    pub(crate) meaning: Meaning,
}

/// A checkpoint's files, read as far as their headers.
pub(crate) struct Store {
    pub(crate) label: String,
    pub(crate) config: Config,
    pub(crate) config_bytes: Vec<u8>,
    /// The config doesn't say how experts are stored.
    pub(crate) says_expert_dtype: bool,
    /// MTP blocks that the config declares and a checkpoint of transformers leaves out.
    pub(crate) mtp_left_out: usize,
    pub(crate) layout: Layout,
    pub(crate) shards: Vec<(String, Blob)>,
    pub(crate) entries: Vec<Stored>,
    /// First tensor of each slot, by key and part. Keys stand in the entries alone: a model has tens of thousands.
    slots: Vec<Id>,
    /// Tensors whose slot was taken: (first, later).
    pub(crate) doubles: Vec<(Id, Id)>,
    source: Source,
}

/// Key and part that a tensor fills.
fn slot(entries: &[Stored], id: Id) -> Option<(&str, Part)> {
    match &entries[id].meaning {
        Meaning::Slot(slot) => Some((&slot.key, slot.part)),
        Meaning::Skip(_) | Meaning::Unknown => None,
    }
}

impl Store {
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        Self::read(dir.display().to_string(), Source::folder(dir)?)
    }

    pub(crate) fn from_memory(label: &str, files: BTreeMap<String, Arc<[u8]>>) -> Result<Self> {
        Self::read(label.to_string(), Source::Memory(files))
    }

    fn read(label: String, source: Source) -> Result<Self> {
        let place = label.clone();
        Self::read_source(label, source).map_err(|e| if e.place.starts_with(&place) { e } else { e.at(place) })
    }

    fn read_source(label: String, source: Source) -> Result<Self> {
        let config_bytes = source.read("config.json", SIDE_LIMIT)?.ok_or_else(|| {
            Error::input("file is missing").at("config.json").hint("a model folder holds config.json and *.safetensors")
        })?;
        let reading = read::read("config.json", &config_bytes)?;
        let layout = index::layout(&source)?;
        let shards =
            layout.shards.iter().map(|n| Ok((n.clone(), source.open(n)?))).collect::<Result<Vec<(String, Blob)>>>()?;
        let headers = shards
            .par_iter()
            .map(|(name, blob)| header::read(blob.bytes()).map_err(|e| e.at(name)))
            .collect::<Vec<_>>();
        let mut entries = Vec::new();
        for (shard, header) in headers.into_iter().enumerate() {
            for entry in header? {
                let meaning = meaning(&entry.name);
                entries.push(Stored { shard, entry, meaning });
            }
        }
        let mut slots: Vec<Id> = (0..entries.len()).filter(|&id| slot(&entries, id).is_some()).collect();
        slots.sort_by_key(|&id| (slot(&entries, id), id));
        let mut doubles = Vec::new();
        slots.dedup_by(|later, first| {
            let same = slot(&entries, *later) == slot(&entries, *first);
            doubles.extend(same.then_some((*first, *later)));
            same
        });
        doubles.sort_by_key(|&(_, later)| later);
        slots.shrink_to_fit();
        let mut store = Self {
            label,
            config: reading.config,
            config_bytes,
            says_expert_dtype: reading.says_expert_dtype,
            mtp_left_out: 0,
            layout,
            shards,
            entries,
            slots,
            doubles,
            source,
        };
        store.settle();
        Ok(store)
    }

    /// Completes the config from the tensors where it leaves something open.
    fn settle(&mut self) {
        if !self.says_expert_dtype
            && let Some(value) = self.first_expert()
            && value.stored == safetensors::Dtype::F8_E4M3
        {
            self.config.expert_dtype = ExpertDtype::Fp8;
        }
        // transformers drops MTP blocks when it saves but keeps their number in config.json.
        let transformers =
            self.find("embed", Part::Value).is_some_and(|id| self.entries[id].entry.name.contains("embed_tokens"));
        if transformers && !self.entries.iter().any(|s| s.entry.name.contains("mtp.")) {
            self.mtp_left_out = self.config.mtp.len();
            self.config.mtp.clear();
        }
    }

    /// Entry of the first routed expert's first matrix, fused or not.
    pub(crate) fn first_expert(&self) -> Option<&Entry> {
        ["0.w1", super::names::FUSED_GATE_UP].into_iter().find_map(|name| {
            let id = self.find(&format!("layers.0.ffn.experts.{name}"), Part::Value)?;
            Some(&self.entries[id].entry)
        })
    }

    /// The tensor that fills a slot.
    pub(crate) fn find(&self, key: &str, part: Part) -> Option<Id> {
        let at = self.slots.binary_search_by_key(&Some((key, part)), |&id| slot(&self.entries, id));
        at.ok().map(|at| self.slots[at])
    }

    /// A tensor's bytes.
    pub(crate) fn bytes(&self, id: Id) -> &[u8] {
        let stored = &self.entries[id];
        // Every range was checked against its file's length when the header was read.
        &self.shards[stored.shard].1.bytes()[stored.entry.range.clone()]
    }

    /// A tensor's file.
    pub(crate) fn file(&self, id: Id) -> &str {
        &self.shards[self.entries[id].shard].0
    }

    /// A small file beside the weights.
    pub(crate) fn side_file(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.source.read(name, SIDE_LIMIT).map_err(|e| e.at(&self.label))
    }

    /// Name of the index file, for messages.
    pub(crate) fn index_name() -> &'static str {
        INDEX
    }
}
