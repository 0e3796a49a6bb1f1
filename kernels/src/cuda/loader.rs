//! Images onto the device: from a pack; else compiled here, if NVRTC is here, and kept by content for the next run.

use std::path::PathBuf;
use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaModule, sys};
use cudarc::nvrtc::Ptx;
use karat_model::{Error, Result};

use super::device::failed;
use super::{Device, nvrtc::Nvrtc};
use crate::list::{Define, Entry, Image, List};
use crate::pack::Pack;
use crate::source::{key, sha256};

/// Where images come from.
#[derive(Debug)]
pub struct Loader {
    /// The list of this version.
    pub list: List,
    pack: Option<Pack>,
    /// Folder of images compiled at run time; none: they aren't kept.
    cache: Option<PathBuf>,
    /// Folder with NVRTC, where it is not the system's.
    root: Option<PathBuf>,
}

/// An image on the device.
#[derive(Debug)]
pub struct Loaded {
    module: Arc<CudaModule>,
    image: Image,
}

impl Loader {
    /// A loader that looks into `pack` first, then into `cache`, then compiles with the NVRTC under `root` or of the system.
    ///
    /// # Errors
    /// The committed list is broken.
    pub fn new(pack: Option<Pack>, cache: Option<PathBuf>, root: Option<PathBuf>) -> Result<Self> {
        Ok(Self { list: List::read()?, pack, cache, root })
    }

    /// Loads an image.
    ///
    /// # Errors
    /// The pack lacks it and it cannot be compiled here, or the driver refuses it.
    pub fn load(&self, device: &Device, name: &str) -> Result<Loaded> {
        let image = self.list.image(name)?.clone();
        let bytes = match &self.pack {
            Some(pack) => pack.cubin(&self.list, name, device.arch())?.0,
            None => self.compiled(&image, device.arch())?,
        };
        let module = device
            .context()
            .load_module(Ptx::from_binary(bytes))
            .map_err(|e| failed(&format!("the driver refuses kernel image {name} for {}", device.arch()), e))?;
        Ok(Loaded { module, image })
    }

    /// From the cache, where a file is used only with the hash that was written beside it; else from the compiler.
    fn compiled(&self, image: &Image, arch: &str) -> Result<Vec<u8>> {
        let nvrtc = Nvrtc::find(self.root.as_deref()).map_err(|e| {
            let key = key(image, arch, &self.list.compiler).unwrap_or_default();
            e.at(format!("kernel image {} for {arch} ({key})", image.name))
        })?;
        let key = key(image, arch, &nvrtc.version)?;
        let files = self.cache.as_ref().map(|f| (f.join(format!("{key}.cubin")), f.join(format!("{key}.sha256"))));
        if let Some((file, hash)) = &files
            && let (Ok(bytes), Ok(wanted)) = (std::fs::read(file), std::fs::read_to_string(hash))
            && wanted.trim() == sha256(&bytes)
        {
            return Ok(bytes);
        }
        let bytes = nvrtc.compile(image, arch)?.cubin;
        if let Some((file, hash)) = &files {
            let kept = file.parent().map_or(Ok(()), std::fs::create_dir_all);
            let kept = kept.and_then(|()| std::fs::write(file, &bytes));
            let kept = kept.and_then(|()| std::fs::write(hash, sha256(&bytes)));
            kept.map_err(|e| Error::input(format!("a kernel image cannot be kept: {e}")).at(file.display()))?;
        }
        Ok(bytes)
    }
}

impl Loaded {
    /// A kernel, ready for as much shared memory as the list gives it.
    pub(crate) fn kernel(&self, name: &str) -> Result<(CudaFunction, Entry)> {
        let entry = self.image.entry(name)?.clone();
        let what = format!("kernel {name} of image {}", self.image.name);
        let function = self.module.load_function(name).map_err(|e| failed(&format!("{what} cannot be found"), e))?;
        if entry.shared > 0 {
            let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function
                .set_attribute(attribute, entry.shared as i32)
                .map_err(|e| failed(&format!("{what} gets no {} bytes of shared memory", entry.shared), e))?;
        }
        Ok((function, entry))
    }

    /// A number among the image's macros.
    pub(super) fn number(&self, name: &str) -> Result<u32> {
        match self.image.defines.get(name) {
            Some(Define::Number(n)) if *n > 0 => Ok(*n as u32),
            _ => Err(Error::input(format!("kernel image {} does not set {name}", self.image.name))),
        }
    }

    /// True if the image is a naive counterpart.
    pub(super) fn naive(&self) -> bool {
        self.image.source.starts_with("reference/")
    }
}
