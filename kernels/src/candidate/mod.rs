//! The kernels of `cuda/optimized/` as what a candidate's patches run as: `karat_optimized::Kernels` on a GPU.
//!
//! The images are those that are measured and kept in the evidence, built for the released model's 64 heads of 512 dims, 64
//! index heads of 128, and columns of 256. A smaller model's operands are filled up with zeros: heads without values, dims that
//! add nothing to any product, rows of weights that are zero. That changes no bit of what is taken out again, so what is audited
//! on a small model is the very code that runs on the large one.

mod attend;
mod experts;
mod index;
mod operands;
mod rows;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use karat_model::checkpoint::Encoding;
use karat_model::{Checkpoint, Error, Result};
use karat_optimized::{Accumulation, Attending, Kernel, Kernels, Mix, Projecting, Routed, Scoring, Store};

use crate::audits::SOURCES;
use crate::cuda::{Compressor, Device, IndexLogits, Loader, Mhc, Mla, MmaProbe, Moe, Select};
use crate::list::{Define, Image, PROBE};
use crate::mma::{FormFound, USED, find};
use crate::pack::Pack;
use crate::source::digest;

/// Heads and dims of the attention kernel, of the index kernel; columns that the experts' kernel takes at a time.
const HEADS: usize = 64;
const DIMS: usize = 512;
const INDEX_DIMS: usize = 128;
const SLAB: usize = 256;

/// A GPU that computes speed patches.
#[derive(Debug)]
pub struct PatchKernels {
    name: String,
    identity: String,
    arch: &'static str,
    digests: BTreeMap<String, String>,
    images: Vec<Image>,
    accumulation: Accumulation,
    work: Mutex<Work>,
}

/// What is on the device. One op at a time.
#[derive(Debug)]
pub(crate) struct Work {
    device: Device,
    loader: Loader,
    mix: BTreeMap<String, Mhc>,
    attend: BTreeMap<String, Mla>,
    index: BTreeMap<String, IndexLogits>,
    select: BTreeMap<String, Select>,
    experts: BTreeMap<String, Moe>,
    project: BTreeMap<String, Compressor>,
}

impl PatchKernels {
    /// The kernels for a device: from a pack, else from the cache of images, else compiled here by an NVRTC under `root` or of
    /// the system. An image is loaded at its first use.
    ///
    /// # Errors
    /// The committed list is broken.
    pub fn new(device: Device, pack: Option<Pack>, cache: Option<PathBuf>, root: Option<PathBuf>) -> Result<Self> {
        let loader = Loader::new(pack, cache, root)?;
        let arch = device.arch();
        let of_patches = |image: &&Image| SOURCES.contains(&image.source.as_str()) && image.arches().contains(&arch);
        let images: Vec<Image> = loader.list.images.iter().filter(of_patches).cloned().collect();
        let mut digests = BTreeMap::new();
        for image in &images {
            digests.insert(image.name.clone(), digest(image, &loader.list.compiler)?);
        }
        let all: Vec<&str> = digests.values().map(String::as_str).collect();
        let identity = format!("cuda {arch} {} {}", device.driver, all.join(" "));
        let name = device.describe();
        let probed = probed(&device, &loader).map_err(|e| e.what);
        let accumulation = accumulation(&crate::mma::standing(arch, probed.as_deref().map_err(String::as_str))?);
        let work = Work {
            device,
            loader,
            mix: BTreeMap::new(),
            attend: BTreeMap::new(),
            index: BTreeMap::new(),
            select: BTreeMap::new(),
            experts: BTreeMap::new(),
            project: BTreeMap::new(),
        };
        Ok(Self { name, identity, arch, digests, images, accumulation, work: Mutex::new(work) })
    }

    /// Images that may run, with the digests of their sources, options and compiler.
    pub fn digests(&self) -> &BTreeMap<String, String> {
        &self.digests
    }

