//! Where a checkpoint's files are: a folder, or memory.

mod mmap;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Error, Result};

/// Bytes of one file, mapped or held.
pub(crate) enum Blob {
    Mapped(Arc<memmap2::Mmap>),
    Held(Arc<[u8]>),
}

impl Blob {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(m) => m,
            Self::Held(b) => b,
        }
    }

    /// Gives pages of a mapped range back; bytes that are held stay.
    pub(crate) fn give_back(&self, range: &Range<usize>) {
        if let Self::Mapped(map) = self {
            mmap::give_back(map, range);
        }
    }

    /// Has ranges of a mapped file read ahead, by a thread of their own: asking waits for the disk's queue.
    pub(crate) fn fetch(&self, ranges: Vec<Range<usize>>) {
        let Self::Mapped(map) = self else { return };
        let map = Arc::clone(map);
        // Without a thread nothing is read ahead, and reading is merely slower.
        let _ = std::thread::Builder::new()
            .name("karat-fetch".into())
            .spawn(move || ranges.iter().for_each(|range| mmap::fetch(&map, range)));
    }
}

pub use mmap::tune_allocator;

/// A set of files by name, without subfolders.
pub(crate) enum Source {
    Folder(PathBuf),
    Memory(BTreeMap<String, Arc<[u8]>>),
}

impl Source {
    /// A folder that exists.
    pub(crate) fn folder(dir: &Path) -> Result<Self> {
        let meta = std::fs::metadata(dir).map_err(|e| {
            Error::input("model folder can't be read").at(dir.display()).found(e).hint("check the path")
        })?;
        if !meta.is_dir() {
            return Err(Error::input("not a folder")
                .at(dir.display())
                .expected("a model folder (config.json and *.safetensors)")
                .hint("name the folder, not a file in it"));
        }
        Ok(Self::Folder(dir.to_path_buf()))
    }

    /// File names, sorted.
    pub(crate) fn list(&self) -> Result<Vec<String>> {
        match self {
            Self::Memory(files) => Ok(files.keys().cloned().collect()),
            Self::Folder(dir) => {
                let fail = |e: std::io::Error| Error::input("model folder can't be listed").at(dir.display()).found(e);
                let mut names = Vec::new();
                for entry in std::fs::read_dir(dir).map_err(fail)? {
                    // A name that isn't UTF-8 is no file of a checkpoint.
                    if let Ok(name) = entry.map_err(fail)?.file_name().into_string() {
                        names.push(name);
                    }
                }
                names.sort();
                Ok(names)
            }
        }
    }

    /// The whole of a small file; `None` when there is no such file.
    pub(crate) fn read(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        plain_name(name)?;
        match self {
            Self::Memory(files) => Ok(files.get(name).map(|b| b.to_vec())),
            Self::Folder(dir) => {
                let path = dir.join(name);
                let fail = |e: std::io::Error| Error::input("file can't be read").at(path.display()).found(e);
                match std::fs::metadata(&path) {
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                    Err(e) => return Err(fail(e)),
                    Ok(meta) if meta.len() > limit => {
                        return Err(Error::input("file is too large for what it holds")
                            .at(path.display())
                            .expected(format!("at most {limit} bytes"))
                            .found(format!("{} bytes", meta.len())));
                    }
                    Ok(_) => {}
                }
                std::fs::read(&path).map(Some).map_err(fail)
            }
        }
    }

    /// A large file, mapped.
    pub(crate) fn open(&self, name: &str) -> Result<Blob> {
        plain_name(name)?;
        match self {
            Self::Memory(files) => files
                .get(name)
                .map(|b| Blob::Held(Arc::clone(b)))
                .ok_or_else(|| Error::input("file is missing").at(name)),
            Self::Folder(dir) => Ok(mmap::map(&dir.join(name))?
                .map_or_else(|| Blob::Held(Arc::from([])), |map| Blob::Mapped(Arc::new(map)))),
        }
    }
}

/// Refuses names that lead out of the folder: index files are data from elsewhere.
pub(crate) fn plain_name(name: &str) -> Result<()> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(std::path::Component::Normal(_)), None) if !name.contains(['/', '\\', '\0']) => Ok(()),
        _ => Err(Error::input("not a plain file name").at(format!("{name:?}")).expected("a file in the model folder")),
    }
}
