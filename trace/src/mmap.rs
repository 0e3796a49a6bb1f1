//! Memory-mapped files, and pages of memory.

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

/// Bytes of a large page, on most systems that have them.
const PAGE: usize = 2 << 20;

/// Asks for large pages under a buffer that nothing is in yet: the system hands memory out page by page, and each page costs more than the
/// copy into it where the machine is a virtual one. A hint: where it is refused, or there are none, pages are small.
pub(crate) fn large_pages(buffer: &mut Vec<f32>) {
    let room = buffer.spare_capacity_mut().as_mut_ptr_range();
    let (start, end) = (room.start.addr().next_multiple_of(PAGE), room.end.addr() / PAGE * PAGE);
    #[cfg(target_os = "linux")]
    if start < end {
        let at = room.start.with_addr(start);
        // SAFETY: the range is inside the buffer's own memory, which this borrows for itself. The advice changes neither what the
        // memory holds nor where it lies, only how the system backs it.
        let _ = unsafe { libc::madvise(at.cast(), end - start, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, end);
}
