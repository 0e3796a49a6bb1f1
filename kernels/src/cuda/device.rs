//! One GPU: found without a panic, its memory, launches in a stream, graphs and clocks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, result, sys};
use karat_model::{Error, Result};

use super::ways::{self, Pinned};

/// Least driver API that loads the packs: CUDA 13.0, driver 580.
const LEAST_DRIVER: i32 = 13_000;

/// A GPU that this program can use.
#[derive(Debug)]
pub struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    /// Its number on this host.
    pub ordinal: usize,
    /// As the driver names it.
    pub name: String,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Version of the driver API, 13000 for CUDA 13.0.
    pub driver: i32,
    /// Multiprocessors.
    pub processors: u32,
    /// Memory, bytes.
    pub memory: usize,
    /// Set when memory was asked for that wasn't there.
    full: AtomicBool,
    /// Ways of large copies, once there was one; none where they can't be had.
    ways: OnceLock<Mutex<Vec<Pinned>>>,
    /// The same for copies beside others.
    aside: OnceLock<Mutex<Vec<Pinned>>>,
}

/// Memory on the device, freed with this value.
#[derive(Debug)]
pub struct Buffer {
    at: sys::CUdeviceptr,
    bytes: usize,
    context: Arc<CudaContext>,
}

/// Recorded launches that can be replayed.
#[derive(Debug)]
pub struct Graph {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
}

pub(super) fn failed(what: &str, error: DriverError) -> Error {
    let name = error.error_name().map_or_else(|_| format!("{error:?}"), |n| n.to_string_lossy().into_owned());
    Error::input(format!("{what}: {name}"))
}

/// Version of the driver API, or none if the library is too old to say.
fn driver_version() -> Option<i32> {
    type Ask = unsafe extern "C" fn(*mut i32) -> u32;
    let mut version = 0;
    // SAFETY: the caller has seen the library; the symbol has this type since CUDA 2.
    let done = unsafe {
        let ask = sys::culib().get::<Ask>(b"cuDriverGetVersion\0").ok()?;
        ask(&raw mut version)
    };
    (done == 0).then_some(version)
}

impl Device {
    /// The first GPU.
    ///
    /// # Errors
    /// No driver, too old a driver, no GPU, a chip that no image is built for, or no memory for a context: one message each.
    pub fn open() -> Result<Self> {
        Self::open_at(0)
    }

    /// The first `count` GPUs of this host.
    ///
    /// # Errors
    /// As for [`Device::open`]; or there are fewer.
    pub fn open_all(count: usize) -> Result<Vec<Self>> {
        (0..count).map(Self::open_at).collect()
    }

    /// How many GPUs this host has.
    ///
    /// # Errors
    /// As for [`Device::open`].
    pub fn count() -> Result<usize> {
        Self::driver().map(|(_, count)| count)
    }

