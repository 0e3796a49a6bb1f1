//! A pack: compiled images in one folder with a manifest. It is keyed by content: an image is what its source, options, compiler and
//! chip say, or it is not used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use karat_model::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::check::Resources;
use crate::list::{Image, List};
use crate::source::{digest, key, sha256};

/// Name of the manifest in a pack's folder.
pub const MANIFEST: &str = "manifest.json";

/// What a pack holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// 1.
    pub format: u32,
    /// Version of NVRTC.
    pub compiler: String,
    /// The compiled images.
    pub items: Vec<Item>,
}

/// One compiled image.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// Name in the list.
    pub image: String,
    /// Chip.
    pub arch: String,
    /// Digest of source, options and compiler.
    pub digest: String,
    /// The same with the chip; the file is `<key>.cubin`.
    pub key: String,
    /// Sha256 of the file.
    pub sha256: String,
    /// What the assembler reported.
    pub resources: Vec<Resources>,
    /// Instructions by kernel and opcode; empty where no disassembler was there.
    #[serde(default)]
    pub opcodes: BTreeMap<String, BTreeMap<String, u32>>,
}

/// A pack on disk whose manifest has been read.
#[derive(Debug, Clone)]
pub struct Pack {
    folder: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
}

impl Item {
    /// Describes compiled bytes.
    ///
    /// # Errors
    /// The image's source is none of this program.
    pub fn new(image: &Image, arch: &str, compiler: &str, cubin: &[u8], resources: Vec<Resources>) -> Result<Self> {
        Ok(Self {
            image: image.name.clone(),
            arch: arch.to_string(),
            digest: digest(image, compiler)?,
            key: key(image, arch, compiler)?,
            sha256: sha256(cubin),
            resources,
            opcodes: BTreeMap::new(),
        })
    }

    /// Name of its file in the pack.
    pub fn file(&self) -> String {
        format!("{}.cubin", self.key)
    }
}

impl Pack {
    /// Opens a pack.
    ///
    /// # Errors
    /// The folder has no readable manifest of this format.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(MANIFEST);
        let text = std::fs::read_to_string(&path).map_err(|e| {
            let error = Error::input(format!("no kernel pack is here: {e}")).at(path.display());
            error.hint("`cargo xtask kernels build` makes one")
        })?;
        let manifest: Manifest = serde_json::from_str(&text)
            .map_err(|e| Error::input(format!("is no manifest of a kernel pack: {e}")).at(path.display()))?;
        if manifest.format != 1 {
            let error = Error::input("is a kernel pack of another format").at(path.display());
            return Err(error.expected(1).found(manifest.format));
        }
        Ok(Self { folder: folder.to_path_buf(), manifest })
    }

    /// The bytes of an image for a chip, if this program's sources and options made them.
    ///
    /// # Errors
    /// The pack lacks the image, was built from other sources, or its file is damaged.
    pub fn cubin(&self, list: &List, name: &str, arch: &str) -> Result<(Vec<u8>, &Item)> {
        let image = list.image(name)?;
        let wanted = key(image, arch, &self.manifest.compiler)?;
        let items = || self.manifest.items.iter().filter(|i| i.image == name && i.arch == arch);
        let Some(item) = items().find(|i| i.key == wanted) else {
            let what = match items().next() {
                Some(_) => format!("the pack's kernel image {name} for {arch} was built from other sources"),
                None => format!("the pack has no kernel image {name} for {arch}"),
            };
            let error = Error::input(what).at(self.folder.display()).expected(wanted);
            return Err(error.hint("build it again with `cargo xtask kernels build`"));
        };
        let path = self.folder.join(item.file());
        let bytes = std::fs::read(&path)
            .map_err(|e| Error::input(format!("a kernel image cannot be read: {e}")).at(path.display()))?;
        let found = sha256(&bytes);
        if found != item.sha256 {
            let error = Error::input("a kernel image is damaged").at(path.display());
            return Err(error.expected(format!("sha256 {}", item.sha256)).found(found));
        }
        Ok((bytes, item))
    }

    /// Writes a pack: the images first, the manifest last, so that a folder with a manifest is whole.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(folder: &Path, compiler: &str, made: Vec<(Item, Vec<u8>)>) -> Result<Self> {
        let failed = |path: &Path, e: std::io::Error| {
            Error::input(format!("the kernel pack cannot be written: {e}")).at(path.display())
        };
        std::fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
        let mut items = Vec::new();
        for (item, bytes) in made {
            let path = folder.join(item.file());
            std::fs::write(&path, bytes).map_err(|e| failed(&path, e))?;
            items.push(item);
        }
        let manifest = Manifest { format: 1, compiler: compiler.to_string(), items };
        let path = folder.join(MANIFEST);
        let text = serde_json::to_string_pretty(&manifest)
            .map_err(|e| Error::input(format!("the manifest cannot be written: {e}")))?;
        std::fs::write(&path, text + "\n").map_err(|e| failed(&path, e))?;
        Ok(Self { folder: folder.to_path_buf(), manifest })
    }
}

#[cfg(test)]
mod tests;
