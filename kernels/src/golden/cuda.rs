//! Golden's kernels on a GPU.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use cudarc::driver::{CudaFunction, LaunchConfig};
use karat_model::{Error, Result};
use karat_reference::backend::Backend;

use super::Compared;
use super::accumulator::STEP;
use super::formats::formats;
use super::ops::product;
use super::run::{Args, Desk, Found, Gather, Runner, Step, Values};
use super::sketch::Spent;
use super::split::{PIECES, Taken, Tier, steps};
use crate::cuda::{Buffer, Device, Loader, Nccl};
use crate::list::{Entry, List, SKETCH, SPLIT};
use crate::pack::Pack;
use crate::source::digest;

/// Golden's images in the list, one a source.
pub const IMAGES: [&str; 7] = [
    "golden-linear",
    "golden-linear-tiled",
    "golden-rows",
    "golden-attend",
    "golden-experts",
    "golden-decode",
    "golden-routed",
];

/// A GPU that computes golden.
#[derive(Debug)]
pub struct Gpu {
    desk: Arc<Desk<OnDevice>>,
}

#[derive(Debug)]
struct OnDevice {
    device: Arc<Device>,
    kernels: BTreeMap<String, (CudaFunction, Entry)>,
    digests: BTreeMap<String, String>,
    /// Those that no value of golden depends on.
    sketch_digests: BTreeMap<String, String>,
    /// That of the exact-split tier, where it is asked for.
    split_digest: Option<String>,
}

impl Gpu {
    /// Golden's images for the device: from a pack, else from the cache of images, else compiled here by an NVRTC under `root` or
    /// of the system.
    ///
    /// # Errors
    /// An image can't be had, or the driver refuses it.
    pub fn new(device: Device, pack: Option<Pack>, cache: Option<PathBuf>, root: Option<PathBuf>) -> Result<Self> {
        Self::of_tier(Tier::Bits, device, &Loader::new(pack, cache, root)?)
    }

    /// The same on either tier.
    ///
    /// # Errors
    /// As for [`Gpu::new`].
    pub fn of_tier(tier: Tier, device: Device, loader: &Loader) -> Result<Self> {
        let desk = Desk::new(OnDevice::load(Arc::new(device), loader, tier)?);
        Ok(Self { desk: Arc::new(on_its_tier(desk)) })
    }

    /// Golden on all devices of a communicator: the routed experts in equal ranges of ids, everything else on the first. What
    /// the experts gave travels whole and is added on the first device in golden's order, so its bits don't depend on how
    /// many there are.
    ///
    /// # Errors
    /// As for [`Gpu::new`].
    pub fn spread(nccl: &Arc<Nccl>, pack: Option<Pack>, cache: Option<PathBuf>, root: Option<PathBuf>) -> Result<Self> {
        Self::spread_of_tier(Tier::Bits, nccl, &Loader::new(pack, cache, root)?)
    }

    /// The same on either tier.
    ///
    /// # Errors
    /// As for [`Gpu::new`].
    pub fn spread_of_tier(tier: Tier, nccl: &Arc<Nccl>, loader: &Loader) -> Result<Self> {
        let load = |device: &Arc<Device>| OnDevice::load(device.clone(), loader, tier);
        let mut all: Vec<OnDevice> = nccl.devices().iter().map(load).collect::<Result<_>>()?;
        if all.is_empty() {
            return Err(Error::input("no GPU to spread golden over"));
        }
        let first = all.remove(0);
        Ok(Self { desk: Arc::new(on_its_tier(Desk::spread(first, all, nccl.clone()))) })
    }

    /// What a golden path computes by.
    pub fn backend(&self) -> Arc<dyn Backend> {
        self.desk.clone()
    }

    /// Digests of the images of sketches; none where they are not at hand.
    pub fn sketch_digests(&self) -> &BTreeMap<String, String> {
        &self.desk.runner.sketch_digests
    }

    /// Rows that were sketched on the device so far.
    pub fn sketched_rows(&self) -> u64 {
        self.desk.room.lock().unwrap_or_else(PoisonError::into_inner).waiting.done
    }

    /// What sketches took of the threads that compute so far.
    pub fn sketches_spent(&self) -> Spent {
        self.desk.room.lock().unwrap_or_else(PoisonError::into_inner).waiting.spent
    }