    /// Version of the driver, and the GPUs that it sees: at least one.
    fn driver() -> Result<(i32, usize)> {
        // SAFETY: only tries to load a library by name.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::input("no NVIDIA driver: libcuda was not found"));
        }
        let driver = driver_version().ok_or_else(|| Error::input("the NVIDIA driver does not tell its version"))?;
        new_enough(driver)?;
        result::init().map_err(|e| failed("the NVIDIA driver found no GPU to use", e))?;
        let count = CudaContext::device_count().map_err(|e| failed("the NVIDIA driver counts no GPUs", e))?;
        if count == 0 {
            return Err(Error::input("no GPU: the NVIDIA driver is there and sees none"));
        }
        Ok((driver, count as usize))
    }

    fn open_at(ordinal: usize) -> Result<Self> {
        let (driver, count) = Self::driver()?;
        if ordinal >= count {
            return Err(Error::input("there are not as many GPUs").expected(ordinal + 1).found(count));
        }
        let context =
            CudaContext::new(ordinal).map_err(|e| failed("the GPU gives no context (its memory may be full)", e))?;
        let capability = context.compute_capability().map_err(|e| failed("the GPU does not say what it is", e))?;
        let name = context.name().unwrap_or_else(|_| "an unnamed GPU".to_string());
        known(&name, capability)?;
        let number = context.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        let processors = number.map_err(|e| failed("the GPU does not say what it is", e))? as u32;
        let memory = context.total_mem().unwrap_or(0);
        let stream = context.new_stream().map_err(|e| failed("the GPU gives no stream", e))?;
        let full = AtomicBool::new(false);
        let (ways, aside) = (OnceLock::new(), OnceLock::new());
        Ok(Self { context, stream, ordinal, name, capability, driver, processors, memory, full, ways, aside })
    }

    /// One line on it.
    pub fn describe(&self) -> String {
        let (major, minor) = self.capability;
        let gib = self.memory as f64 / f64::from(1 << 30);
        let driver = format!("CUDA {}.{}", self.driver / 1000, self.driver % 1000 / 10);
        format!("{}, compute capability {major}.{minor}, {gib:.0} GiB, driver for {driver}", self.name)
    }

    /// True once it was asked for more memory than it had.
    pub fn was_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// The chip's name in packs.
    pub fn arch(&self) -> &'static str {
        arch_of(self.capability).unwrap_or("unknown")
    }

    /// Memory whose bytes are all `fill`.
    ///
    /// # Errors
    /// There isn't that much.
    pub fn alloc(&self, bytes: usize, fill: u8) -> Result<Buffer> {
        self.bind()?;
        // SAFETY: the context is current; the memory is owned by the buffer and set before anybody sees it.
        let at = unsafe { result::malloc_sync(bytes.max(16)) }.map_err(|e| {
            self.full.fetch_or(e.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY, Ordering::Relaxed);
            let free = result::mem_get_info().map_or(0, |(free, _)| free);
            let wanted = format!("{} MiB", bytes.div_ceil(1 << 20));
            failed("the GPU's memory is full", e).expected(wanted).found(format!("{} MiB free", free >> 20))
        })?;
        let buffer = Buffer { at, bytes, context: self.context.clone() };
        // SAFETY: as long as was just allocated.
        unsafe { result::memset_d8_sync(at, fill, bytes) }.map_err(|e| failed("the GPU's memory cannot be set", e))?;
        self.settle()?;
        Ok(buffer)
    }

    /// Memory with these values.
    ///
    /// # Errors
    /// As for `alloc`.
    pub fn upload<T: Plain>(&self, values: &[T]) -> Result<Buffer> {
        let buffer = self.alloc(size_of_val(values), 0)?;
        // SAFETY: the buffer is exactly as long as the values.
        unsafe { result::memcpy_htod_sync(buffer.at, values) }.map_err(|e| failed("copying to the GPU failed", e))?;
        self.settle()?;
        Ok(buffer)
    }

    /// The values of a buffer, after everything in the stream is done.
    ///
    /// # Errors
    /// A kernel before it failed.
    pub fn download<T: Plain>(&self, buffer: &Buffer) -> Result<Vec<T>> {
        self.wait()?;
        let mut out = vec![T::default(); buffer.bytes / size_of::<T>()];
        // SAFETY: no more than the buffer holds; T is a plain number, of which any bits are a value.
        unsafe { result::memcpy_dtoh_sync(&mut out, buffer.at) }
            .map_err(|e| failed("copying from the GPU failed", e))?;
        Ok(out)
    }

    /// Copies values into a buffer, `offset` bytes from its start. No kernel may use the buffer at the time; those that come
    /// later wait for `settle`.
    pub(crate) fn write<T: Plain>(&self, buffer: &Buffer, offset: usize, values: &[T]) -> Result<()> {
        let at = buffer.need("written to", offset + size_of_val(values))? + offset as u64;
        if values.is_empty() {
            return Ok(());
        }
        self.bind()?;
        if size_of_val(values) >= ways::LARGE {
            let mut ways = self.ways();
            if !ways.is_empty() {
                // SAFETY: plain numbers are bytes, and the buffer is long enough, as just checked.
                return unsafe {
                    let bytes = std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values));
                    ways::send(&mut ways, bytes, at)
                };
            }
        }
        // SAFETY: the buffer is long enough, as just checked.
        unsafe { result::memcpy_htod_sync(at, values) }.map_err(|e| failed("copying to the GPU failed", e))
    }

    /// Fills `out` from a buffer, `offset` bytes from its start, after everything in the stream is done.
    pub(crate) fn read<T: Plain>(&self, buffer: &Buffer, offset: usize, out: &mut [T]) -> Result<()> {
        let at = buffer.need("read from", offset + size_of_val(out))? + offset as u64;
        self.wait()?;
        if out.is_empty() {
            return Ok(());
        }
        if size_of_val(out) >= ways::LARGE {
            let mut ways = self.ways();
            if !ways.is_empty() {
                // SAFETY: as below; plain numbers are bytes.
                return unsafe {
                    let bytes = std::slice::from_raw_parts_mut(out.as_mut_ptr().cast(), size_of_val(out));
                    ways::fetch(&mut ways, at, bytes)
                };
            }
        }
        // SAFETY: the buffer is long enough, as just checked; T is a plain number, of which any bits are a value.
        unsafe { result::memcpy_dtoh_sync(out, at) }.map_err(|e| failed("copying from the GPU failed", e))
    }

    /// Fills `out` from the start of a buffer, after everything in the stream is done, by a way of its own: copies of other threads
    /// neither wait for this one nor it for them.
    pub(crate) fn read_aside<T: Plain>(&self, buffer: &Buffer, out: &mut [T]) -> Result<()> {
        let at = buffer.need("read from", size_of_val(out))?;
        self.wait()?;
        let made = self.aside.get_or_init(|| Mutex::new(Pinned::new(&self.context).into_iter().collect()));
        let mut way = made.lock().unwrap_or_else(PoisonError::into_inner);
        if out.is_empty() || way.is_empty() {
            drop(way);
            return self.read(buffer, 0, out);
        }
        // SAFETY: the buffer is long enough, as just checked; plain numbers are bytes, of which any are a value.
        unsafe {
            let bytes = std::slice::from_raw_parts_mut(out.as_mut_ptr().cast(), size_of_val(out));
            ways::fetch(&mut way, at, bytes)
        }
    }

    /// The ways of large copies. Without them (no memory that the device reaches) the driver copies.
    fn ways(&self) -> MutexGuard<'_, Vec<Pinned>> {
        let made = self.ways.get_or_init(|| Mutex::new(Pinned::ways(&self.context).unwrap_or_default()));
        made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets every byte of a buffer.
    ///
    /// # Errors
    /// A kernel before it failed.
    pub fn fill(&self, buffer: &Buffer, fill: u8) -> Result<()> {
        self.wait()?;
        // SAFETY: as long as was allocated.
        unsafe { result::memset_d8_sync(buffer.at, fill, buffer.bytes) }
            .map_err(|e| failed("the GPU's memory cannot be set", e))?;
        self.settle()
    }

    /// Waits for what the driver does in its own stream: ours doesn't wait for that one.
    pub(crate) fn settle(&self) -> Result<()> {
        self.bind()?;
        self.context.synchronize().map_err(|e| failed("the GPU failed", e))
    }

    /// Waits for the stream.
    ///
    /// # Errors
    /// A kernel failed.
    pub fn wait(&self) -> Result<()> {
        self.bind()?;
        self.stream.synchronize().map_err(|e| failed("a kernel failed on the GPU", e))
    }

    /// Queues one kernel whose only parameter is the struct `args`.
    ///
    /// # Safety
    /// `args` has the layout of the kernel's parameter, and every pointer in it leads to as much memory as the kernel touches
    /// for these sizes, alive until the stream is done.
    pub(crate) unsafe fn launch<A: Copy>(&self, function: &CudaFunction, config: LaunchConfig, args: A) -> Result<()> {
        // SAFETY: what the caller promises.
        unsafe { self.start(function, config, args, false) }
    }

    /// The same; with `over` for a kernel that itself waits for the one before it (`griddepcontrol.wait`): its launch overlaps
    /// that one.
    ///
    /// # Safety
    /// As for `launch`; with `over` every thread of the kernel waits before it touches what the kernel before it writes, before
    /// it writes anything, and before it ends.
    pub(super) unsafe fn start<A: Copy>(
        &self,
        function: &CudaFunction,
        config: LaunchConfig,
        args: A,
        over: bool,
    ) -> Result<()> {
        self.bind()?;
        let mut args = args;
        let mut params = [(&raw mut args).cast()];
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let (grid, block) = (config.grid_dim, config.block_dim);
        let config = sys::CUlaunchConfig {
            gridDimX: grid.0,
            gridDimY: grid.1,
            gridDimZ: grid.2,
            blockDimX: block.0,
            blockDimY: block.1,
            blockDimZ: block.2,
            sharedMemBytes: config.shared_mem_bytes,
            hStream: self.stream.cu_stream(),
            attrs: &raw mut attribute,
            numAttrs: u32::from(over),
        };
        // SAFETY: what the caller promises; the driver copies parameter and configuration before it returns.
        let done = unsafe {
            sys::cuLaunchKernelEx(&raw const config, function.cu_function(), params.as_mut_ptr(), std::ptr::null_mut())
        };
        done.result().map_err(|e| failed("a kernel cannot be launched", e))
    }

    /// Records what `body` queues, without running it.
    ///
    /// # Errors
    /// `body`'s own, or the driver's.
    pub fn record(&self, body: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let failed = |e| failed("the GPU cannot record a graph", e);
        self.bind()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is ours alone and not recording.
        unsafe { result::stream::begin_capture(self.stream.cu_stream(), mode) }.map_err(failed)?;
        let done = body();
        // SAFETY: recording began above, also where the body failed.
        let graph = unsafe { result::stream::end_capture(self.stream.cu_stream()) }.map_err(failed);
        done?;
        let graph = graph?;
        // SAFETY: a whole graph, just recorded.
        let exec = unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) }.map_err(failed)?;
        Ok(Graph { graph, exec })
    }

    /// Milliseconds of each of `repeats` replays, by the device's clock, after one that isn't counted.
    ///
    /// # Errors
    /// A kernel failed.
    pub fn time(&self, graph: &Graph, repeats: usize) -> Result<Vec<f64>> {
        let failed = |e| failed("the GPU cannot time a graph", e);
        self.bind()?;
        let stream = self.stream.cu_stream();
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
        let events = [result::event::create(flags).map_err(failed)?, result::event::create(flags).map_err(failed)?];
        let mut out = Vec::new();
        for i in 0..=repeats {
            // SAFETY: graph, stream and events are alive until after the wait.
            let ms = unsafe {
                result::event::record(events[0], stream).map_err(failed)?;
                result::graph::launch(graph.exec, stream).map_err(failed)?;
                result::event::record(events[1], stream).map_err(failed)?;
                result::stream::synchronize(stream).map_err(failed)?;
                result::event::elapsed(events[0], events[1]).map_err(failed)?
            };
            if i > 0 {
                out.push(f64::from(ms));
            }
        }
        for event in events {
            // SAFETY: created above, used no more.
            unsafe { result::event::destroy(event) }.map_err(failed)?;
        }
        Ok(out)
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    pub(super) fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    fn bind(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(|e| failed("the GPU's context is lost", e))
    }
}

