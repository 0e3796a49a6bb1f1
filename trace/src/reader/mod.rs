//! A trace opened for reading.

mod checks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use karat_model::{Error, Result};
use karat_seam::{Phase, Requests, RowId, Site, Tap, Tensor};

use crate::key::{Key, What};
use crate::manifest::{FILE, LIMIT, Manifest, hash_text};
use crate::values::{to_indices, to_mask, to_numbers};
use crate::{Dtype, TensorFile};

/// A trace: manifest, files, and an index of what is in them. Opening checks everything but the values of tensors.
pub struct Trace {
    label: String,
    manifest: Manifest,
    requests: Requests,
    files: Vec<TensorFile>,
    /// File and name of each tap, by (site, sequence, pass).
    index: BTreeMap<(Site, u32, u32), (usize, String)>,
    /// Positions held, by (sequence, pass).
    rows: BTreeMap<(u32, u32), Arc<[u32]>>,
}

/// Whether a trace is of a certain model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameModel {
    /// Both hashes are there and equal.
    Same,
    /// The weights are equal and the config's bytes are not (or unknown): another spelling, or another model.
    SameWeights,
    /// The weights differ.
    Different,
    /// The trace doesn't say.
    Unknown,
}

/// A sequence whose ids are not the expected ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdDifference {
    /// Sequence id.
    pub sequence: String,
    /// First position at which they differ; `None` when one side lacks the sequence.
    pub position: Option<usize>,
}

impl Trace {
    /// Opens a trace folder.
    ///
    /// Errors (input), each naming file and tensor: no or broken manifest; a file that is missing, truncated or no
    /// safetensors; a key of an unlisted sequence, twice, or misspelt; a wrong number of rows; bad positions.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE);
        let fail = |e: std::io::Error| {
            Error::input("trace manifest can't be read").at(path.display()).found(e).hint("name a karat-trace/1 folder")
        };
        let size = std::fs::metadata(&path).map_err(fail)?.len();
        if size > LIMIT as u64 {
            return Err(Error::input("trace manifest is too large")
                .at(path.display())
                .expected(format!("at most {LIMIT} bytes"))
                .found(size));
        }
        let bytes = std::fs::read(&path).map_err(fail)?;
        let label = dir.display().to_string();
        let manifest = Manifest::read(&bytes).map_err(|e| e.at(&label))?;
        let open = |name: &String| TensorFile::open(&dir.join(name));
        let files = manifest.files.iter().map(open).collect::<Result<Vec<_>>>()?;
        Self::new(label, manifest, files)
    }

    /// A trace whose files are in memory, by name (`manifest.json` among them), with the same checks.
    pub fn from_memory(label: &str, files: &BTreeMap<String, Arc<[u8]>>) -> Result<Self> {
        let get = |name: &str| files.get(name).ok_or_else(|| Error::input("file is missing").at(name).at(label));
        let manifest = Manifest::read(get(FILE)?).map_err(|e| e.at(label))?;
        let open = |name: &String| TensorFile::from_memory(&format!("{label}/{name}"), Arc::clone(get(name)?));
        let opened = manifest.files.iter().map(open).collect::<Result<Vec<_>>>()?;
        Self::new(label.into(), manifest, opened)
    }

    fn new(label: String, manifest: Manifest, files: Vec<TensorFile>) -> Result<Self> {
        let requests = manifest.requests();
        let mut trace = Self { label, manifest, requests, files, index: BTreeMap::new(), rows: BTreeMap::new() };
        let row_lists = trace.index_keys()?;
        trace.read_rows(&row_lists)?;
        trace.check_taps()?;
        Ok(trace)
    }

    /// Folder or label, for messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The sequences, each as one prompt.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Phase of a row, from the history.
    pub fn phase_of(&self, row: RowId) -> Phase {
        self.manifest.phase_of(row.seq, row.pos)
    }

    /// Everything that is held: (site, sequence, pass) in order.
    pub fn held(&self) -> impl Iterator<Item = (Site, u32, u32)> + '_ {
        self.index.keys().copied()
    }

    /// True when a tap of a sequence and pass is held.
    pub fn holds(&self, at: Site, seq: u32, pass: u32) -> bool {
        self.index.contains_key(&(at, seq, pass))
    }

    /// (sequence, pass) pairs of which rows are held, in order.
    pub fn passes(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.rows.keys().copied()
    }

    /// Positions held of a sequence and pass, ascending; empty when none.
    pub fn positions(&self, seq: u32, pass: u32) -> Arc<[u32]> {
        self.rows.get(&(seq, pass)).cloned().unwrap_or_default()
    }

    /// Identity of the rows of a tensor: positions, entries, or for state taps the last position.
    pub fn row_ids(&self, at: Site, seq: u32, pass: u32) -> Result<Vec<RowId>> {
        if at.tap.is_state() {
            let last = self.positions(seq, pass).last().copied();
            let pos = last.unwrap_or(self.length(seq).saturating_sub(1) as u32);
            return Ok(vec![RowId { seq, pos, pass }]);
        }
        if at.tap.is_per_entry() {
            let (file, name) = self.find(at, seq, pass)?;
            let entries = self.files[*file].shape(name).and_then(|s| s.first()).copied().unwrap_or(0);
            return Ok((0..entries as u32).map(|pos| RowId { seq, pos, pass }).collect());
        }
        Ok(self.positions(seq, pass).iter().map(|&pos| RowId { seq, pos, pass }).collect())
    }

    /// Shape on disk; `None` when not held.
    pub fn shape(&self, at: Site, seq: u32, pass: u32) -> Option<&[usize]> {
        let (file, name) = self.index.get(&(at, seq, pass))?;
        self.files[*file].shape(name)
    }

    /// Element type on disk: tells in which format the engine stores the tap (or at least dumped it).
    pub fn dtype(&self, at: Site, seq: u32, pass: u32) -> Result<Dtype> {
        let (file, name) = self.find(at, seq, pass)?;
        self.files[*file].dtype(name)
    }

    /// A tap's values: I64 for experts and positions, U8 for masks, else f32 (f64 where F64 is stored).
    ///
    /// Errors: not held; a dtype that doesn't fit the tap.
    pub fn tensor(&self, at: Site, seq: u32, pass: u32) -> Result<Tensor> {
        let (file, name) = self.find(at, seq, pass)?;
        let file = &self.files[*file];
        let tensor = file.tensor(name)?;
        let fitted = match at.tap {
            Tap::FfnIdx | Tap::StateWinPos => to_indices(tensor),
            Tap::AttnSelected => to_mask(tensor),
            _ => to_numbers(tensor),
        };
        fitted.map_err(|e| e.at(format!("tensor {name}")).at(file.label()))
    }

    /// Compares the model's hashes with the manifest's.
    pub fn same_model(&self, config_sha256: [u8; 32], weights_sha256: [u8; 32]) -> SameModel {
        let is =
            |text: &Option<String>, hash: [u8; 32]| text.as_ref().map(|t| t.eq_ignore_ascii_case(&hash_text(hash)));
        let model = &self.manifest.model;
        match (is(&model.weights_sha256, weights_sha256), is(&model.config_sha256, config_sha256)) {
            (None, _) => SameModel::Unknown,
            (Some(false), _) => SameModel::Different,
            (Some(true), Some(true)) => SameModel::Same,
            (Some(true), _) => SameModel::SameWeights,
        }
    }

    /// Sequences whose ids differ from what was asked for, in the order of the requests; empty when all agree.
    pub fn id_differences(&self, expected: &Requests) -> Vec<IdDifference> {
        let mut out = Vec::new();
        let named = |r: &Requests, id: &str| r.seqs.iter().find(|s| s.id == id).map(|s| Arc::clone(&s.ids));
        for s in &expected.seqs {
            let position = match named(&self.requests, &s.id) {
                None => None,
                Some(ids) if ids == s.ids => continue,
                Some(ids) => Some(first_difference(&ids, &s.ids)),
            };
            out.push(IdDifference { sequence: s.id.clone(), position });
        }
        for s in self.requests.seqs.iter().filter(|s| named(expected, &s.id).is_none()) {
            out.push(IdDifference { sequence: s.id.clone(), position: None });
        }
        out
    }

    /// sha256 of everything: manifest text, and each file's name and bytes in order.
    pub fn content_sha256(&self) -> [u8; 32] {
        use sha2::{Digest, Sha256};
        let mut hash = Sha256::new();
        hash.update(self.manifest.text());
        for (name, file) in self.manifest.files.iter().zip(&self.files) {
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name);
            hash.update((file.bytes().len() as u64).to_le_bytes());
            hash.update(file.bytes());
        }
        hash.finalize().into()
    }

    /// The files, for a plain diff.
    pub(crate) fn into_files(self) -> (String, Vec<TensorFile>) {
        (self.label, self.files)
    }

    fn length(&self, seq: u32) -> usize {
        self.requests.seqs.get(seq as usize).map_or(0, |s| s.ids.len())
    }

    fn find(&self, at: Site, seq: u32, pass: u32) -> Result<&(usize, String)> {
        self.index.get(&(at, seq, pass)).ok_or_else(|| {
            let id = self.requests.seqs.get(seq as usize).map_or_else(|| format!("#{seq}"), |s| s.id.clone());
            Error::input("trace doesn't hold this tap").at(Key::tap(id, at, pass)).at(&self.label)
        })
    }
}

