//! Threads and instruction set of a path.

use super::Isa;

/// Threads and instruction set of a path. The result of an op never depends on either.
#[derive(Debug)]
pub(crate) struct Pool {
    threads: rayon::ThreadPool,
    isa: Isa,
}

impl Pool {
    /// A pool of `threads` threads (at least 1) on the fastest instruction set.
    pub(crate) fn new(threads: usize) -> karat_model::Result<Self> {
        Self::with_isa(threads, Isa::best())
    }

    pub(crate) fn with_isa(threads: usize, isa: Isa) -> karat_model::Result<Self> {
        let threads = threads.max(1);
        let built = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("golden-{i}")).build();
        match built {
            Ok(pool) => Ok(Self { threads: pool, isa }),
            Err(e) => Err(karat_model::Error::usage("failed to start threads").found(e).expected(threads)),
        }
    }

    /// Runs `f` where the parallel loops of this crate use this pool.
    pub(crate) fn install<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        self.threads.install(f)
    }

    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    /// Takes another instruction set, if this machine has it.
    pub(crate) fn take(&mut self, isa: Isa) {
        if Isa::available().contains(&isa) {
            self.isa = isa;
        }
    }
}
