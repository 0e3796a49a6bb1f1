//! NCCL: values that travel between the GPUs of one host. The library is loaded when first used, as the driver is; one process
//! holds all ranks, rank i on GPU i.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use karat_model::{Error, Result};
use karat_seam::AllReduce;
use libloading::Library;

use super::{Buffer, Device};

/// `ncclComm_t`.
type Comm = *mut c_void;
/// `ncclDataType_t`.
const F32: c_int = 7;
const BF16: c_int = 9;
/// `ncclRedOp_t`.
const SUM: c_int = 0;

type Collective = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Comm, *mut c_void) -> c_int;
type Reduction = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void) -> c_int;

/// The functions that are used, from `nccl.h`; they have been the same since NCCL 2.0.
struct Calls {
    init_all: unsafe extern "C" fn(*mut Comm, c_int, *const c_int) -> c_int,
    destroy: unsafe extern "C" fn(Comm) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    all_gather: Collective,
    all_reduce: Reduction,
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    /// Keeps the functions where they are.
    library: Library,
}

/// What NCCL carries between GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// f32, four bytes.
    F32,
    /// bf16, two bytes.
    Bf16,
}

/// A communicator over several GPUs.
pub struct Nccl {
    calls: Calls,
    comms: Vec<Comm>,
    devices: Vec<Arc<Device>>,
    /// As NCCL says itself, `2.27.5`.
    pub version: String,
    /// One collective at a time: NCCL's groups are of a thread, the order of operations of all ranks.
    one: Mutex<()>,
}

// SAFETY: a communicator may be used from any thread, by one at a time; `one` sees to that.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

impl std::fmt::Debug for Nccl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nccl").field("version", &self.version).field("ranks", &self.comms.len()).finish_non_exhaustive()
    }
}

/// Where the library may be: as named, under a root of wheels, or where the system keeps libraries.
fn places(root: Option<&Path>) -> Vec<PathBuf> {
    let wheels = root.map(|root| root.join("nvidia/nccl/lib/libnccl.so.2"));
    wheels.into_iter().chain(["libnccl.so.2".into(), "libnccl.so".into()]).collect()
}

impl Calls {
    fn load(root: Option<&Path>) -> Result<Self> {
        let missing = || {
            Error::input("NCCL was not found: no libnccl.so.2").hint(
                "install it, put its folder into LD_LIBRARY_PATH, or set KARAT_CUDA_ROOT to the folder of its wheel",
            )
        };
        // SAFETY: NVIDIA's library; loading it runs its own initialisers only.
        let library = places(root).iter().find_map(|p| unsafe { Library::new(p) }.ok()).ok_or_else(missing)?;
        macro_rules! take {
            ($name:literal) => {
                // SAFETY: the type is that of nccl.h.
                *unsafe { library.get($name) }.map_err(|e| Error::input(format!("NCCL lacks a function: {e}")))?
            };
        }
        Ok(Self {
            init_all: take!(b"ncclCommInitAll\0"),
            destroy: take!(b"ncclCommDestroy\0"),
            group_start: take!(b"ncclGroupStart\0"),
            group_end: take!(b"ncclGroupEnd\0"),
            all_gather: take!(b"ncclAllGather\0"),
            all_reduce: take!(b"ncclAllReduce\0"),
            error: take!(b"ncclGetErrorString\0"),
            library,
        })
    }

    fn version(&self) -> Result<String> {
        // SAFETY: the type is that of nccl.h.
        let ask: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_int) -> c_int> =
            unsafe { self.library.get(b"ncclGetVersion\0") }
                .map_err(|e| Error::input(format!("NCCL lacks a function: {e}")))?;
        let mut code = 0;
        // SAFETY: the pointer is valid for the call.
        self.done("NCCL does not tell its version", unsafe { ask(&raw mut code) })?;
        Ok(format!("{}.{}.{}", code / 10_000, code % 10_000 / 100, code % 100))
    }

    fn done(&self, what: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: NCCL gives a text of its own for every code, which is never freed.
        let text = unsafe { CStr::from_ptr((self.error)(code)) };
        Err(Error::input(format!("{what}: {}", text.to_string_lossy())))
    }
}

