//! What an audit is asked to do, apart from the candidate.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_bundle::{Conversation, Model, PartOf, Run, Scenario};
use karat_model::Checkpoint;
use karat_optimized::Kernels;
use karat_reference::backend::Backend;
use karat_reference::{Golden, Mode};
use karat_scenarios::Ask;
use karat_seam::{AllReduce, Requests, Site};
use karat_trace::TapGlob;
use sha2::{Digest, Sha256};

use crate::{Cache, Error, Progress, Result, States};

/// Conversations to run, with the scenario that each sequence belongs to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inputs {
    /// All sequences.
    pub requests: Requests,
    /// Scenario (or token file) of each sequence.
    pub scenarios: Vec<String>,
    /// What made each sequence; `file` where this is shorter than the sequences.
    pub variants: Vec<String>,
    /// Questions of each sequence; none where this is shorter than the sequences.
    pub asks: Vec<Vec<Ask>>,
    /// Tokens of a prefill chunk, where the scenario says so.
    pub chunks: Vec<Option<usize>>,
    /// Sequences whose last answer `karat recall` has each path generate for itself.
    pub free: Vec<bool>,
}

impl Inputs {
    /// Scenario and id of every conversation.
    pub fn conversations(&self) -> Vec<(String, String)> {
        let scenario = |i: usize| self.scenarios.get(i).cloned().unwrap_or_default();
        self.requests.seqs.iter().enumerate().map(|(i, sequence)| (scenario(i), sequence.id.clone())).collect()
    }

    /// Those conversations alone that ask something.
    #[must_use]
    pub fn asking(&self) -> Self {
        let asks = |i: &usize| self.asks.get(*i).is_some_and(|asks| !asks.is_empty());
        self.pick(&(0..self.requests.seqs.len()).filter(asks).collect::<Vec<_>>())
    }

    /// These conversations alone.
    pub fn pick(&self, which: &[usize]) -> Self {
        let words = |list: &[String]| which.iter().map(|&i| list.get(i).cloned().unwrap_or_default()).collect();
        // A list that is shorter than the sequences says nothing of the rest, and so does what is picked of it.
        let variants = if self.variants.is_empty() { Vec::new() } else { words(&self.variants) };
        let asks = match self.asks.is_empty() {
            true => Vec::new(),
            false => which.iter().map(|&i| self.asks.get(i).cloned().unwrap_or_default()).collect(),
        };
        Self {
            requests: Requests { seqs: which.iter().map(|&i| self.requests.seqs[i].clone()).collect() },
            scenarios: words(&self.scenarios),
            variants,
            asks,
            chunks: which.iter().map(|&i| self.chunks.get(i).copied().flatten()).collect(),
            free: which.iter().map(|&i| self.free.get(i).copied().unwrap_or_default()).collect(),
        }
    }

    /// What part `index` of `of` (from 1) runs, and what makes its bundle that part.
    pub fn part(&self, index: u64, of: u64) -> (Self, PartOf) {
        let all = self.conversations().into_iter().zip(&self.requests.seqs);
        let conversations: Vec<Conversation> = all
            .map(|((scenario, sequence), ids)| {
                let part = karat_bundle::merge::part_of(&scenario, &sequence, of);
                Conversation { scenario, sequence, part, rows: ids.ids.len() as u64 }
            })
            .collect();
        let own: Vec<usize> = (0..conversations.len()).filter(|i| conversations[*i].part == index).collect();
        (self.pick(&own), PartOf { index, of, conversations, scenarios: self.hashed() })
    }

    /// Scenarios with their sizes and the hash of their ids.
    pub(crate) fn hashed(&self) -> Vec<Scenario> {
        let mut out: Vec<Scenario> = Vec::new();
        let mut hashes: Vec<Sha256> = Vec::new();
        for (name, sequence) in self.scenarios.iter().zip(&self.requests.seqs) {
            let at = out.iter().position(|s| s.name == *name).unwrap_or_else(|| {
                out.push(Scenario { name: name.clone(), ..Scenario::default() });
                hashes.push(Sha256::new());
                out.len() - 1
            });
            out[at].sequences += 1;
            out[at].rows += sequence.ids.len() as u64;
            // Lengths go in too: moving an id from one sequence to the next is another scenario.
            hashes[at].update((sequence.ids.len() as u64).to_le_bytes());
            sequence.ids.iter().for_each(|id| hashes[at].update(id.to_le_bytes()));
        }
        for (scenario, hash) in out.iter_mut().zip(hashes) {
            scenario.ids_sha256 = hex(&hash.finalize());
        }
        out
    }
}

