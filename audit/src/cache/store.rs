//! Reads and writes entries.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::{Cache, Hash, Kind, entry, key, room};
use crate::job::hex;

impl Cache {
    /// The content of an entry, or `None` when there is none. A damaged one is taken away, counted, and is none.
    pub(crate) fn get<T>(&self, kind: Kind, name: &Hash, read: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
        let path = self.place(name);
        let found = match fs::read(&path) {
            Ok(file) => {
                let value = entry::content(name, &file).and_then(read);
                if value.is_none() {
                    // Another process may have done so already.
                    let _ = fs::remove_file(&path);
                    self.state().used.damaged += 1;
                }
                value
            }
            Err(e) => {
                if e.kind() != ErrorKind::NotFound {
                    self.trouble(&format!("{}: {e}", path.display()));
                }
                None
            }
        };
        if found.is_some() {
            // Used now: it goes last. Where times cannot be set, it goes as if it had not been used.
            let _ = File::open(&path).and_then(|f| f.set_modified(SystemTime::now()));
        }
        self.asked(kind);
        let hit = u64::from(found.is_some());
        let used = &mut self.state().used;
        match kind {
            Kind::Comparison => used.comparisons += hit,
            Kind::Golden => used.golden += hit,
            Kind::Other => {}
        }
        found
    }

    /// Counts something that was not looked for, because all is made anew.
    pub(crate) fn asked(&self, kind: Kind) {
        let used = &mut self.state().used;
        match kind {
            Kind::Comparison => used.comparisons_asked += 1,
            Kind::Golden => used.golden_asked += 1,
            Kind::Other => {}
        }
    }

    /// Takes back what was counted of reading: the run starts again.
    pub(crate) fn forget_hits(&self) {
        let used = &mut self.state().used;
        (used.comparisons, used.comparisons_asked, used.golden, used.golden_asked) = (0, 0, 0, 0);
    }

    /// Keeps an entry. Failing is no failure of the run: it is said in [`Cache::used`].
    pub(crate) fn put(&self, name: &Hash, content: &[u8]) {
        self.put_hashed(name, content, &key::of(content));
    }

    /// Keeps an entry whose name is the hash of its content; gives the name.
    pub(crate) fn put_content(&self, content: &[u8]) -> Hash {
        let name = key::of(content);
        self.put_hashed(&name, content, &name);
        name
    }

    fn put_hashed(&self, name: &Hash, content: &[u8], checksum: &Hash) {
        let size = (content.len() + entry::HEAD) as u64;
        // One entry that pushes out most of the others is worth less than they are.
        if size > self.limit / 4 {
            self.state().used.too_large += 1;
            return;
        }
        match self.write(name, content, checksum) {
            Ok(()) => {
                let over = {
                    let mut state = self.state();
                    state.written += size;
                    state.used.written_bytes += size;
                    state.held + state.written > self.limit
                };
                if over {
                    self.make_room();
                }
            }
            Err(e) => self.trouble(&format!("{}: {e}", self.dir.display())),
        }
    }

    fn write(&self, name: &Hash, content: &[u8], checksum: &Hash) -> std::io::Result<()> {
        let path = self.place(name);
        let folder = path.parent().unwrap_or(&self.dir);
        fs::create_dir_all(folder)?;
        let (temporary, mut file) = temporary(folder, name)?;
        let whole = file.write_all(&entry::head(name, checksum, content.len())).and_then(|()| file.write_all(content));
        whole.and_then(|()| fs::rename(&temporary, &path)).inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }

    /// Deletes what was not used for longest until the folder is well inside its bound.
    pub(super) fn make_room(&self) {
        let (held, deleted) = room::shrink(&self.dir, self.limit);
        let mut state = self.state();
        state.used.deleted += deleted;
        (state.held, state.written) = (held, 0);
    }

    /// Where an entry stands.
    pub(super) fn place(&self, name: &Hash) -> PathBuf {
        let text = hex(name);
        self.dir.join(&text[..2]).join(format!("{}{}", &text[2..], room::ENTRY))
    }

    /// The first thing that went wrong is what people are told.
    fn trouble(&self, what: &str) {
        let used = &mut self.state().used;
        if used.trouble.is_empty() {
            used.trouble = karat_model::Plain(what).to_string();
        }
    }
}

/// Temporary files that this process made, of all its caches.
static TEMPORARIES: AtomicU64 = AtomicU64::new(0);

/// A new file to write the entry `name` to, in its shelf. It is nobody else's: caches of one process count together, and what has the
/// same process id elsewhere (another machine or container, a dead process) has made its file before.
pub(super) fn temporary(shelf: &Path, name: &Hash) -> std::io::Result<(PathBuf, File)> {
    loop {
        let count = TEMPORARIES.fetch_add(1, Ordering::Relaxed);
        let path = shelf.join(format!("{}-{}-{count}{}", &hex(name)[..16], std::process::id(), room::TEMPORARY));
        match File::create_new(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|file| (path, file)),
        }
    }
}
