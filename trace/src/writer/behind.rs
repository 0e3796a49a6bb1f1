//! Writes files while their producer goes on.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use karat_model::Result;

use super::file::write;
use super::pieces::Pieces;
use super::spare::Spare;

/// Makes a file's tensors.
type Make = Box<dyn FnOnce() -> Result<Vec<(String, Pieces)>> + Send>;

/// A file's path, and how its tensors are made.
type File = (PathBuf, Make);

/// A thread that writes one file after the other. One is being written at a time, and the next one is waited for: memory holds
/// no more than that one and what the producer is at, which gets the memory of the file before.
#[derive(Default)]
pub(crate) struct Behind {
    /// Nothing is sent after an error.
    thread: Option<(SyncSender<File>, JoinHandle<Result<()>>)>,
    /// Memory of what is written.
    spare: Spare,
}

impl Behind {
    /// Where the next tensors' memory may come from.
    pub(crate) fn spare(&self) -> &Spare {
        &self.spare
    }

    /// Hands a file over. An error may be that of a file before.
    pub(crate) fn write(&mut self, path: PathBuf, tensors: Vec<(String, Pieces)>) -> Result<()> {
        self.make(path, move || Ok(tensors))
    }

    /// The same where the tensors are made behind their producer as well.
    pub(crate) fn make(
        &mut self,
        path: PathBuf,
        tensors: impl FnOnce() -> Result<Vec<(String, Pieces)>> + Send + 'static,
    ) -> Result<()> {
        // What this file had no use for is not kept beside the memory of the one before it.
        self.spare.empty();
        if self.thread.is_none() {
            let (send, receive) = sync_channel(0);
            let spare = self.spare.clone();
            match std::thread::Builder::new().name("trace-writer".into()).spawn(move || drain(&receive, &spare)) {
                Ok(thread) => self.thread = Some((send, thread)),
                // No thread is to be had: here, then.
                Err(_) => return write(&path, &tensors()?),
            }
        }
        let sent = self.thread.as_ref().is_some_and(|(send, _)| send.send((path, Box::new(tensors))).is_ok());
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
fn drain(files: &Receiver<File>, spare: &Spare) -> Result<()> {
    files.iter().try_for_each(|(path, tensors)| {
        let tensors = tensors()?;
        write(&path, &tensors)?;
        tensors.into_iter().filter_map(|(_, pieces)| pieces.into_tensor()).for_each(|tensor| spare.leave(tensor));
        Ok(())
    })
}