    /// Every code of every form of stored weights, as the device decodes it and as golden does: rows `decode`.
    ///
    /// # Errors
    /// The device failed.
    pub fn compare_decoding(&self, into: &mut Compared) -> Result<()> {
        formats(&self.desk, into)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.desk.runner.device
    }

    /// Golden's images and the digests of their sources, options and compiler.
    pub fn digests(&self) -> &BTreeMap<String, String> {
        &self.desk.runner.digests
    }

    /// Image and digest of the exact-split tier, on that tier.
    pub fn split_digest(&self) -> Option<(String, String)> {
        self.desk.runner.split_digest.clone().map(|digest| (SPLIT.to_string(), digest))
    }

    /// Which products ran how; `None` on the tier of bits.
    pub fn taken(&self) -> Option<Taken> {
        self.desk.taken()
    }

    /// `x w^T` of a weight that is not kept, panels `[ceil(n/16)][k][16]`: for measurements.
    ///
    /// # Errors
    /// Sizes that do not fit; the device failed.
    pub fn product(&self, x: &[f32], panels: &[f32], size: (usize, usize)) -> Result<Vec<f32>> {
        self.desk.product(x, panels, size)
    }

    /// Milliseconds on the device of such a product, one a round, on this tier: nothing travels meanwhile, and the weight is
    /// narrowed before.
    ///
    /// # Errors
    /// Sizes that do not fit; the device failed.
    pub fn product_ms(&self, x: &[f32], panels: &[f32], (n, k): (usize, usize), rounds: usize) -> Result<Vec<f64>> {
        let (runner, s) = (&self.desk.runner, x.len() / k.max(1));
        if k == 0 || x.len() != s * k || panels.len() != n.div_ceil(16) * k * 16 {
            return Err(Error::input("x and panels do not fit the sizes of a product").found(format!("{n} x {k}")));
        }
        let step = |kernel, threads, p: &[usize], n: &[usize]| Step {
            kernel,
            threads,
            p: p.to_vec(),
            n: n.to_vec(),
            f: Vec::new(),
        };
        // Places as those of a product, then the counts of what narrowing loses.
        let threads = n.div_ceil(16) * 16 * k.div_ceil(STEP);
        let narrow = step("golden_split_narrow", threads, &[3, 2, 7], &[n, k]);
        let (before, all) = match &runner.split_digest {
            Some(_) => (vec![narrow], steps((s, n, k), PIECES).to_vec()),
            None => (Vec::new(), vec![product([0, 3, 6], [s, n, k])]),
        };
        let empty = |bytes: usize| runner.device.alloc(bytes, 0xff);
        let memory = [
            runner.device.upload(x)?,
            empty(6 * s * k)?,
            empty(2 * n * k)?,
            runner.device.upload(panels)?,
            empty(4 * s)?,
            empty(4 * s)?,
            empty(4 * s * n)?,
            empty(threads)?,
        ];
        runner.device.settle()?;
        let launch = |step: &Step| {
            let mut args = Args::default();
            args.p.iter_mut().zip(&step.p).for_each(|(p, &i)| *p = memory[i].at());
            args.n.iter_mut().zip(&step.n).for_each(|(n, &v)| *n = v as i64);
            // SAFETY: every buffer has the size that the kernels' heads name, and outlives the replays.
            unsafe { runner.launch(step.kernel, step.threads, args) }
        };
        before.iter().try_for_each(launch)?;
        runner.device.wait()?;
        let graph = runner.device.record(|| all.iter().try_for_each(launch))?;
        runner.device.time(&graph, rounds)
    }
}

/// On the tier whose kernels were loaded.
fn on_its_tier(desk: Desk<OnDevice>) -> Desk<OnDevice> {
    let (arch, image) = (desk.runner.device.arch(), desk.runner.split_digest.clone());
    match image {
        Some(image) => desk.exact_split(arch, &image),
        None => desk,
    }
}

