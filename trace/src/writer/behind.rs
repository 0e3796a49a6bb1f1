//! Writes files while their producer goes on.

use std::fs::File as Open;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use karat_model::Result;
use karat_seam::Tensor;

use super::file::write;
use super::io;
use super::pieces::Pieces;
use super::spare::Spare;

/// Writes a file: it, still open, and tensors whose memory goes on.
type Make = Box<dyn FnOnce(&Path) -> Result<(Open, Vec<Tensor>)> + Send>;

/// A file's path, and how it is written.
type File = (PathBuf, Make);

/// A thread that writes one file after the other. One is being written at a time, and the next one is waited for: memory holds
/// no more than that one and what the producer is at, which gets the memory of the file before.
#[derive(Default)]
pub(crate) struct Behind {
    /// Nothing is sent after an error.
    thread: Option<(SyncSender<File>, JoinHandle<Result<()>>)>,
    /// Memory of what is written.
    spare: Spare,
    /// Whether files go to the disk, not only to the system.
    is_synced: bool,
}

impl Behind {
    /// Has every file that comes after this on the disk when [`Behind::finish`] returns. A file is synced while the next ones are
    /// made and written, by a thread of its own: the disk is at work all the time, and holds only the last file up.
    pub(crate) fn sync(&mut self) {
        self.is_synced = true;
    }

    /// Where the next tensors' memory may come from.
    pub(crate) fn spare(&self) -> &Spare {
        &self.spare
    }

    /// Hands a file over. An error may be that of a file before.
    pub(crate) fn write(&mut self, path: PathBuf, tensors: Vec<(String, Pieces)>) -> Result<()> {
        self.make(path, move |path| {
            let file = write(path, &tensors)?;
            Ok((file, tensors.into_iter().filter_map(|(_, pieces)| pieces.into_tensor()).collect()))
        })
    }

    /// The same where what is written is made behind its producer as well.
    pub(crate) fn make(
        &mut self,
        path: PathBuf,
        make: impl FnOnce(&Path) -> Result<(Open, Vec<Tensor>)> + Send + 'static,
    ) -> Result<()> {
        self.spare.age();
        if self.thread.is_none() {
            let (send, receive) = sync_channel(0);
            let (spare, is_synced) = (self.spare.clone(), self.is_synced);
            let thread = std::thread::Builder::new().name("trace-writer".into());
            match thread.spawn(move || drain(&receive, &spare, is_synced)) {
                Ok(thread) => self.thread = Some((send, thread)),
                // No thread is to be had: here, then.
                Err(_) => {
                    let (file, _) = make(&path)?;
                    return if is_synced { sync(&path, &file) } else { Ok(()) };
                }
            }
        }
        let sent = self.thread.as_ref().is_some_and(|(send, _)| send.send((path, Box::new(make))).is_ok());
        if sent { Ok(()) } else { self.finish() }
    }

    /// Waits until all is written.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let Some((send, thread)) = self.thread.take() else { return Ok(()) };
        drop(send);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        let Some((send, thread)) = self.thread.take() else { return };
        drop(send);
        // Who drops it unfinished has an error of its own, and removes the folder when this is over.
        let _ = thread.join();
    }
}

/// The thread: ends with the first error, or when nothing can come any more.
fn drain(files: &Receiver<File>, spare: &Spare, is_synced: bool) -> Result<()> {
    let mut disk = is_synced.then(Disk::start).flatten();
    let written = files.iter().try_for_each(|(path, make)| {
        let (file, tensors) = make(&path)?;
        tensors.into_iter().for_each(|tensor| spare.leave(tensor));
        if !is_synced {
            return Ok(());
        }
        match disk.take() {
            None => sync(&path, &file),
            // It ended, which only an error makes it do.
            Some(started) if started.send.send((path, file)).is_err() => started.finish(),
            Some(started) => {
                disk = Some(started);
                Ok(())
            }
        }
    });
    // An error of the disk is the earlier file's.
    disk.map_or(Ok(()), Disk::finish).and(written)
}

/// A thread that syncs one file after the other. What waits for it are open files, whose bytes the system holds.
struct Disk {
    send: Sender<(PathBuf, Open)>,
    thread: JoinHandle<Result<()>>,
}

impl Disk {
    /// `None` where no thread is to be had.
    fn start() -> Option<Self> {
        let (send, receive) = channel::<(PathBuf, Open)>();
        let all = move || receive.iter().try_for_each(|(path, file)| sync(&path, &file));
        let thread = std::thread::Builder::new().name("trace-disk".into()).spawn(all).ok()?;
        Some(Self { send, thread })
    }

    fn finish(self) -> Result<()> {
        drop(self.send);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Waits until the disk has a file, its length included.
fn sync(path: &Path, file: &Open) -> Result<()> {
    file.sync_data().map_err(|e| io("trace file can't be brought to the disk", path, &e))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    /// A pipe has no disk to go to: the error names its file, no later one hides it, and who sends more is told.
    #[test]
    fn the_first_error_of_the_disk_is_told() {
        let disk = Disk::start().unwrap();
        let (_reader, pipe) = std::io::pipe().unwrap();
        disk.send.send(("first".into(), OwnedFd::from(pipe).into())).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| (dir.path().join(name), Open::create_new(dir.path().join(name)).unwrap());
        for i in 0.. {
            if disk.send.send(file(&i.to_string())).is_err() {
                break;
            }
            std::thread::yield_now();
        }
        let told = disk.finish().unwrap_err().to_string();
        assert!(told.contains("first") && told.contains("brought to the disk"), "{told}");
    }

    /// The folder is gone: an error with the path, synced or not.
    #[test]
    fn a_file_that_cannot_be_written_is_told() {
        for synced in [false, true] {
            let mut behind = Behind::default();
            if synced {
                behind.sync();
            }
            let dir = tempfile::tempdir().unwrap();
            let write = |behind: &mut Behind, name: &str| behind.write(dir.path().join(name), Vec::new());
            write(&mut behind, "good").unwrap();
            write(&mut behind, "no/such").unwrap();
            let told = write(&mut behind, "later").and_then(|()| behind.finish()).unwrap_err().to_string();
            assert!(told.contains("no/such"), "{told}");
        }
    }
}
