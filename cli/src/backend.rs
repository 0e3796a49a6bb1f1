//! `--backend`: where golden is computed; `--candidate-backend`: where speed patches are.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use karat_bundle::Run;
use karat_optimized::Kernels;
use karat_reference::backend::Backend;
use karat_seam::AllReduce;

use crate::failure::{Failure, Result};

/// Options of every command that runs golden.
#[derive(Debug, Clone, Args)]
pub(crate) struct Computing {
    /// Where golden is computed: auto or cpu (this processor), or cuda (a GPU; the low-precision path stays here)
    #[arg(long, value_name = "BACKEND")]
    pub(crate) backend: Option<String>,
    /// Arithmetic of golden's products on --backend cuda: bits (the CPU's, the default), or exact-split (on the tensor cores where
    /// the weight is exact in bf16, with a stated floor: for big models)
    #[arg(long, value_name = "TIER")]
    pub(crate) tier: Option<String>,
    /// Compiled kernels for --backend cuda, from cargo xtask kernels build; without it NVRTC compiles them now
    #[arg(long, value_name = "DIR")]
    pub(crate) pack: Option<PathBuf>,
    /// Spread golden's experts over this many GPUs of this host, and add the partial sums of tp-allreduce with as many ranks
    /// through NCCL
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) gpus: Option<u32>,
}

/// Where the low-precision path's patches are computed.
#[derive(Debug, Clone, Args)]
pub(crate) struct Patching {
    /// Where speed patches run: cpu (as contracts), or cuda (as kernels on a GPU, those that have one; the rest as contracts)
    #[arg(long, value_name = "BACKEND")]
    pub(crate) candidate_backend: Option<String>,
}

/// Where golden is computed, and where patches are.
pub(crate) struct Place {
    #[cfg(feature = "cuda")]
    gpu: Option<karat_kernels::golden::Gpu>,
    #[cfg(feature = "cuda")]
    patches: Option<Arc<karat_kernels::candidate::PatchKernels>>,
    #[cfg(feature = "cuda")]
    nccl: Option<Arc<karat_kernels::cuda::Nccl>>,
}

impl Patching {
    /// True when kernels are asked for.
    pub(crate) fn asked(&self) -> Result<bool> {
        match self.candidate_backend.as_deref() {
            None | Some("cpu") => Ok(false),
            Some("cuda") => Ok(true),
            Some(other) => Err(Failure::usage(format!("--candidate-backend: expected cpu or cuda, found `{other}`"))),
        }
    }
}

impl Computing {
    /// Looks for what was asked for. A GPU that isn't there is a contradiction of the arguments: exit 2.
    pub(crate) fn open(&self) -> Result<Place> {
        self.open_with(false)
    }

    /// The same, with a GPU for speed patches where `patches` says so.
    pub(crate) fn open_with(&self, patches: bool) -> Result<Place> {
        let is_split = self.is_split()?;
        match self.backend.as_deref() {
            None | Some("auto" | "cpu") => {
                if is_split {
                    return Err(Failure::usage(
                        "--tier exact-split needs --backend cuda: this processor computes golden's bits",
                    ));
                }
                if self.pack.is_some() && !patches {
                    return Err(Failure::usage("--pack holds kernels for a GPU: it needs --backend cuda"));
                }
                if self.gpus.is_some() {
                    return Err(Failure::usage("--gpus needs --backend cuda"));
                }
                if patches { self.cuda(false, true) } else { Ok(Place::here()) }
            }
            Some("cuda") => self.cuda(true, patches),
            Some(other) => Err(Failure::usage(format!("--backend: expected auto, cpu or cuda, found `{other}`"))),
        }
    }

    /// Whether golden's products run on the exact-split tier.
    fn is_split(&self) -> Result<bool> {
        match self.tier.as_deref() {
            None | Some("bits") => Ok(false),
            Some("exact-split") => Ok(true),
            Some(other) => Err(Failure::usage(format!("--tier: expected bits or exact-split, found `{other}`"))),
        }
    }

    #[cfg(feature = "cuda")]
    fn cuda(&self, golden: bool, patches: bool) -> Result<Place> {
        use karat_kernels::candidate::PatchKernels;
        use karat_kernels::cuda::{Device, Loader, Nccl};
        use karat_kernels::golden::{Gpu, Tier};
        use karat_kernels::pack::Pack;
        let gpus = self.gpus.unwrap_or(1) as usize;
        let name = if golden { "--backend" } else { "--candidate-backend" };
        let told = |e| Failure::usage(format!("{name} cuda: {e}"));
        let mut devices = Device::open_all(gpus).map_err(told)?;
        let pack = self.pack.as_deref().map(Pack::open).transpose()?;
        let root = std::env::var_os("KARAT_CUDA_ROOT").map(PathBuf::from);
        let patches = if patches {
            // A stream of its own, so that neither waits for the other's memory.
            Some(Arc::new(PatchKernels::new(Device::open().map_err(told)?, pack.clone(), None, root.clone())?))
        } else {
            None
        };
        if !golden {
            return Ok(Place { gpu: None, patches, nccl: None });
        }
        let tier = if self.is_split()? { Tier::ExactSplit } else { Tier::Bits };
        let loader = Loader::new(pack, None, root.clone())?;
        if gpus == 1 {
            return Ok(Place { gpu: Some(Gpu::of_tier(tier, devices.remove(0), &loader)?), patches, nccl: None });
        }
        let nccl = Nccl::new(devices.into_iter().map(Arc::new).collect(), root.as_deref()).map_err(told)?;
        let nccl = Arc::new(nccl);
        Ok(Place { gpu: Some(Gpu::spread_of_tier(tier, &nccl, &loader)?), patches, nccl: Some(nccl) })
    }

