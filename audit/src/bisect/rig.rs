//! Runs patch sets and golden for a search: whole passes, and passes that golden takes over under way. Counts its work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use karat_optimized::{History, Optimized, PatchSets, Plan, Stock};
use karat_reference::Golden;
use karat_seam::{
    Block, Error as SeamError, Lane, NoTaps, Path as _, Phase, Recorded, Recorder, RowId, Streams, Tap, Together as _,
    Visitor,
};

use super::distance::Distance;
use super::shelf::{Hashed, Runner, Shelf};
use super::visit::Both;
use crate::job::Job;
use crate::{Error, Result, align};

/// What changes a patch set's numbers under way, if anything does: a seeded fault, for one. The same set must get the same
/// changes each time.
pub type Change<'a> = dyn Fn(&[String]) -> Option<Box<dyn Visitor>> + Sync + 'a;

/// Logits by sequence.
pub(crate) type Logits = BTreeMap<u32, Recorded>;

/// Sets that run in one pass at most.
const LANES: usize = 8;

/// See the module.
pub(crate) struct Rig<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) stock: Stock,
    history: History,
    pub(crate) change: Option<&'a Change<'a>>,
    shelf: Shelf<'a>,
    golden: Option<Golden>,
    golden_logits: Option<Logits>,
    phases: BTreeMap<(u32, u32), Phase>,
    /// Rows through layers so far.
    rows: u64,
}

impl<'a> Rig<'a> {
    pub(crate) fn new(job: &'a Job<'a>, stock: Stock, history: History, change: Option<&'a Change<'a>>) -> Self {
        Self {
            job,
            stock,
            history,
            change,
            shelf: Shelf::new(job.cache),
            golden: None,
            golden_logits: None,
            phases: BTreeMap::new(),
            rows: 0,
        }
    }

    /// The same on another job. What was made is not shared: other tokens make other streams.
    pub(crate) fn again<'b>(&self, job: &'b Job<'b>) -> Rig<'b>
    where
        'a: 'b,
    {
        Rig::new(job, self.stock, self.history, self.change)
    }

    pub(crate) fn layers(&self) -> u16 {
        self.job.checkpoint.config().num_hidden_layers() as u16
    }

    /// Forward-equivalents so far.
    pub(crate) fn work(&self) -> f64 {
        let all: usize = self.job.inputs.requests.seqs.iter().map(|s| s.ids.len()).sum();
        self.rows as f64 / (all.max(1) as f64 * f64::from(self.layers().max(1)))
    }

    pub(crate) fn plan(&self, set: &[String]) -> Plan {
        Plan { stock: self.stock, patches: set.to_vec(), history: self.history }
    }

    fn changer(&self, set: &[String]) -> Option<Box<dyn Visitor>> {
        self.change.and_then(|change| change(set))
    }