impl OnDevice {
    fn load(device: Arc<Device>, loader: &Loader, tier: Tier) -> Result<Self> {
        let (mut kernels, mut digests) = (BTreeMap::new(), BTreeMap::new());
        for name in IMAGES {
            let image = loader.list.image(name)?;
            digests.insert(name.to_string(), digest(image, &loader.list.compiler)?);
            let loaded = loader.load(&device, name)?;
            for entry in &image.entries {
                kernels.insert(entry.name.clone(), loaded.kernel(&entry.name)?);
            }
        }
        // A pack made before there were sketches computes golden all the same; they are taken here then.
        let mut sketch_digests = BTreeMap::new();
        if let Ok(loaded) = loader.load(&device, SKETCH) {
            let image = loader.list.image(SKETCH)?;
            for entry in &image.entries {
                kernels.insert(entry.name.clone(), loaded.kernel(&entry.name)?);
            }
            sketch_digests.insert(SKETCH.to_string(), digest(image, &loader.list.compiler)?);
        }
        let mut split_digest = None;
        if tier == Tier::ExactSplit {
            let (loaded, image) = (loader.load(&device, SPLIT)?, loader.list.image(SPLIT)?);
            for entry in &image.entries {
                kernels.insert(entry.name.clone(), loaded.kernel(&entry.name)?);
            }
            split_digest = Some(digest(image, &loader.list.compiler)?);
        }
        Ok(Self { device, kernels, digests, sketch_digests, split_digest })
    }
}

impl Gather for Nccl {
    fn name(&self) -> String {
        format!("NCCL {}", self.version)
    }

    fn gather(&self, shares: &[Vec<f32>]) -> Result<Vec<Vec<f32>>> {
        self.gathered(shares)
    }
}

impl Runner for OnDevice {
    type Memory = Buffer;

    fn name(&self) -> String {
        self.device.name.clone()
    }

    fn identity(&self) -> String {
        let digests: Vec<&str> = self.digests.values().map(String::as_str).collect();
        format!("cuda {} {} {}", self.device.arch(), self.device.driver, digests.join(" "))
    }

    fn sketches(&self) -> bool {
        !self.sketch_digests.is_empty()
    }

    fn room(&self) -> usize {
        // Twice what an op of a big model has: sketches of one end while the next one is computed.
        256 << 20
    }

    fn alloc(&self, bytes: usize) -> Result<Buffer> {
        // Poison: a value that is read before it was written is a NaN.
        self.device.alloc(bytes, 0xff)
    }

    fn at(&self, memory: &Buffer) -> u64 {
        memory.at()
    }

    fn write(&self, memory: &Buffer, offset: usize, values: Values<'_>) -> Result<()> {
        match values {
            Values::F32(values) => self.device.write(memory, offset, values),
            Values::U32(values) => self.device.write(memory, offset, values),
            Values::U8(values) => self.device.write(memory, offset, values),
        }
    }

    fn settle(&self) -> Result<()> {
        self.device.settle()
    }

    fn read(&self, memory: &Buffer, offset: usize, found: &mut Found) -> Result<()> {
        match found {
            Found::F32(values) => self.device.read(memory, offset, values),
            Found::U32(values) => self.device.read(memory, offset, values),
            Found::U8(values) => self.device.read(memory, offset, values),
        }
    }

    fn read_aside(&self, memory: &Buffer, found: &mut Found) -> Result<()> {
        match found {
            Found::F32(values) => self.device.read_aside(memory, values),
            Found::U32(values) => self.device.read_aside(memory, values),
            Found::U8(values) => self.device.read_aside(memory, values),
        }
    }

    unsafe fn launch(&self, kernel: &'static str, threads: usize, args: Args) -> Result<()> {
        let missing = || Error::input(format!("golden has no kernel {kernel} on this device"));
        let (function, entry) = self.kernels.get(kernel).ok_or_else(missing)?;
        let blocks = u32::try_from(threads.div_ceil(entry.threads as usize)).ok().filter(|n| *n < 1 << 31);
        let blocks = blocks.ok_or_else(|| Error::input(format!("{kernel}: {threads} outputs are too many at once")))?;
        let config =
            LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (entry.threads, 1, 1), shared_mem_bytes: entry.shared };
        // SAFETY: Args is the parameter of every kernel of golden; the addresses are what the caller promises.
        unsafe { self.device.launch(function, config, args) }
    }
}

/// Digest of the image of sketches as the list has it.
///
/// # Errors
/// The committed list is broken.
pub fn sketch_digest() -> Result<String> {
    let list = List::read()?;
    digest(list.image(SKETCH)?, &list.compiler)
}

/// Digests of golden's images as the list has them.
///
/// # Errors
/// The committed list is broken.
pub fn digests() -> Result<BTreeMap<String, String>> {
    let list = List::read()?;
    IMAGES.iter().map(|name| Ok(((*name).to_string(), digest(list.image(name)?, &list.compiler)?))).collect()
}
