//! Large copies between this processor's memory and a device: several ways side by side, each a thread with two buffers that the
//! device reaches itself, one of which travels while the other is filled or emptied. The driver's own copy of memory that any
//! program has does one after the other, on one thread.

use std::fmt::Debug;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};
use karat_model::Result;

use super::device::failed;

/// Bytes of a buffer.
const CHUNK: usize = 4 << 20;
/// Bytes from which on a copy takes several ways; below, their threads cost more than they bring.
pub(super) const LARGE: usize = 4 << 20;
/// Least bytes of a way.
const SHARE: usize = 1 << 20;
/// Most ways.
const MOST: usize = 8;

/// One way: two buffers of [`CHUNK`] bytes and a queue of copies.
pub(super) trait Way: Debug + Send {
    /// Buffer 0 or 1, of which nothing travels.
    fn buffer(&mut self, i: usize) -> &mut [u8];
    /// Begins to copy the first bytes of a buffer to an address of the device.
    ///
    /// # Safety
    /// So many bytes may be written there, which nobody else touches until `wait`.
    unsafe fn send(&mut self, i: usize, bytes: usize, to: u64) -> Result<()>;
    /// Begins to copy bytes from an address of the device to a buffer.
    ///
    /// # Safety
    /// So many bytes can be read there, which nobody changes until `wait`.
    unsafe fn fetch(&mut self, i: usize, bytes: usize, from: u64) -> Result<()>;
    /// Waits until nothing of a buffer travels.
    fn wait(&mut self, i: usize) -> Result<()>;
}

/// Copies to the device. Returns when all of it is there.
///
/// # Safety
/// As many bytes may be written at `to`, which nobody else touches meanwhile.
pub(super) unsafe fn send<W: Way>(ways: &mut [W], from: &[u8], to: u64) -> Result<()> {
    let share = share(ways.len(), from.len());
    side_by_side(ways.iter_mut().zip(from.chunks(share)).enumerate(), |(w, (way, part))| {
        for (j, chunk) in part.chunks(CHUNK).enumerate() {
            if j >= 2 {
                way.wait(j % 2)?;
            }
            way.buffer(j % 2)[..chunk.len()].copy_from_slice(chunk);
            // SAFETY: a part of what the caller promises.
            unsafe { way.send(j % 2, chunk.len(), to + (w * share + j * CHUNK) as u64) }?;
        }
        way.wait(0)?;
        way.wait(1)
    })
}

/// Copies from the device. Returns when all of it is here.
///
/// # Safety
/// As many bytes can be read at `from`, which nobody changes meanwhile.
pub(super) unsafe fn fetch<W: Way>(ways: &mut [W], from: u64, to: &mut [u8]) -> Result<()> {
    let share = share(ways.len(), to.len());
    side_by_side(ways.iter_mut().zip(to.chunks_mut(share)).enumerate(), |(w, (way, part))| {
        let all = part.len();
        let start = |way: &mut W, j: usize| {
            let bytes = all.saturating_sub(j * CHUNK).min(CHUNK);
            // SAFETY: a part of what the caller promises.
            if bytes > 0 { unsafe { way.fetch(j % 2, bytes, from + (w * share + j * CHUNK) as u64) } } else { Ok(()) }
        };
        start(way, 0)?;
        start(way, 1)?;
        for (j, chunk) in part.chunks_mut(CHUNK).enumerate() {
            way.wait(j % 2)?;
            chunk.copy_from_slice(&way.buffer(j % 2)[..chunk.len()]);
            start(way, j + 2)?;
        }
        Ok(())
    })
}

/// Bytes of a way of so many.
fn share(ways: usize, bytes: usize) -> usize {
    bytes.div_ceil(ways.max(1)).next_multiple_of(4096).max(SHARE)
}