    /// Chip's name in packs.
    pub fn arch(&self) -> &'static str {
        self.arch
    }

    /// True once memory was asked for that wasn't there.
    pub fn was_full(&self) -> bool {
        self.work().device.was_full()
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        // A panic elsewhere leaves nothing half done: buffers are made anew by each op.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The image of a source that has these numerics, the first in the list.
    fn image(&self, source: &str, defines: &[(&str, i64)]) -> Result<&str> {
        let has = |image: &&Image| {
            image.source == format!("optimized/{source}")
                && defines.iter().all(|(name, value)| image.defines.get(*name) == Some(&Define::Number(*value)))
        };
        let found = self.images.iter().find(has);
        found.map(|image| image.name.as_str()).ok_or_else(|| {
            let asked: Vec<String> = defines.iter().map(|(name, value)| format!("{name}={value}")).collect();
            Error::input(format!("no kernel image of {source} for {} has {}", self.arch, asked.join(", ")))
        })
    }

    fn image_of(&self, kernel: Kernel) -> Result<&str> {
        let bf16 = |store: Store| i64::from(store == Store::Bf16);
        match kernel {
            Kernel::Mix { terms } => self.image("mhc.cu", &[("TERMS", i64::from(terms))]),
            Kernel::Attend(rule) => {
                self.image("sparse_mla.cu", &[("KEYS", rule.tile as i64), ("PARTIAL_BF16", bf16(rule.partials))])
            }
            Kernel::Index { bf16_product } => {
                self.image("index.cu", &[("PRODUCT_BF16", i64::from(bf16_product)), ("EARLY_EXIT", 1)])
            }
            Kernel::Experts(grouped) => {
                let (nvfp4, fused) = (i64::from(grouped.nvfp4), i64::from(grouped.fused_clamp));
                self.image("grouped_fp4.cu", &[("NVFP4", nvfp4), ("FUSED_CLAMP", fused)])
            }
            Kernel::Project { rows } => self.image("compressor.cu", &[("STORE_BF16", bf16(rows))]),
        }
    }
}

/// The kernel that is loaded under this name, loaded now where it isn't.
macro_rules! loaded {
    ($work:expr, $field:ident, $kind:ident, $image:expr) => {{
        let (work, image): (&mut Work, &str) = (&mut *$work, $image);
        if !work.$field.contains_key(image) {
            let kernel = $kind::new(&work.loader.load(&work.device, image)?)?;
            work.$field.insert(image.to_string(), kernel);
        }
        let missing = || Error::input(format!("kernel image {image} is not loaded"));
        (work.$field.get(image).ok_or_else(missing)?, &work.device)
    }};
}

impl Kernels for PatchKernels {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn accumulation(&self) -> Accumulation {
        self.accumulation.clone()
    }

    fn lacks(&self, kernel: Kernel, checkpoint: &Checkpoint) -> Option<String> {
        if let Err(error) = self.image_of(kernel) {
            return Some(error.what);
        }
        let config = checkpoint.config();
        let (width, eps) = (config.hc_mult * config.hidden_size, 1e-6);
        let fits = match kernel {
            Kernel::Mix { .. } => {
                config.hc_mult == 4
                    && width.is_multiple_of(64)
                    && [config.hc_eps, config.rms_norm_eps].iter().all(|e| *e as f32 == eps as f32)
            }
            Kernel::Attend(_) => config.num_attention_heads <= HEADS && config.head_dim <= DIMS,
            Kernel::Index { .. } => config.index_n_heads <= HEADS && config.index_head_dim <= INDEX_DIMS,
            Kernel::Project { .. } => config.hidden_size.is_multiple_of(8) && plain_compressors(checkpoint),
            Kernel::Experts(grouped) => {
                let stored = checkpoint.linear("layers.0.ffn.experts.0.w1").map(|w| w.encoding).ok();
                let kinds: &[Encoding] =
                    if grouped.nvfp4 { &[Encoding::Nvfp4, Encoding::Mxfp4] } else { &[Encoding::Mxfp4] };
                stored.is_some_and(|stored| kinds.contains(&stored))
            }
        };
        (!fits).then(|| "its kernel is not built for this model's shapes, constants or stored formats".to_string())
    }