/// The version of the NCCL that would be used, where there is one.
///
/// # Errors
/// There is none, or it is no NCCL.
pub fn nccl_version(root: Option<&Path>) -> Result<String> {
    Calls::load(root)?.version()
}

impl Nccl {
    /// A communicator over these devices, which are all of one host; device i is rank i. `root`: a folder of wheels.
    ///
    /// # Errors
    /// There is no NCCL, or it can't connect the devices.
    pub fn new(devices: Vec<Arc<Device>>, root: Option<&Path>) -> Result<Self> {
        let calls = Calls::load(root)?;
        let version = calls.version()?;
        let ordinals: Vec<c_int> = devices.iter().map(|d| d.ordinal as c_int).collect();
        let mut comms: Vec<Comm> = vec![std::ptr::null_mut(); devices.len()];
        // SAFETY: both arrays are as long as is said.
        let code = unsafe { (calls.init_all)(comms.as_mut_ptr(), ordinals.len() as c_int, ordinals.as_ptr()) };
        calls.done("NCCL cannot connect the GPUs", code)?;
        Ok(Self { calls, comms, devices, version, one: Mutex::default() })
    }

    /// The devices, rank by rank.
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// Runs `each(rank)` of all ranks as one operation and waits for it.
    fn together(&self, what: &str, each: impl Fn(usize) -> c_int) -> Result<()> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: ended below, whatever happens between.
        self.calls.done(what, unsafe { (self.calls.group_start)() })?;
        let codes: Vec<c_int> = (0..self.comms.len()).map(each).collect();
        // SAFETY: begun above.
        let ended = unsafe { (self.calls.group_end)() };
        codes.into_iter().try_for_each(|code| self.calls.done(what, code))?;
        self.calls.done(what, ended)?;
        self.devices.iter().try_for_each(|device| device.wait())
    }

    fn stream(&self, rank: usize) -> *mut c_void {
        self.devices[rank].stream().cu_stream().cast()
    }

    /// Adds the ranks' buffers, `count` values each, into every rank's buffer of `out`.
    ///
    /// # Errors
    /// A buffer is too short, or NCCL failed.
    pub fn all_reduce(&self, sums: &[Buffer], out: &[Buffer], count: usize, wire: Wire) -> Result<()> {
        let (kind, size) = if wire == Wire::F32 { (F32, 4) } else { (BF16, 2) };
        self.fit("all-reduce", &[sums, out], count * size)?;
        self.together("NCCL's all-reduce failed", |rank| {
            let (from, to) = (sums[rank].at() as *const c_void, out[rank].at() as *mut c_void);
            // SAFETY: both buffers hold `count` values and lie on the rank's device; all work on them is awaited before
            // this returns.
            unsafe { (self.calls.all_reduce)(from, to, count, kind, SUM, self.comms[rank], self.stream(rank)) }
        })
    }

    /// Copies the ranks' buffers, `count` f32 each, one after the other into every rank's buffer of `out`.
    ///
    /// # Errors
    /// A buffer is too short, or NCCL failed.
    pub fn all_gather(&self, shares: &[Buffer], out: &[Buffer], count: usize) -> Result<()> {
        self.fit("all-gather", &[shares], count * 4)?;
        self.fit("all-gather", &[out], count * 4 * self.comms.len())?;
        self.together("NCCL's all-gather failed", |rank| {
            let (from, to) = (shares[rank].at() as *const c_void, out[rank].at() as *mut c_void);
            // SAFETY: as above; `to` holds `count` values of every rank.
            unsafe { (self.calls.all_gather)(from, to, count, F32, self.comms[rank], self.stream(rank)) }
        })
    }

    fn fit(&self, what: &str, all: &[&[Buffer]], bytes: usize) -> Result<()> {
        for buffers in all {
            if buffers.len() != self.comms.len() {
                return Err(Error::input(format!("{what}: {} buffers for {} ranks", buffers.len(), self.comms.len())));
            }
            buffers.iter().try_for_each(|buffer| buffer.need(what, bytes).map(drop))?;
        }
        Ok(())
    }

    /// Sums as NCCL made them, one a rank; partial sums `[ranks][n]`, in the format of the wire.
    ///
    /// # Errors
    /// The partial sums have different lengths, or a device failed.
    pub fn reduced(&self, sums: &[Vec<f32>], wire: Wire) -> Result<Vec<Vec<f32>>> {
        let n = sums.first().map_or(0, Vec::len);
        if sums.len() != self.comms.len() || sums.iter().any(|s| s.len() != n) {
            return Err(Error::input("partial sums do not fit the ranks").found(format!("{} of them", sums.len())));
        }
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for (device, sum) in self.devices.iter().zip(sums) {
            match wire {
                Wire::F32 => from.push(device.upload(sum)?),
                Wire::Bf16 => from.push(device.upload(&narrow(sum))?),
            }
            // Poison: a value that is not written is a NaN.
            to.push(device.alloc(n * if wire == Wire::F32 { 4 } else { 2 }, 0xff)?);
        }
        self.all_reduce(&from, &to, n, wire)?;
        let ranks = self.devices.iter().zip(&to);
        ranks
            .map(|(device, buffer)| match wire {
                Wire::F32 => device.download(buffer),
                Wire::Bf16 => Ok(widen(&device.download::<u16>(buffer)?)),
            })
            .collect()
    }

    /// What each rank holds, brought to every rank, and read from rank 0: shares of any lengths.
    ///
    /// # Errors
    /// A device failed.
    pub fn gathered(&self, shares: &[Vec<f32>]) -> Result<Vec<Vec<f32>>> {
        let most = shares.iter().map(Vec::len).max().unwrap_or(0);
        if most == 0 || shares.len() != self.comms.len() {
            return Ok(shares.to_vec());
        }
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for (device, share) in self.devices.iter().zip(shares) {
            let buffer = device.alloc(most * 4, 0xff)?;
            device.write(&buffer, 0, share)?;
            device.settle()?;
            from.push(buffer);
            to.push(device.alloc(most * 4 * self.comms.len(), 0xff)?);
        }
        self.all_gather(&from, &to, most)?;
        let all: Vec<f32> = self.devices[0].download(&to[0])?;
        Ok(all.chunks_exact(most).zip(shares).map(|(all, share)| all[..share.len()].to_vec()).collect())
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        for comm in self.comms.drain(..) {
            // SAFETY: made by `new`, destroyed once, with nothing queued: every operation is awaited. A failure has been
            // told by an earlier call.
            let _ = unsafe { (self.calls.destroy)(comm) };
        }
    }
}

