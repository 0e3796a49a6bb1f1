//! Writes a trace: a visitor that keeps what a glob admits and streams it to safetensors files.

mod behind;
mod file;
mod folder;
mod pieces;
mod sample;
mod spare;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use karat_model::{Error, Result};
use karat_seam::{Block, Requests, RowId, Site, TensorMut, Visitor, Want};

use crate::TapGlob;
use crate::key::Key;
use crate::manifest::{FILE, FORMAT, History, Manifest, Mode, ModelId, SequenceEntry, hash_text};

pub(crate) use behind::Behind;
pub(crate) use file::{Entry, write_entries};
pub(crate) use folder::{Folder, file_name};
pub(crate) use pieces::Pieces;
pub use sample::Sample;

/// What the manifest says besides sequences and files.
#[derive(Debug, Clone, Default)]
pub struct Header {
    /// Name and version of the writing program.
    pub producer: String,
    /// Which model.
    pub model: ModelId,
    /// How decode steps were run.
    pub mode: Mode,
    /// How the sequences were computed; empty for one cold prefill each.
    pub history: Vec<History>,
}

impl ModelId {
    /// The hashes that a checkpoint gives.
    pub fn new(config_sha256: [u8; 32], weights_sha256: [u8; 32]) -> Self {
        Self { config_sha256: Some(hash_text(config_sha256)), weights_sha256: Some(hash_text(weights_sha256)) }
    }
}

/// In which order the tensors come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Layer by layer: a block's file is written while the next block is computed, so memory holds two blocks.
    LayerMajor,
    /// Any: everything is held until the end.
    Any,
}

/// Writes a trace under a temporary name; [`TraceWriter::finish`] renames it. Dropped before that, it leaves nothing.
///
/// Rows: all token taps of a sequence and pass must cover the same positions, which become `SEQUENCE/rows` when they
/// are not the whole sequence.
pub struct TraceWriter {
    /// Before the folder, which must not be removed under it.
    behind: Behind,
    folder: Folder,
    manifest: Manifest,
    glob: TapGlob,
    order: Order,
    open: BTreeMap<(Site, u32, u32), Pieces>,
    /// The first failure: later visits repeat it, `finish` too.
    failed: Option<Error>,
    written: BTreeMap<Block, String>,
    is_synced: bool,
    rows: BTreeMap<(u32, u32), (Site, Vec<u32>)>,
}

impl TraceWriter {
    /// Starts a trace of these requests at `target`, a folder that must not exist yet.
    ///
    /// Errors (usage): the target exists. Errors (input): its parent can't be written, requests that no trace can hold
    /// (two equal ids, an empty sequence).
    pub fn create(target: &Path, requests: &Requests, header: Header, glob: TapGlob, order: Order) -> Result<Self> {
        let sequences = requests.seqs.iter().map(|s| SequenceEntry { id: s.id.clone(), input_ids: s.ids.to_vec() });
        let manifest = Manifest {
            format: FORMAT.into(),
            producer: header.producer,
            model: header.model,
            mode: header.mode,
            sequences: sequences.collect(),
            history: header.history,
            files: Vec::new(),
        };
        manifest.check_sequences()?;
        manifest.check_history()?;
        manifest.model.check()?;
        let folder = Folder::create(target, "trace folder")?;
        Ok(Self {
            behind: Behind::default(),
            folder,
            manifest,
            glob,
            order,
            open: BTreeMap::new(),
            failed: None,
            written: BTreeMap::new(),
            is_synced: false,
            rows: BTreeMap::new(),
        })
    }

    /// Has the whole trace on the disk when [`TraceWriter::finish`] returns, so that a machine that loses power keeps it. Files go
    /// there while the next ones are computed. Without this the system writes them when it sees fit.
    #[must_use]
    pub fn synced(mut self) -> Self {
        self.behind.sync();
        self.is_synced = true;
        self
    }

    /// Adds a piece of a tap: rows of one sequence and pass, ascending; a state tap once.
    pub fn add(&mut self, at: Site, rows: &[RowId], tensor: &TensorMut<'_>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.take(at, rows, tensor).inspect_err(|e| self.failed = Some(e.clone()))
    }

    /// Writes what is open, rows and manifest, and gives the trace its name.
    pub fn finish(mut self) -> Result<PathBuf> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.flush()?;
        self.write_rows()?;
        self.behind.finish()?;
        if self.manifest.files.is_empty() {
            return Err(self.folder.nothing());
        }
        let path = self.folder.path().join(FILE);
        std::fs::write(&path, self.manifest.text()).map_err(|e| io("manifest can't be written", &path, &e))?;
        if !self.is_synced {
            return self.folder.finish();
        }
        // All that the name stands for, then the name.
        sync(&path)?;
        sync(self.folder.path())?;
        let finished = self.folder.finish()?;
        sync(finished.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
        Ok(finished)
    }

