//! What is asked of the system about memory: mapped files, and how the C library's allocator divides it.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

use crate::{Error, Result};

/// Maps a file read-only. An empty file can't be mapped on every system, so it gives `None`.
pub(super) fn map(path: &Path) -> Result<Option<Mmap>> {
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
    // rewrites the file during the run would break the promise that the bytes stay as they are; a checkpoint is a
    // finished download, and this is the accepted cost of reading one that is larger than memory.
    let map = unsafe { Mmap::map(&file) }.map_err(fail)?;
    Ok(Some(map))
}

/// Pages that ranges are rounded to, the smallest that systems have.
const PAGE: usize = 4096;

/// Takes the whole pages of a range out of this process's memory. Their bytes are still there: who reads them again gets them
/// from the file, so other users of the range lose nothing but time. What the system refuses stays as it is.
pub(super) fn give_back(map: &Mmap, range: &Range<usize>) {
    let (start, end) = (range.start.next_multiple_of(PAGE), range.end / PAGE * PAGE);
    #[cfg(unix)]
    if start < end {
        // SAFETY: the map is of a file, read-only, and never written to through this process: pages that are dropped are read
        // from that same file at the next access, with the same bytes. So no slice of the map changes.
        let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
    }
    #[cfg(not(unix))]
    let _ = (map, start, end);
}

/// Asks the system to read a range into its own cache before it is needed. None of it becomes memory of this process.
pub(super) fn fetch(map: &Mmap, range: &Range<usize>) {
    #[cfg(unix)]
    // A hint: where it is refused, reading is merely slower.
    let _ = map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
    #[cfg(not(unix))]
    let _ = (map, range);
}

/// Has the C library's allocator serve all threads from one arena, and keep what is freed. Each arena keeps the most that it ever
/// held, and which thread holds the most changes from layer to layer: with an arena a thread, memory grows with depth until all of
/// them have held it. What goes back to the system comes again page by page with the next op, whose tensors are as large. For a
/// program to call before it starts threads. Only glibc is asked, and `MALLOC_ARENA_MAX`, `MALLOC_MMAP_THRESHOLD_`,
/// `MALLOC_TRIM_THRESHOLD_` and `GLIBC_TUNABLES` in the environment go before it.
pub fn tune_allocator() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let tunables = std::env::var_os("GLIBC_TUNABLES").unwrap_or_default().to_string_lossy().into_owned();
        let set = |variable: &str, tunable: &str, parameter, value| {
            let is_set = std::env::var_os(variable).is_some() || tunables.contains(tunable);
            // SAFETY: `mallopt` takes the allocator's own lock and stores a number; no pointer of ours is passed. Arenas that
            // exist stay.
            is_set || unsafe { libc::mallopt(parameter, value) } != 0
        };
        set("MALLOC_ARENA_MAX", "arena_max", libc::M_ARENA_MAX, 1);
        // Larger ones, of a whole long sequence, are mappings of their own: in a heap each would leave a hole that the next one
        // doesn't fit. Some versions of glibc allow 32 MiB at most.
        let mapped = |from| set("MALLOC_MMAP_THRESHOLD_", "mmap_threshold", libc::M_MMAP_THRESHOLD, from);
        if mapped(64 << 20) || mapped(32 << 20) {
            // -1 is the largest size.
            set("MALLOC_TRIM_THRESHOLD_", "trim_threshold", libc::M_TRIM_THRESHOLD, -1);
        }
    }
}