impl AllReduce for Nccl {
    fn name(&self) -> String {
        format!("NCCL {} over {} GPUs", self.version, self.comms.len())
    }

    fn ranks(&self) -> usize {
        self.comms.len()
    }

    fn all_reduce(&self, sums: &[Vec<f32>], is_bf16: bool) -> karat_seam::Result<Vec<f32>> {
        let wire = if is_bf16 { Wire::Bf16 } else { Wire::F32 };
        let mut ranks = self.reduced(sums, wire).map_err(karat_seam::Error::source)?.into_iter();
        let first = ranks.next().unwrap_or_default();
        let same = |other: &Vec<f32>| first.iter().zip(other).all(|(a, b)| a.to_bits() == b.to_bits());
        match ranks.position(|other| !same(&other)) {
            None => Ok(first),
            Some(i) => Err(karat_seam::Error::source(
                Error::input("ranks hold different sums after an all-reduce").found(format!("ranks 0 and {}", i + 1)),
            )),
        }
    }
}

/// bf16 codes of values that are bf16.
fn narrow(values: &[f32]) -> Vec<u16> {
    values.iter().map(|v| half::bf16::from_f32(*v).to_bits()).collect()
}

fn widen(codes: &[u16]) -> Vec<f32> {
    codes.iter().map(|c| half::bf16::from_bits(*c).to_f32()).collect()
}

#[cfg(test)]
mod tests;
