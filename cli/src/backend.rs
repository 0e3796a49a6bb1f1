//! `--backend`: where golden is computed.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use karat_bundle::Run;
use karat_reference::backend::Backend;
use karat_seam::AllReduce;

use crate::failure::{Failure, Result};

/// Options of every command that runs golden.
#[derive(Debug, Clone, Args)]
pub(crate) struct Computing {
    /// Where golden is computed: auto or cpu (this processor), or cuda (a GPU; the low-precision path stays here)
    #[arg(long, value_name = "BACKEND")]
    pub(crate) backend: Option<String>,
    /// Compiled kernels for --backend cuda, from cargo xtask kernels build; without it NVRTC compiles them now
    #[arg(long, value_name = "DIR")]
    pub(crate) pack: Option<PathBuf>,
    /// Spread golden's experts over this many GPUs of this host, and add the partial sums of tp-allreduce with as many ranks
    /// through NCCL
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) gpus: Option<u32>,
}

/// Where golden is computed.
pub(crate) struct Place {
    #[cfg(feature = "cuda")]
    gpu: Option<karat_kernels::golden::Gpu>,
    #[cfg(feature = "cuda")]
    nccl: Option<Arc<karat_kernels::cuda::Nccl>>,
}

impl Computing {
    /// Looks for what was asked for. A GPU that isn't there is a contradiction of the arguments: exit 2.
    pub(crate) fn open(&self) -> Result<Place> {
        match self.backend.as_deref() {
            None | Some("auto" | "cpu") => {
                if self.pack.is_some() {
                    return Err(Failure::usage("--pack holds kernels for a GPU: it needs --backend cuda"));
                }
                if self.gpus.is_some() {
                    return Err(Failure::usage("--gpus needs --backend cuda"));
                }
                Ok(Place::here())
            }
            Some("cuda") => self.cuda(),
            Some(other) => Err(Failure::usage(format!("--backend: expected auto, cpu or cuda, found `{other}`"))),
        }
    }

    #[cfg(feature = "cuda")]
    fn cuda(&self) -> Result<Place> {
        use karat_kernels::cuda::{Device, Nccl};
        use karat_kernels::golden::Gpu;
        use karat_kernels::pack::Pack;
        let gpus = self.gpus.unwrap_or(1) as usize;
        let told = |e| Failure::usage(format!("--backend cuda: {e}"));
        let mut devices = Device::open_all(gpus).map_err(told)?;
        let pack = self.pack.as_deref().map(Pack::open).transpose()?;
        let root = std::env::var_os("KARAT_CUDA_ROOT").map(PathBuf::from);
        if gpus == 1 {
            return Ok(Place { gpu: Some(Gpu::new(devices.remove(0), pack, None, root)?), nccl: None });
        }
        let nccl = Nccl::new(devices.into_iter().map(Arc::new).collect(), root.as_deref()).map_err(told)?;
        let nccl = Arc::new(nccl);
        Ok(Place { gpu: Some(Gpu::spread(&nccl, pack, None, root)?), nccl: Some(nccl) })
    }

    #[cfg(not(feature = "cuda"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    fn cuda(&self) -> Result<Place> {
        Err(Failure::usage(
            "--backend cuda: this build has no CUDA; `cargo build --release -p karat-cli --features cuda` makes one \
             (no CUDA toolkit is needed for that)",
        ))
    }
}

#[cfg(feature = "cuda")]
impl Place {
    /// This processor.
    pub(crate) fn here() -> Self {
        Self { gpu: None, nccl: None }
    }

    /// What golden is computed by; none: this processor.
    pub(crate) fn backend(&self) -> Option<Arc<dyn Backend>> {
        self.gpu.as_ref().map(karat_kernels::golden::Gpu::backend)
    }

    /// What adds the partial sums of as many ranks as there are GPUs; none with one.
    pub(crate) fn all_reduce(&self) -> Option<Arc<dyn AllReduce>> {
        self.nccl.clone().map(|nccl| nccl as Arc<dyn AllReduce>)
    }

    /// A run's result or its error, with what is known of the place. Memory that was full may be free the next time: exit 75.
    pub(crate) fn done<R>(&self, done: std::result::Result<R, karat_audit::Error>) -> Result<R> {
        match (done, &self.gpu) {
            (Err(error), Some(gpu)) if gpu.device().was_full() => Err(Failure::retry(&error.to_string())),
            (done, _) => Ok(done?),
        }
    }

    /// Writes down what ran, and what is known of it.
    pub(crate) fn tell(&self, run: &mut Run) {
        let Some(gpu) = &self.gpu else { return };
        run.device = gpu.device().describe();
        run.kernels.clone_from(gpu.digests());
        run.notes.push(karat_kernels::golden::standing(gpu.device().arch()));
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