/// Runs all of them, the first on this thread. The error is that of the first that has one.
fn side_by_side<T: Send>(tasks: impl Iterator<Item = T>, run: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
    let (run, mut tasks) = (&run, tasks);
    let Some(first) = tasks.next() else { return Ok(()) };
    std::thread::scope(|scope| {
        let others: Vec<_> = tasks.map(|task| scope.spawn(move || run(task))).collect();
        let mut done = run(first);
        for other in others {
            // A panic there goes on here.
            let ended = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done = done.and(ended);
        }
        done
    })
}

/// A way of a GPU.
#[derive(Debug)]
pub(super) struct Pinned {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    buffers: [*mut u8; 2],
    events: [sys::CUevent; 2],
}

// SAFETY: buffers and events are this value's alone, and the driver takes them from any thread.
unsafe impl Send for Pinned {}

impl Pinned {
    /// As many as this processor has use for.
    pub(super) fn ways(context: &Arc<CudaContext>) -> Result<Vec<Self>> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        (0..(cores / 2).clamp(1, MOST)).map(|_| Self::new(context)).collect()
    }

    /// One.
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self> {
        let failed = |e: DriverError| failed("the GPU gives no memory for copies", e);
        context.bind_to_thread().map_err(failed)?;
        let stream = context.new_stream().map_err(failed)?;
        // Null until made: what there is is given back whatever fails.
        let (buffers, events) = ([std::ptr::null_mut(); 2], [std::ptr::null_mut(); 2]);
        let mut it = Self { context: context.clone(), stream, buffers, events };
        for (buffer, event) in it.buffers.iter_mut().zip(&mut it.events) {
            *event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map_err(failed)?;
            // SAFETY: the context is current; the memory is owned by this value and set before anybody sees it.
            unsafe {
                *buffer = result::malloc_host(CHUNK, 0).map_err(failed)?.cast();
                buffer.write_bytes(0, CHUNK);
            }
        }
        Ok(it)
    }
}

impl Way for Pinned {
    fn buffer(&mut self, i: usize) -> &mut [u8] {
        // SAFETY: CHUNK bytes that were set, of which nothing travels.
        unsafe { std::slice::from_raw_parts_mut(self.buffers[i], CHUNK) }
    }

    unsafe fn send(&mut self, i: usize, bytes: usize, to: u64) -> Result<()> {
        let failed = |e| failed("copying to the GPU failed", e);
        self.context.bind_to_thread().map_err(failed)?;
        let (stream, event) = (self.stream.cu_stream(), self.events[i]);
        let from = &self.buffer(i)[..bytes];
        // SAFETY: what the caller promises; the buffer stays as it is until `wait`.
        unsafe {
            result::memcpy_htod_async(to, from, stream).map_err(failed)?;
            result::event::record(event, stream).map_err(failed)
        }
    }

    unsafe fn fetch(&mut self, i: usize, bytes: usize, from: u64) -> Result<()> {
        let failed = |e| failed("copying from the GPU failed", e);
        self.context.bind_to_thread().map_err(failed)?;
        let (stream, event) = (self.stream.cu_stream(), self.events[i]);
        let to = &mut self.buffer(i)[..bytes];
        // SAFETY: what the caller promises; nobody looks at the buffer until `wait`.
        unsafe {
            result::memcpy_dtoh_async(to, from, stream).map_err(failed)?;
            result::event::record(event, stream).map_err(failed)
        }
    }

    fn wait(&mut self, i: usize) -> Result<()> {
        let failed = |e| failed("copying to or from the GPU failed", e);
        self.context.bind_to_thread().map_err(failed)?;
        // SAFETY: made by `new`, destroyed with this value. One that was never recorded has happened.
        unsafe { result::event::synchronize(self.events[i]) }.map_err(failed)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A failure here has been told by an earlier call: a broken context frees nothing. What travels is waited for.
        if self.context.bind_to_thread().is_err() || self.stream.synchronize().is_err() {
            return;
        }
        for (buffer, event) in self.buffers.iter().zip(&self.events) {
            // SAFETY: made by `new` where they are not null, given back once.
            unsafe {
                if !buffer.is_null() {
                    let _ = result::free_host(buffer.cast());
                }
                if !event.is_null() {
                    let _ = result::event::destroy(*event);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