    fn take(&mut self, at: Site, rows: &[RowId], tensor: &TensorMut<'_>) -> Result<()> {
        let Some(&first) = rows.first() else { return Ok(()) };
        if rows.iter().any(|r| (r.seq, r.pass) != (first.seq, first.pass)) {
            return Err(broken("a piece holds rows of two sequences or passes", at));
        }
        if self.manifest.sequences.get(first.seq as usize).is_none() {
            return Err(broken("a piece is of a sequence that the requests don't have", at));
        }
        let new_block = self.open.keys().next().is_some_and(|(site, ..)| site.block != at.block);
        if self.order == Order::LayerMajor && new_block {
            self.flush()?;
        }
        if let Some(file) = self.written.get(&at.block) {
            return Err(broken("a block came back after its file was written", at)
                .found(file)
                .hint("record this path in any order instead"));
        }
        // A tap of a whole sequence comes in pieces: room for all of it at once is never copied.
        let expected = self.manifest.sequences[first.seq as usize].input_ids.len();
        let pieces = self.open.entry((at, first.seq, first.pass)).or_default();
        pieces.push(at, rows, tensor, expected, self.behind.spare())
    }

    /// Writes one file a block.
    fn flush(&mut self) -> Result<()> {
        let open = std::mem::take(&mut self.open);
        let mut by_block: BTreeMap<Block, Vec<(String, Pieces)>> = BTreeMap::new();
        for ((site, seq, pass), mut pieces) in open {
            pieces.close();
            self.note_rows(site, seq, pass, &pieces)?;
            let sequence = &self.manifest.sequences[seq as usize].id;
            let key = Key::tap(sequence, site, pass).to_string();
            by_block.entry(site.block).or_default().push((key, pieces));
        }
        for (block, tensors) in by_block {
            let name = file_name(block);
            self.behind.write(self.folder.path().join(&name), tensors)?;
            self.manifest.files.push(name.clone());
            self.written.insert(block, name);
        }
        Ok(())
    }

    /// Checks that all token taps of a sequence and pass cover the same positions.
    fn note_rows(&mut self, site: Site, seq: u32, pass: u32, pieces: &Pieces) -> Result<()> {
        let positions = pieces.positions();
        if site.tap.is_state() {
            return Ok(());
        }
        if site.tap.is_per_entry() {
            let whole = positions.iter().enumerate().all(|(i, p)| i as u32 == *p);
            return if whole { Ok(()) } else { Err(broken("entries are not all entries from the first", site)) };
        }
        if !positions.is_sorted_by(|a, b| a < b) {
            return Err(broken("positions of a pass are not ascending", site));
        }
        if positions.last().is_some_and(|p| *p as usize >= self.manifest.sequences[seq as usize].input_ids.len()) {
            return Err(broken("a row lies behind the end of its sequence", site));
        }
        match self.rows.get(&(seq, pass)) {
            None => {
                self.rows.insert((seq, pass), (site, positions.to_vec()));
                Ok(())
            }
            Some((_, known)) if known == positions => Ok(()),
            Some((other, known)) => Err(broken("two taps of a pass cover different rows", site)
                .expected(format!("the {} rows of {other}", known.len()))
                .found(format!("{} rows", positions.len()))),
        }
    }

    fn write_rows(&mut self) -> Result<()> {
        let mut tensors = Vec::new();
        for ((seq, pass), (_, positions)) in &self.rows {
            let sequence = &self.manifest.sequences[*seq as usize];
            if positions.len() < sequence.input_ids.len() {
                let values = positions.iter().map(|p| i64::from(*p)).collect();
                tensors.push((Key::rows(&sequence.id, *pass).to_string(), Pieces::indices(values)));
            }
        }
        if tensors.is_empty() {
            return Ok(());
        }
        let name = "rows.safetensors".to_string();
        self.behind.write(self.folder.path().join(&name), tensors)?;
        self.manifest.files.push(name);
        Ok(())
    }
}

impl Visitor for TraceWriter {
    fn want(&self, at: Site) -> Want {
        if self.glob.admits(at) { Want::Read } else { Want::Skip }
    }

    fn takes_few_rows(&self) -> bool {
        true
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> karat_seam::Result<()> {
        self.add(at, rows, &tensor).map_err(karat_seam::Error::source)
    }
}

fn broken(what: &str, at: Site) -> Error {
    Error::input(what).at(at)
}

fn io(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::input(what).at(path.display()).found(error)
}

/// Waits until the disk has a file, or a folder's names.
fn sync(path: &Path) -> Result<()> {
    let synced = std::fs::File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|e| io("trace can't be brought to the disk", path, &e))
}