    fn mix(&self, it: Mix<'_>) -> Result<Vec<f32>> {
        let image = self.image_of(Kernel::Mix { terms: it.terms })?;
        let mut work = self.work();
        let (kernel, device) = loaded!(work, mix, Mhc, image);
        rows::mix(device, kernel, it)
    }

    fn attend(&self, it: Attending<'_>) -> Result<(Vec<f32>, Vec<f32>)> {
        let image = self.image_of(Kernel::Attend(it.rule))?.to_string();
        let mut work = self.work();
        // The factor of the scores belongs to the model: a kernel for each number of dims.
        let name = format!("{image} {}", it.width);
        if !work.attend.contains_key(&name) {
            let kernel = Mla::new(&work.loader.load(&work.device, &image)?)?.for_dims(it.width);
            work.attend.insert(name.clone(), kernel);
        }
        let missing = || Error::input(format!("kernel image {image} is not loaded"));
        attend::attend(&work.device, work.attend.get(&name).ok_or_else(missing)?, it)
    }

    fn index_scores(&self, it: Scoring<'_>) -> Result<Vec<f32>> {
        let image = self.image_of(Kernel::Index { bf16_product: it.bf16_product })?;
        let mut work = self.work();
        let (kernel, device) = loaded!(work, index, IndexLogits, image);
        index::scores(device, kernel, it)
    }

    fn select(&self, scores: &[f32], visible: &[usize], topk: usize) -> Result<Vec<Vec<u32>>> {
        let image = self.image("select.cu", &[])?;
        let mut work = self.work();
        let (kernel, device) = loaded!(work, select, Select, image);
        index::select(device, kernel, scores, visible, topk)
    }

    fn experts_up(&self, it: Routed<'_>) -> Result<Vec<f32>> {
        let image = self.image_of(Kernel::Experts(it.grouped))?;
        let mut work = self.work();
        let (kernel, device) = loaded!(work, experts, Moe, image);
        experts::up(device, kernel, it)
    }

    fn experts_down(&self, it: Routed<'_>, act: &[f32]) -> Result<Vec<f32>> {
        let image = self.image_of(Kernel::Experts(it.grouped))?;
        let mut work = self.work();
        let (kernel, device) = loaded!(work, experts, Moe, image);
        experts::down(device, kernel, it, act)
    }

    fn project(&self, it: Projecting<'_>) -> Result<(Vec<f32>, Vec<f32>)> {
        let image = self.image_of(Kernel::Project { rows: it.rows })?;
        let mut work = self.work();
        let (kernel, device) = loaded!(work, project, Compressor, image);
        rows::project(device, kernel, it)
    }
}

/// How the device's mma.sync accumulates in the forms that kernels use: a few milliseconds.
fn probed(device: &Device, loader: &Loader) -> Result<Vec<FormFound>> {
    let loaded = loader.load(device, PROBE)?;
    let probe = MmaProbe::new(device, &loaded)?;
    USED.iter().map(|form| find(&probe, *form)).collect()
}

fn accumulation(of: &crate::mma::Standing) -> Accumulation {
    let (bits, products, truncates) = (of.bits, of.products, of.truncates);
    Accumulation { bits, products, truncates, note: of.note.clone(), unproven: of.unproven.clone() }
}

/// What is known of these kernels on a chip, for a report.
pub fn standing(arch: &str) -> String {
    match arch {
        "sm_90a" => {
            "kernels ran on sm_90: nothing here is evidence for sm_120, whose tensor cores add otherwise".to_string()
        }
        other => format!("kernels ran on {}: no evidence of this chip is committed", other.trim_end_matches('a')),
    }
}

/// True when every compressor's products are stored as values.
fn plain_compressors(checkpoint: &Checkpoint) -> bool {
    let layers = checkpoint.config().layers.iter().enumerate().filter(|(_, kind)| kind.ratio().is_some());
    layers.map(|(l, _)| format!("layers.{l}.attn.compressor")).all(|prefix| {
        ["wkv", "wgate"]
            .iter()
            .all(|w| checkpoint.linear(&format!("{prefix}.{w}")).is_ok_and(|w| w.encoding == Encoding::Plain))
    })
}