    fn may_go_on(&self) -> Result<()> {
        if self.job.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Logits of every set, and the work that each took alone. Sets share weight passes, and layers that they run alike.
    pub(crate) fn sets(&mut self, sets: &[Vec<String>]) -> Result<Vec<(Logits, f64)>> {
        let mut out = Vec::new();
        for some in sets.chunks(LANES) {
            out.extend(self.pass(some, None)?);
        }
        Ok(out)
    }

    /// The streams that enter each layer of a set's pass, and its head.
    pub(crate) fn entering(&mut self, set: &[String]) -> Result<(Vec<Streams>, Logits)> {
        let mut keep = Vec::new();
        let (logits, _) = self.pass(&[set.to_vec()], Some(&mut keep))?.remove(0);
        Ok((keep, logits))
    }

    fn pass(&mut self, sets: &[Vec<String>], mut keep: Option<&mut Vec<Streams>>) -> Result<Vec<(Logits, f64)>> {
        let job = self.job;
        let plans = sets.iter().map(|set| self.plan(set)).collect();
        let together = PatchSets::new(&job.checkpoint, &job.inputs.requests, plans, job.threads)?;
        let paths = together.sets();
        if let (true, Some(first)) = (self.phases.is_empty(), paths.first()) {
            let rows = job.inputs.requests.rows();
            self.phases = rows.into_iter().map(|r| ((r.seq, r.pos), first.phase_of(r))).collect();
        }
        let mut changers: Vec<Option<Box<dyn Visitor>>> = sets.iter().map(|set| self.changer(set)).collect();
        let names: Vec<String> = sets.iter().map(|set| super::check::set_name(set)).collect();
        let mut x: Vec<Hashed> = Vec::new();
        for (path, changer) in paths.iter().zip(&mut changers) {
            let streams = match changer {
                Some(changer) => path.embed(changer.as_mut())?,
                None => path.embed(&mut NoTaps)?,
            };
            x.push(Hashed::new(streams));
        }
        let mut rows = vec![0u64; sets.len()];
        for l in 0..self.layers() {
            self.may_go_on()?;
            if let (Some(keep), Some(first)) = (keep.as_deref_mut(), x.first()) {
                keep.push(first.streams.clone());
            }
            let identities: Vec<[u8; 32]> = paths.iter().map(|path| path.layer_identity(l)).collect();
            let runners: Vec<Runner<'_>> = (0..sets.len())
                .map(|i| if changers[i].is_some() { Runner::Changed(&names[i]) } else { Runner::Layer(&identities[i]) })
                .collect();
            let key = |(runner, x): (&Runner<'_>, &Hashed)| self.shelf.key(runner, Block::Layer(l), &x.hash);
            let keys: Vec<_> = runners.iter().zip(&x).map(key).collect();
            let known: Vec<Option<Hashed>> = keys.iter().map(|key| self.shelf.get(key)).collect();
            // The first of those that would do the same runs for all of them.
            let runs: Vec<usize> =
                (0..sets.len()).filter(|i| known[*i].is_none() && !keys[..*i].contains(&keys[*i])).collect();
            let made = run_layer(&together, l, &runs, &x, &mut changers)?;
            for (i, made) in runs.iter().zip(&made) {
                rows[*i] += made.streams.rows.len() as u64;
                self.shelf.put(&runners[*i], keys[*i], made);
            }
            let next = |(i, known): (usize, Option<Hashed>)| {
                let same = || runs.iter().position(|r| keys[*r] == keys[i]).map(|at| made[at].clone());
                known.or_else(same).ok_or_else(|| missing(&paths[i], l))
            };
            x = known.into_iter().enumerate().map(next).collect::<Result<_>>()?;
        }
        if let (Some(keep), Some(first)) = (keep, x.first()) {
            keep.push(first.streams.clone());
        }
        let logits = run_head(&together, &x, &mut changers)?;
        self.rows += rows.iter().sum::<u64>();
        let unit = x.first().map_or(1.0, |x| x.streams.rows.len().max(1) as f64) * f64::from(self.layers().max(1));
        Ok(logits.into_iter().zip(rows).map(|(logits, rows)| (logits, rows as f64 / unit)).collect())
    }

    /// What a set shows in one layer (or the head) on its own streams.
    pub(crate) fn shown(&mut self, set: &[String], block: Block, x: &Streams) -> Result<Recorder> {
        let job = self.job;
        let (checkpoint, requests) = (job.checkpoint.clone(), job.inputs.requests.clone());
        let path = Optimized::new(checkpoint, requests, self.plan(set), job.threads)?;
        let mut seen = Recorder::new(|site| !site.tap.is_state());
        let mut changer = self.changer(set);
        let mut nothing = NoTaps;
        let first: &mut dyn Visitor = match &mut changer {
            Some(changer) => changer.as_mut(),
            None => &mut nothing,
        };
        let mut both = Both { first, then: &mut seen };
        let mut lanes = [Lane::new(x, &mut both)];
        match block {
            Block::Layer(l) => {
                path.layer(l)?.run(&mut lanes)?;
                self.rows += x.rows.len() as u64;
            }
            _ => path.head(&mut lanes).map(|_| ())?,
        }
        Ok(seen)
    }

    /// Golden's path, made when it is first needed.
    fn make_golden(&mut self) -> Result<()> {
        if self.golden.is_none() {
            let job = self.job;
            self.golden = Some(job.golden(job.inputs.requests.clone())?);
        }
        Ok(())
    }

    /// Golden's own logits.
    pub(crate) fn golden(&mut self) -> Result<&Logits> {
        if self.golden_logits.is_none() {
            self.make_golden()?;
            let x = self.golden.as_ref().map(|g| g.embed(&mut NoTaps)).transpose()?;
            let x = x.ok_or(Error::CacheGap)?;
            let logits = self.golden_from(0, &x, None)?;
            self.golden_logits = Some(logits);
        }
        self.golden_logits.as_ref().ok_or(Error::CacheGap)
    }

    /// Golden's logits from the streams that enter layer `l` (or the head) on. `change` sees its first block.
    pub(crate) fn golden_from(&mut self, l: u16, x: &Streams, change: Option<&mut dyn Visitor>) -> Result<Logits> {
        self.make_golden()?;
        let layers = self.layers();
        let Some(golden) = &self.golden else { return Err(Error::CacheGap) };
        let rows: Arc<[RowId]> = golden.requests().rows().into();
        let aligned = align::streams(x, &rows);
        let aligned = aligned.ok_or_else(|| SeamError::Request("streams lack rows that golden computes".into()))?;
        let (mut x, mut change, identity) = (Hashed::new(aligned), change, golden.identity());
        for l in l..layers {
            if self.job.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let runner = Runner::Golden(&identity);
            let key = self.shelf.key(&runner, Block::Layer(l), &x.hash);
            let known = if change.is_none() { self.shelf.get(&key) } else { None };
            if let Some(known) = known {
                x = known;
                continue;
            }
            let mut nothing = NoTaps;
            let changed = change.take();
            let is_changed = changed.is_some();
            let see: &mut dyn Visitor = changed.unwrap_or(&mut nothing);
            let mut lanes = [Lane::new(&x.streams, see)];
            golden.layer(l)?.run(&mut lanes)?;
            let [lane] = lanes;
            let out = lane.out.ok_or_else(|| missing(golden, l))?;
            self.rows += rows.len() as u64;
            x = Hashed::new(out.streams);
            if !is_changed {
                self.shelf.put(&runner, key, &x);
            }
        }
        let mut seen = logits_only();
        let mut nothing = NoTaps;
        let first: &mut dyn Visitor = change.unwrap_or(&mut nothing);
        let mut both = Both { first, then: &mut seen };
        golden.head(&mut [Lane::new(&x.streams, &mut both)])?;
        Ok(taken(seen))
    }

    /// How far logits are from golden's.
    pub(crate) fn distance(&mut self, logits: &Logits) -> Result<Distance> {
        self.golden()?;
        let golden = self.golden_logits.as_ref().ok_or(Error::CacheGap)?;
        let phase = |row: RowId| self.phases.get(&(row.seq, row.pos)).copied().unwrap_or(Phase::Prefill);
        Distance::of(&self.job.inputs, golden, logits, phase)
    }
}

fn missing(path: &dyn karat_seam::Path, l: u16) -> Error {
    SeamError::Unsupported { what: format!("layers.{l}.out"), by: path.name() }.into()
}

fn logits_only() -> Recorder {
    Recorder::new(|site| site.tap == Tap::Logits)
}

fn taken(seen: Recorder) -> Logits {
    seen.taps.into_iter().map(|((_, seq), recorded)| (seq, recorded)).collect()
}

/// Layer `l` of these members, each on its own streams, in one weight pass.
fn run_layer(
    together: &PatchSets,
    l: u16,
    members: &[usize],
    x: &[Hashed],
    changers: &mut [Option<Box<dyn Visitor>>],
) -> Result<Vec<Hashed>> {
    if members.is_empty() {
        return Ok(Vec::new());
    }
    let mut nothing = vec![NoTaps; x.len()];
    let mut lanes = Vec::new();
    for (i, (changer, nothing)) in changers.iter_mut().zip(&mut nothing).enumerate() {
        if members.contains(&i) {
            let see: &mut dyn Visitor = match changer {
                Some(changer) => changer.as_mut(),
                None => nothing,
            };
            lanes.push(Lane::new(&x[i].streams, see));
        }
    }
    together.layer(l, members, &mut lanes)?;
    let outs = lanes
        .into_iter()
        .zip(members)
        .map(|(lane, i)| lane.out.map(|out| Hashed::new(out.streams)).ok_or_else(|| missing(&together.sets()[*i], l)));
    outs.collect()
}

fn run_head(together: &PatchSets, x: &[Hashed], changers: &mut [Option<Box<dyn Visitor>>]) -> Result<Vec<Logits>> {
    let mut seen: Vec<Recorder> = x.iter().map(|_| logits_only()).collect();
    let mut nothing = vec![NoTaps; x.len()];
    let mut both: Vec<Both<'_>> = Vec::new();
    for ((changer, nothing), then) in changers.iter_mut().zip(&mut nothing).zip(&mut seen) {
        let first: &mut dyn Visitor = match changer {
            Some(changer) => changer.as_mut(),
            None => nothing,
        };
        both.push(Both { first, then });
    }
    let mut lanes: Vec<Lane<'_>> = x.iter().zip(&mut both).map(|(x, see)| Lane::new(&x.streams, see)).collect();
    together.head(&(0..x.len()).collect::<Vec<_>>(), &mut lanes)?;
    drop(lanes);
    drop(both);
    Ok(seen.into_iter().map(taken).collect())
}
