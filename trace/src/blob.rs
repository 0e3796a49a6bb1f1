//! Bytes of a file: mapped, or held in memory.

use std::path::Path;
use std::sync::Arc;

use karat_model::Result;

use crate::mmap;

/// Bytes of a file, shared by the tensors that lie in it.
pub(crate) enum Blob {
    Mapped(memmap2::Mmap),
    Held(Arc<[u8]>),
}

impl Blob {
    /// Maps a file; nothing is read yet.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Ok(mmap::map(path)?.map_or_else(|| Self::Held(Arc::from([])), Self::Mapped))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Held(bytes) => bytes,
        }
    }
}
