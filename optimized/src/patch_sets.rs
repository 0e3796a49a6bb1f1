//! Several plans on one model and one set of requests, run in one pass over the weights.

use std::sync::Arc;
use std::time::Duration;

use karat_model::{Checkpoint, Result};
use karat_seam::{AllReduce, Error, Lane, Requests, Together};

use crate::layer::{LayerWeights, Resident, run_lanes};
use crate::mtp::{head_lanes, input_lanes};
use crate::optimized::{HeadWeights, Shared};
use crate::plan::Resolved;
use crate::{Optimized, Plan};

/// Patch sets that share every weight pass: a linear is decoded once for all of them, in each form that one of them needs.
pub struct PatchSets {
    sets: Vec<Optimized>,
    shared: Arc<Shared>,
}

impl PatchSets {
    /// One path a plan, in this order.
    ///
    /// # Errors
    /// As [`Optimized::new`].
    pub fn new(checkpoint: &Arc<Checkpoint>, requests: &Requests, plans: Vec<Plan>, threads: usize) -> Result<Self> {
        let shared = Shared::new(threads)?;
        let one = |plan| Optimized::sharing(checkpoint.clone(), requests.clone(), plan, shared.clone());
        let sets = plans.into_iter().map(one).collect::<Result<_>>()?;
        Ok(Self { sets, shared })
    }

    pub(crate) fn map(self, to: impl FnMut(Optimized) -> Optimized) -> Self {
        Self { sets: self.sets.into_iter().map(to).collect(), ..self }
    }

    /// As [`Optimized::reduced_by`], all of them.
    #[must_use]
    pub fn reduced_by(self, real: Option<&Arc<dyn AllReduce>>) -> Self {
        let sets = self.sets.into_iter().map(|path| path.reduced_by(real.cloned())).collect();
        Self { sets, shared: self.shared }
    }

    /// The paths.
    pub fn sets(&self) -> &[Optimized] {
        &self.sets
    }

    pub(crate) fn sets_mut(&mut self) -> &mut [Optimized] {
        &mut self.sets
    }

    /// Linears of layers that were decoded so far, by all sets, together or alone.
    pub fn weight_loads(&self) -> u64 {
        self.shared.loads.total()
    }

    /// Time that reading and decoding the layers' weights took so far, for all sets, together or alone.
    pub fn weight_time(&self) -> Duration {
        self.shared.loads.time()
    }

    fn members(&self, members: &[usize], lanes: usize) -> karat_seam::Result<Vec<&Optimized>> {
        let found: Vec<_> = members.iter().filter_map(|i| self.sets.get(*i)).collect();
        if found.len() == members.len() && found.len() == lanes {
            return Ok(found);
        }
        Err(Error::Request(format!("{lanes} lanes of members {members:?} of {} patch sets", self.sets.len())))
    }
}

impl Together for PatchSets {
    fn layer(&self, l: u16, members: &[usize], lanes: &mut [Lane<'_>]) -> karat_seam::Result<()> {
        let paths = self.members(members, lanes.len())?;
        let Some(first) = paths.first() else { return Ok(()) };
        first.check_layer(l)?;
        let plans: Vec<&Resolved> = paths.iter().map(|path| &path.resolved).collect();
        first.adder.checked(first.pool().install(|| {
            let loads = &self.shared.loads;
            let w = loads.timed(|| LayerWeights::load(&first.checkpoint, &plans, l, loads)).map_err(Error::source)?;
            let w = Arc::new(w);
            let residents: Vec<Resident<'_>> = paths.iter().map(|path| Resident::with(path, l, w.clone())).collect();
            run_lanes(&residents.iter().collect::<Vec<_>>(), lanes)
        }))
    }

    fn head(&self, members: &[usize], lanes: &mut [Lane<'_>]) -> karat_seam::Result<()> {
        let paths = self.members(members, lanes.len())?;
        let Some(first) = paths.first() else { return Ok(()) };
        let plans: Vec<&Resolved> = paths.iter().map(|path| &path.resolved).collect();
        first.pool().install(|| {
            let w = HeadWeights::load(&first.checkpoint, &plans, "").map_err(Error::source)?;
            paths.iter().zip(lanes).try_for_each(|(path, lane)| path.head_lane(&w, lane).map(|_| ()))
        })
    }

    fn mtp_input(&self, i: u16, members: &[usize], lanes: &mut [Lane<'_>], next: &[u32]) -> karat_seam::Result<()> {
        let paths = self.members(members, lanes.len())?;
        let Some(first) = paths.first() else { return Ok(()) };
        first.pool().install(|| input_lanes(&paths, i, lanes, next))
    }

    fn mtp_head(&self, i: u16, members: &[usize], lanes: &mut [Lane<'_>]) -> karat_seam::Result<()> {
        let paths = self.members(members, lanes.len())?;
        let Some(first) = paths.first() else { return Ok(()) };
        first.pool().install(|| head_lanes(&paths, i, lanes).map(|_| ()))
    }
}