/// An audit.
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct Job<'a> {
    /// The model.
    pub checkpoint: Arc<Checkpoint>,
    /// True when its weights are seeded noise.
    pub random_weights: bool,
    /// What to run.
    pub inputs: Inputs,
    /// Compare only these taps.
    pub taps: Option<TapGlob>,
    /// Run only this many layers.
    pub layers: Option<u16>,
    /// Measure golden's f64 floor even where it is not needed.
    pub floor: bool,
    /// Look again, closer, at the first bad place of a failed run. Not for a part of a run: the first bad place of the
    /// whole may be in another.
    pub second_look: bool,
    /// Run the candidate once more, and measure how far the two runs are apart.
    pub rerun: bool,
    /// Where to write the op at fault with its operands and a torch script; it takes a second look to find one.
    pub repro: Option<PathBuf>,
    /// Where earlier runs left what they found out.
    pub cache: Option<&'a Cache>,
    /// Bytes of the streams between blocks that are held in memory, the others in a temporary file; no bound without.
    pub states: Option<u64>,
    /// Computes golden's ops, where this processor does not.
    pub backend: Option<Arc<dyn Backend>>,
    /// Computes ops of speed patches, where their contracts do not.
    pub kernels: Option<Arc<dyn Kernels>>,
    /// Adds a candidate's partial sums where a patch spreads its products over as many ranks; none: its contract does.
    pub reduce: Option<Arc<dyn AllReduce>>,
    /// Threads.
    pub threads: usize,
    /// Program and version.
    pub producer: String,
    /// Arguments as typed.
    pub command: Vec<String>,
    /// Hears how far it is.
    pub progress: &'a dyn Progress,
    /// Ends the run between two layers.
    pub stop: &'a AtomicBool,
}

impl<'a> Job<'a> {
    /// Every tap and layer of these conversations, on one thread, without a cache; the program is not named.
    pub fn new(
        checkpoint: Arc<Checkpoint>,
        inputs: Inputs,
        progress: &'a dyn Progress,
        stop: &'a AtomicBool,
    ) -> Job<'a> {
        Job {
            checkpoint,
            random_weights: false,
            inputs,
            taps: None,
            layers: None,
            floor: false,
            second_look: true,
            rerun: false,
            repro: None,
            cache: None,
            states: None,
            backend: None,
            kernels: None,
            reduce: None,
            threads: 1,
            producer: String::new(),
            command: Vec::new(),
            progress,
            stop,
        }
    }

    /// The same job without its conversations.
    pub(crate) fn again(&self) -> Job<'a> {
        Job {
            checkpoint: self.checkpoint.clone(),
            inputs: Inputs::default(),
            taps: self.taps.clone(),
            repro: self.repro.clone(),
            backend: self.backend.clone(),
            kernels: self.kernels.clone(),
            reduce: self.reduce.clone(),
            producer: self.producer.clone(),
            command: self.command.clone(),
            ..*self
        }
    }

    /// Golden over these requests, in f32.
    pub(crate) fn golden(&self, requests: Requests) -> Result<Golden> {
        let here = Golden::new(self.checkpoint.clone(), requests, Mode::F32, self.threads)?;
        Ok(here.computed_by(self.backend.clone()))
    }

    /// What a run of the loop holds its streams in.
    pub(crate) fn states(&self) -> Option<Arc<States>> {
        self.states.map(|limit| Arc::new(States::new(limit)))
    }

    /// The pool that comparing runs in.
    pub(crate) fn pool(&self) -> Result<rayon::ThreadPool> {
        let threads = self.threads.max(1);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.map_err(|e| Error::Machine(format!("{threads} threads cannot be started: {e}")))
    }

    pub(crate) fn wants(&self, site: Site) -> bool {
        self.taps.as_ref().is_none_or(|glob| glob.admits(site))
    }

    /// Provenance that does not depend on the candidate.
    pub fn provenance(&self) -> Run {
        Run {
            producer: self.producer.clone(),
            command: self.command.clone(),
            model: Model {
                label: self.checkpoint.label().to_string(),
                config_sha256: hex(&self.checkpoint.config_sha256()),
                weights_sha256: hex(&self.checkpoint.weights_sha256()),
                random_weights: self.random_weights,
            },
            scenarios: self.inputs.hashed(),
            backend: match (&self.backend, &self.kernels) {
                (None, None) => "cpu",
                (Some(_), None) => "golden on cuda, candidate on cpu",
                (None, Some(_)) => "golden on cpu, patches on cuda",
                (Some(_), Some(_)) => "golden and patches on cuda",
            }
            .to_string(),
            device: self
                .backend
                .as_ref()
                .map(|backend| backend.name())
                .or_else(|| self.kernels.as_ref().map(|kernels| kernels.name()))
                .unwrap_or_default(),
            threads: self.threads as u64,
            ..Run::default()
        }
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|d| char::from_digit(u32::from(d), 16).unwrap_or('?')).collect()
}

/// Peak resident memory of this process in bytes, where the system tells; else 0.
pub(crate) fn peak_memory() -> u64 {
    let status = std::fs::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
    kib.map_or(0, |kib| kib * 1024)
}