/// An error for a driver that cannot load the packs.
fn new_enough(driver: i32) -> Result<()> {
    if driver >= LEAST_DRIVER {
        return Ok(());
    }
    let found = format!("CUDA {}.{}", driver / 1000, driver % 1000 / 10);
    let error = Error::input(format!("the NVIDIA driver is too old: it offers {found}, CUDA 13.0 is needed"));
    Err(error.hint("driver 580 or newer"))
}

/// An error for a chip that no image is built for.
fn known(name: &str, capability: (i32, i32)) -> Result<()> {
    if arch_of(capability).is_some() {
        return Ok(());
    }
    let what = format!("{name} is of compute capability {}.{}", capability.0, capability.1);
    Err(Error::input(format!("{what}: kernels are built for 9.0 and 12.0 only")))
}

fn arch_of(capability: (i32, i32)) -> Option<&'static str> {
    match capability {
        (9, 0) => Some("sm_90a"),
        (12, 0) => Some("sm_120a"),
        _ => None,
    }
}

/// Numbers whose bytes can travel.
pub trait Plain: Copy + Default + private::Number {}

impl<T: Copy + Default + private::Number> Plain for T {}

mod private {
    /// Sealed: any bits of it are a value.
    pub trait Number {}
    impl Number for u8 {}
    impl Number for u16 {}
    impl Number for i32 {}
    impl Number for u32 {}
    impl Number for f32 {}
}

impl Buffer {
    /// Its address on the device.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Its length, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// An error unless it holds at least this many bytes.
    pub(super) fn need(&self, what: &str, bytes: usize) -> Result<u64> {
        if self.bytes < bytes {
            let error = Error::input(format!("the GPU buffer `{what}` is too short"));
            return Err(error.expected(format!("{bytes} bytes")).found(format!("{} bytes", self.bytes)));
        }
        Ok(self.at())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // A failure here has been told by an earlier call: a broken context frees nothing.
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `alloc`, freed once; freeing waits for kernels that use it.
            let _ = unsafe { result::free_sync(self.at) };
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `record`, destroyed once; a failure has been told by an earlier call.
        unsafe {
            let _ = result::graph::exec_destroy(self.exec);
            let _ = result::graph::destroy(self.graph);
        }
    }
}

#[cfg(test)]
mod tests;