    #[cfg(not(feature = "cuda"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    fn cuda(&self, golden: bool, _patches: bool) -> Result<Place> {
        let name = if golden { "--backend" } else { "--candidate-backend" };
        Err(Failure::usage(format!(
            "{name} cuda: this build has no CUDA; `cargo build --release -p karat-cli --features cuda` makes one \
             (no CUDA toolkit is needed for that)",
        )))
    }
}

#[cfg(feature = "cuda")]
impl Place {
    /// This processor.
    pub(crate) fn here() -> Self {
        Self { gpu: None, patches: None, nccl: None }
    }

    /// What golden is computed by; none: this processor.
    pub(crate) fn backend(&self) -> Option<Arc<dyn Backend>> {
        self.gpu.as_ref().map(karat_kernels::golden::Gpu::backend)
    }

    /// What speed patches are computed by; none: this processor, as contracts.
    pub(crate) fn kernels(&self) -> Option<Arc<dyn Kernels>> {
        self.patches.clone().map(|patches| patches as Arc<dyn Kernels>)
    }

    /// What adds the partial sums of as many ranks as there are GPUs; none with one.
    pub(crate) fn all_reduce(&self) -> Option<Arc<dyn AllReduce>> {
        self.nccl.clone().map(|nccl| nccl as Arc<dyn AllReduce>)
    }

    /// A run's result or its error, with what is known of the place. Memory that was full may be free the next time: exit 75.
    pub(crate) fn done<R>(&self, done: std::result::Result<R, karat_audit::Error>) -> Result<R> {
        let full = self.gpu.as_ref().is_some_and(|gpu| gpu.device().was_full())
            || self.patches.as_ref().is_some_and(|patches| patches.was_full());
        match done {
            Err(error) if full => Err(Failure::retry(&error.to_string())),
            done => Ok(done?),
        }
    }

    /// Writes down what ran, and what is known of it.
    pub(crate) fn tell(&self, run: &mut Run) {
        if let Some(patches) = &self.patches {
            run.device = patches.name();
            run.kernels.extend(patches.digests().clone());
            run.notes.push(karat_kernels::candidate::standing(patches.arch()));
        }
        let Some(gpu) = &self.gpu else { return };
        run.device = gpu.device().describe();
        run.kernels.extend(gpu.digests().clone());
        match (gpu.split_digest(), gpu.taken()) {
            (Some(split), Some(taken)) => {
                run.kernels.extend([split]);
                run.notes.push(karat_kernels::golden::split_standing(&gpu.device().name, gpu.device().arch(), &taken));
            }
            _ => run.notes.push(karat_kernels::golden::standing(gpu.device().arch())),
        }
        if let Some(nccl) = &self.nccl {
            let (ranks, name) = (nccl.ranks(), nccl.name());
            run.device = format!("{ranks} x {}", run.device);
            run.notes.push(format!(
                "golden's experts were spread over {ranks} GPUs; the partial sums of patches with {ranks} ranks were added by {name}"
            ));
        }
    }
}

#[cfg(not(feature = "cuda"))]
#[expect(clippy::unused_self, reason = "as with the feature")]
impl Place {
    /// This processor.
    pub(crate) fn here() -> Self {
        Self {}
    }

    /// What golden is computed by; none: this processor.
    pub(crate) fn backend(&self) -> Option<Arc<dyn Backend>> {
        None
    }

    /// What speed patches are computed by; none: this processor, as contracts.
    pub(crate) fn kernels(&self) -> Option<Arc<dyn Kernels>> {
        None
    }

    /// What adds the partial sums of ranks; none: contracts do.
    pub(crate) fn all_reduce(&self) -> Option<Arc<dyn AllReduce>> {
        None
    }

    /// A run's result or its error.
    pub(crate) fn done<R>(&self, done: std::result::Result<R, karat_audit::Error>) -> Result<R> {
        Ok(done?)
    }

    /// Nothing to add to what a run says of itself.
    pub(crate) fn tell(&self, _: &mut Run) {}
}
