//! Memory-mapped files.

use std::fs::File;
use std::path::Path;

use karat_model::{Error, Result};
use memmap2::Mmap;

/// Maps a file read-only; `None` for an empty file, which can't be mapped on every system.
pub(crate) fn map(path: &Path) -> Result<Option<Mmap>> {
    let fail = |e: std::io::Error| Error::input("file can't be read").at(path.display()).found(e);
    let file = File::open(path).map_err(fail)?;
    let meta = file.metadata().map_err(fail)?;
    if !meta.is_file() {
        return Err(Error::input("not a file").at(path.display()));
    }
    if meta.len() == 0 {
        return Ok(None);
    }
    // SAFETY: the map is read-only and handed out as `&[u8]` only while it lives. Another process that truncates or
    // rewrites the file during the run would break the promise that the bytes stay as they are; a trace is renamed to
    // its name when it is complete, and this is the accepted cost of reading one that is larger than memory.
    let map = unsafe { Mmap::map(&file) }.map_err(fail)?;
    Ok(Some(map))
}
