//! Everything on disk, before anyone asks whether it fits: config, side files, tensors by name and by slot.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use safetensors::Dtype;

use super::header;
use super::index::{self, INDEX, Layout};
use super::names::{self, Meaning, Part};
use super::source::{Blob, Source};
use crate::config::{ExpertDtype, read};
use crate::{Config, Error, Result};

/// Largest side file (tokenizer.json of the real model has 8 MB).
const SIDE_LIMIT: u64 = 256 << 20;

/// A tensor's number in [`Store::entries`].
pub(crate) type Id = usize;

/// A tensor on disk. A model has tens of thousands, so none has memory of its own: names and keys are ranges of
/// [`Store::text`], and tensors of one shape share it.
pub(crate) struct Stored {
    /// File it lies in, an index of [`Store::shards`].
    pub(crate) shard: usize,
    /// Name on disk.
    name: Range<usize>,
    /// Dtype on disk.
    pub(crate) dtype: Dtype,
    /// Shape as stored.
    pub(crate) shape: Arc<[usize]>,
    /// Where its bytes are in the file.
    pub(crate) range: Range<usize>,
    /// What its name means.
    meaning: Meaning<Range<usize>>,
}

/// The tensors of all files.
#[derive(Default)]
struct Table {
    entries: Vec<Stored>,
    text: String,
    shapes: HashSet<Arc<[usize]>>,
}

impl Table {
    fn add(&mut self, shard: usize, entry: &header::Entry) {
        let name = self.put(&entry.name);
        // In the released naming a key is part of its name.
        let meaning = names::meaning(&entry.name).map_key(|key| match entry.name.find(&key) {
            Some(at) => name.start + at..name.start + at + key.len(),
            None => self.put(&key),
        });
        let shape = self.shapes.get(&*entry.shape).cloned().unwrap_or_else(|| {
            let shape: Arc<[usize]> = entry.shape.as_slice().into();
            self.shapes.insert(shape.clone());
            shape
        });
        self.entries.push(Stored { shard, name, dtype: entry.stored, shape, range: entry.range.clone(), meaning });
    }

    fn put(&mut self, text: &str) -> Range<usize> {
        let start = self.text.len();
        self.text.push_str(text);
        start..self.text.len()
    }
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
    /// Names and keys.
    text: String,
    /// First tensor of each slot, by key and part.
    slots: Vec<Id>,
    /// Tensors whose slot was taken: (first, later).
    pub(crate) doubles: Vec<(Id, Id)>,
    source: Source,
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
            .map(|(name, blob)| {
                let header = header::read(blob.bytes()).map_err(|e| e.at(name))?;
                // Nobody reads its text again.
                blob.give_back(&(0..header.first().map_or(0, |first| first.range.start)));
                Ok(header)
            })
            .collect::<Vec<_>>();
        let mut table = Table::default();
        for (shard, header) in headers.into_iter().enumerate() {
            header?.iter().for_each(|entry| table.add(shard, entry));
        }
        let Table { mut entries, mut text, shapes: _ } = table;
        entries.shrink_to_fit();
        text.shrink_to_fit();
        let mut store = Self {
            label,
            config: reading.config,
            config_bytes,
            says_expert_dtype: reading.says_expert_dtype,
            mtp_left_out: 0,
            layout,
            shards,
            entries,
            text,
            slots: Vec::new(),
            doubles: Vec::new(),
            source,
        };
        store.fill();
        store.settle();
        Ok(store)
    }

    /// Finds out which tensor fills which slot.
    fn fill(&mut self) {
        let mut slots: Vec<Id> = (0..self.entries.len()).filter(|&id| self.slot(id).is_some()).collect();
        slots.sort_by_key(|&id| (self.slot(id), id));
        let mut doubles = Vec::new();
        slots.dedup_by(|later, first| {
            let same = self.slot(*later) == self.slot(*first);
            doubles.extend(same.then_some((*first, *later)));
            same
        });
        doubles.sort_by_key(|&(_, later)| later);
        slots.shrink_to_fit();
        (self.slots, self.doubles) = (slots, doubles);
    }

    /// Completes the config from the tensors where it leaves something open.
    fn settle(&mut self) {
        if !self.says_expert_dtype
            && let Some(value) = self.first_expert()
            && value.dtype == Dtype::F8_E4M3
        {
            self.config.expert_dtype = ExpertDtype::Fp8;
        }
        // transformers drops MTP blocks when it saves but keeps their number in config.json.
        let transformers = self.find("embed", Part::Value).is_some_and(|id| self.name(id).contains("embed_tokens"));
        if transformers && !(0..self.entries.len()).any(|id| self.name(id).contains("mtp.")) {
            self.mtp_left_out = self.config.mtp.len();
            self.config.mtp.clear();
        }
    }

    /// The first routed expert's first matrix, fused or not.
    pub(crate) fn first_expert(&self) -> Option<&Stored> {
        ["0.w1", super::names::FUSED_GATE_UP].into_iter().find_map(|name| {
            let id = self.find(&format!("layers.0.ffn.experts.{name}"), Part::Value)?;
            Some(&self.entries[id])
        })
    }

    /// The tensor that fills a slot.
    pub(crate) fn find(&self, key: &str, part: Part) -> Option<Id> {
        let at = self.slots.binary_search_by_key(&Some((key, part)), |&id| self.slot(id));
        at.ok().map(|at| self.slots[at])
    }

    /// A tensor's name on disk.
    pub(crate) fn name(&self, id: Id) -> &str {
        &self.text[self.entries[id].name.clone()]
    }

    /// What a tensor's name means.
    pub(crate) fn meaning(&self, id: Id) -> Meaning<&str> {
        self.entries[id].meaning.clone().map_key(|key| &self.text[key])
    }

    /// Key and part that a tensor fills.
    pub(crate) fn slot(&self, id: Id) -> Option<(&str, Part)> {
        match self.meaning(id) {
            Meaning::Slot(slot) => Some((slot.key, slot.part)),
            Meaning::Skip(_) | Meaning::Unknown => None,
        }
    }

    /// A tensor's bytes.
    pub(crate) fn bytes(&self, id: Id) -> &[u8] {
        let stored = &self.entries[id];
        // Every range was checked against its file's length when the header was read.
        &self.shards[stored.shard].1.bytes()[stored.range.clone()]
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
