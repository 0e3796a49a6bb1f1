//! A new folder: under a temporary name until it is whole.

use std::path::{Path, PathBuf};

use karat_model::{Error, Result};
use karat_seam::Block;

use super::io;

/// A folder that gets its name when it is finished. Dropped before that, it leaves nothing.
pub(crate) struct Folder {
    target: PathBuf,
    path: PathBuf,
    renamed: bool,
}

impl Folder {
    /// A folder `target`, which must not exist yet; `what` it is called in messages.
    ///
    /// Errors (usage): the target exists. Errors (input): its parent can't be written.
    pub(crate) fn create(target: &Path, what: &str) -> Result<Self> {
        if target.symlink_metadata().is_ok() {
            return Err(Error::usage(format!("{what} exists already"))
                .at(target.display())
                .hint("name a new folder, or remove the old one"));
        }
        let Some(name) = target.file_name() else {
            return Err(Error::usage("not the name of a new folder").at(target.display()));
        };
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".partial-{}", std::process::id()));
        let path = target.with_file_name(temporary);
        std::fs::create_dir(&path).map_err(|e| io(&format!("{what} can't be made"), &path, &e))?;
        Ok(Self { target: target.into(), path, renamed: false })
    }

    /// Where to write.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The error of a run that showed nothing.
    pub(crate) fn nothing(&self) -> Error {
        Error::input("nothing was recorded").at(self.target.display()).hint("check the tap patterns")
    }

    /// Gives the folder its name.
    pub(crate) fn finish(&mut self) -> Result<PathBuf> {
        std::fs::rename(&self.path, &self.target)
            .map_err(|e| io("finished folder can't be renamed", &self.target, &e))?;
        self.renamed = true;
        Ok(self.target.clone())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.renamed {
            // Nothing to tell anybody: the folder has a name that says it is partial.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// The file that a block's tensors go to.
pub(crate) fn file_name(block: Block) -> String {
    match block {
        Block::Embed => "embed.safetensors".to_string(),
        Block::Layer(l) => format!("layer-{l:04}.safetensors"),
        Block::Head => "head.safetensors".to_string(),
        Block::Mtp(i) => format!("mtp-{i:02}.safetensors"),
    }
}
