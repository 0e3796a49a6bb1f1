//! How full a cache folder is, and what goes when it is too full.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::Holding;

/// How an entry's file name ends.
pub(super) const ENTRY: &str = ".entry";
/// How the name of a file ends that is being written.
pub(super) const TEMPORARY: &str = ".part";
/// A file that has been in the making for so long was left behind by a process that died.
const ABANDONED: Duration = Duration::from_hours(1);

/// A file of ours.
struct Found {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// Files of ours with this ending. Anything else in the folder is somebody's: it is not counted and never deleted.
fn files(dir: &Path, ending: &str) -> Vec<Found> {
    let list = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    let is_shelf = |name: &str| name.len() == 2 && name.bytes().all(|b| b.is_ascii_hexdigit());
    let shelves = list(dir).filter(|d| d.file_name().to_str().is_some_and(is_shelf));
    let mut out = Vec::new();
    for file in shelves.flat_map(|shelf| list(&shelf.path())) {
        let Ok(facts) = file.metadata() else { continue };
        let ours = file.file_name().to_str().is_some_and(|name| {
            let stem = name.strip_suffix(ending);
            stem.is_some_and(|s| s.len() >= 16 && s.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'))
        });
        if facts.is_file() && ours {
            let used = facts.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            out.push(Found { path: file.path(), bytes: facts.len(), used });
        }
    }
    out
}

/// Whole entries and their bytes.
pub(super) fn holding(dir: &Path) -> Holding {
    let entries = files(dir, ENTRY);
    Holding { entries: entries.len() as u64, bytes: entries.iter().map(|f| f.bytes).sum() }
}

/// Deletes entries, those first that were not used for longest, until a tenth of `limit` is free; and what dead processes
/// left half written. Gives the bytes that are left and how many entries went. A file that another process deletes at
/// the same time is simply gone.
pub(super) fn shrink(dir: &Path, limit: u64) -> (u64, u64) {
    let now = SystemTime::now();
    for file in files(dir, TEMPORARY) {
        if now.duration_since(file.used).is_ok_and(|age| age > ABANDONED) {
            let _ = fs::remove_file(&file.path);
        }
    }
    let mut entries = files(dir, ENTRY);
    let mut held: u64 = entries.iter().map(|f| f.bytes).sum();
    entries.sort_by(|a, b| a.used.cmp(&b.used).then_with(|| a.path.cmp(&b.path)));
    let (goal, mut deleted) = (limit - limit / 10, 0);
    for file in entries {
        if held <= goal {
            break;
        }
        if fs::remove_file(&file.path).is_ok() {
            deleted += 1;
        }
        held -= file.bytes;
    }
    (held, deleted)
}
