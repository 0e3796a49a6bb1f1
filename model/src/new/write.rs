//! Puts a made model on disk.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use crate::{Error, Result};

/// Writes the files into a new folder `dir`: first all of them under a temporary name beside it, then one rename.
/// An existing folder is used only when it is empty; nothing is ever overwritten.
pub fn write_model(dir: &Path, files: &BTreeMap<String, Arc<[u8]>>) -> Result<()> {
    refuse_occupied(dir)?;
    let name = dir.file_name().ok_or_else(|| Error::usage("the folder needs a name").at(dir.display()))?;
    let parent = match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(|e| io(&e, "make the folder", parent))?;
    let staging = parent.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    fs::create_dir(&staging).map_err(|e| io(&e, "make the folder", &staging))?;
    let done = fill(&staging, files).and_then(|()| {
        refuse_occupied(dir)?;
        // A rename replaces an empty folder and fails on one that has been filled meanwhile.
        fs::rename(&staging, dir).map_err(|e| io(&e, "rename the finished folder to", dir))
    });
    if done.is_err() {
        // What is left is ours alone; that it can't be removed matters less than the first error.
        let _ = fs::remove_dir_all(&staging);
    }
    done
}

fn fill(staging: &Path, files: &BTreeMap<String, Arc<[u8]>>) -> Result<()> {
    for (name, bytes) in files {
        let path = staging.join(name);
        let mut file = fs::File::create_new(&path).map_err(|e| io(&e, "create", &path))?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|e| io(&e, "write", &path))?;
    }
    Ok(())
}

fn refuse_occupied(dir: &Path) -> Result<()> {
    let occupied = match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_some(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
        Err(e) => return Err(io(&e, "read the folder", dir)),
    };
    if occupied {
        return Err(Error::usage("the folder is not empty, and nothing is overwritten")
            .at(dir.display())
            .hint("name a new folder, or remove this one first"));
    }
    Ok(())
}

fn io(error: &std::io::Error, doing: &str, path: &Path) -> Error {
    Error::input(format!("failed to {doing} it")).at(path.display()).found(error)
}