/// Folder of a trace, if this is one.
pub(crate) fn is_trace(path: &Path) -> bool {
    let manifest: PathBuf = path.join(FILE);
    path.is_dir() && manifest.is_file()
}

fn first_difference(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()))
}

/// Where lists of positions are: (sequence, pass) to file and name.
type RowLists = BTreeMap<(u32, u32), (usize, String)>;

impl Trace {
    fn index_keys(&mut self) -> Result<RowLists> {
        let by_id: BTreeMap<&str, u32> =
            self.requests.seqs.iter().enumerate().map(|(i, s)| (s.id.as_str(), i as u32)).collect();
        let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
        let mut rows = RowLists::new();
        for (number, file) in self.files.iter().enumerate() {
            for name in file.names() {
                let fail = |what: &str| Error::input(what).at(format!("tensor {name}")).at(file.label());
                if let Some(other) = seen.insert(name, file.label()) {
                    return Err(fail("key is in two files").found(other));
                }
                let key = checks::key_of(name).map_err(|e| e.at(file.label()))?;
                let Some(&seq) = by_id.get(key.sequence.as_str()) else {
                    return Err(fail("sequence is not in the manifest").expected("a sequence that the manifest lists"));
                };
                let place = (number, name.to_string());
                match key.what {
                    What::Rows => rows.insert((seq, key.pass), place),
                    What::Tap(site) => self.index.insert((site, seq, key.pass), place),
                };
            }
        }
        Ok(rows)
    }
}
