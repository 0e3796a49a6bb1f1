//! The failing op by itself, ready to attach to an upstream issue: operands, weights, what golden makes of them and what
//! the candidate did, as one safetensors file, and a torch script that needs nothing of karat.

mod file;
mod script;
pub(crate) mod weights;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use karat_model::{Checkpoint, Config, Error as ModelError};
use karat_seam::{Data, Op, Recorded, RowId, Tap, Tensor};
use serde_json::{Value, json};

use crate::job::Job;
use crate::{Error, Result};

pub(crate) use file::safetensors;

/// Rows of results that are kept: those with the largest error.
const ROWS: usize = 32;
/// Values of weights of routed experts at most, unless the worst row alone needs more.
const EXPERT_VALUES: usize = 1 << 24;

/// Writes the op at fault where the job wants it.
pub(crate) fn leave(job: &Job<'_>, failing: Option<&Failing>) -> Result<()> {
    match (&job.repro, failing) {
        (Some(dir), Some(failing)) => failing.write(dir, &job.checkpoint),
        _ => Ok(()),
    }
}

/// A failing op on the operands that the candidate's had, whole.
#[derive(Debug, Clone)]
pub(crate) struct Failing {
    pub(crate) l: u16,
    pub(crate) op: Op,
    /// Its worst tap, and the largest error that its roundings explain; `None` for a decision.
    pub(crate) tap: Tap,
    pub(crate) allowed: Option<f64>,
    /// What it read.
    pub(crate) operands: Vec<(Tap, Tensor)>,
    /// Token rows of one sequence, and their ids.
    pub(crate) rows: Vec<RowId>,
    pub(crate) ids: Vec<u32>,
    /// What golden makes of the operands.
    pub(crate) golden: BTreeMap<Tap, Tensor>,
    /// What the candidate made; rows as golden's.
    pub(crate) candidate: BTreeMap<Tap, Recorded>,
    /// Results that the candidate shows in the rotated basis, row by row of the worst tap.
    pub(crate) rotated: Vec<bool>,
    /// What was found, for the head of the script.
    pub(crate) said: Vec<String>,
}

impl Failing {
    /// True when every row of the operands goes into each result.
    fn is_whole(&self) -> bool {
        matches!(self.op, Op::CompressPool | Op::IndexPool)
    }

    /// True when an operand or result has one row a token that is picked.
    fn is_picked(&self, tap: Tap) -> bool {
        !(self.is_whole() || tap.is_per_entry() || (self.op == Op::Attend && tap == Tap::AttnKv))
    }

    /// Places of the rows that are kept, ascending.
    fn kept(&self, config: &Config) -> Vec<usize> {
        let n = self.rows.len();
        let (Some(golden), Some(theirs)) = (self.golden.get(&self.tap), self.candidate.get(&self.tap)) else {
            return (0..n.min(ROWS)).collect();
        };
        if self.is_whole() {
            return (0..n).collect();
        }
        let mut by_error: Vec<(usize, f64)> = (0..n).map(|i| (i, row_error(golden, &theirs.tensor, i))).collect();
        by_error.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut kept: Vec<usize> = Vec::new();
        let mut experts = BTreeSet::new();
        let most = EXPERT_VALUES / (3 * config.hidden_size * config.moe_intermediate_size).max(1);
        for (i, _) in by_error.into_iter().take(ROWS) {
            let mut more = experts.clone();
            more.extend(self.experts(&[i]));
            if more.len() > most && !kept.is_empty() {
                break;
            }
            experts = more;
            kept.push(i);
        }
        kept.sort_unstable();
        kept
    }

    /// Routed experts of these rows; none for other ops.
    fn experts(&self, rows: &[usize]) -> BTreeSet<i64> {
        let idx = self.operands.iter().find(|(tap, _)| self.op == Op::Experts && *tap == Tap::FfnIdx);
        let Some((_, Tensor { data: Data::I64(idx), shape })) = idx else { return BTreeSet::new() };
        let k = shape.get(1).copied().unwrap_or(0);
        rows.iter().flat_map(|i| idx[i * k..(i + 1) * k].iter().copied()).collect()
    }

    /// The tensors and the script.
    fn files(&self, checkpoint: &Checkpoint) -> Result<(Vec<u8>, String)> {
        let config = checkpoint.config();
        let kept = self.kept(config);
        let pick_of = |tap: Tap, tensor: &Tensor| match self.is_picked(tap) {
            true => pick(tensor, &kept),
            false => tensor.clone(),
        };
        let mut tensors: Vec<(String, Tensor)> = Vec::new();
        let positions: Vec<i64> = kept.iter().map(|i| i64::from(self.rows[*i].pos)).collect();
        tensors.push(("positions".to_string(), Tensor::i64([kept.len()], positions)));
        tensors.push(("layer".to_string(), Tensor::i64([1], vec![i64::from(self.l)])));
        if [Op::IndexQuery, Op::IndexPool].contains(&self.op) {
            let flags: Vec<u8> = self.rotated.iter().map(|r| u8::from(*r)).collect();
            tensors.push(("rotated".to_string(), pick_of(self.tap, &Tensor::u8([flags.len()], flags))));
        }
        for (tap, tensor) in &self.operands {
            tensors.push((format!("operand.{}", tap.name()), pick_of(*tap, tensor)));
        }
        for (tap, golden) in &self.golden {
            let Some(theirs) = self.candidate.get(tap) else { continue };
            tensors.push((format!("expected.{}", tap.name()), pick_of(*tap, golden)));
            tensors.push((format!("candidate.{}", tap.name()), pick_of(*tap, &theirs.tensor)));
        }
        let ids: Vec<u32> = kept.iter().filter_map(|i| self.ids.get(*i).copied()).collect();
        if ids.len() == kept.len() {
            let wide = ids.iter().map(|id| i64::from(*id)).collect();
            tensors.push(("ids".to_string(), Tensor::i64([ids.len()], wide)));
        }
        let experts: Vec<i64> = self.experts(&kept).into_iter().collect();
        tensors.extend(weights::of(checkpoint, self.l, self.op, &ids, &experts)?);
        let allowed: BTreeMap<&str, f64> = [(self.tap.name(), self.allowed.unwrap_or(0.0))].into();
        let constants = constants(config, self.l);
        let mut said = self.said.clone();
        if kept.len() < self.rows.len() {
            said.push(format!("These are {} of {} rows: those with the largest error.", kept.len(), self.rows.len()));
        }
        let name = self.op.spec().name;
        let script = script::script(name, &said, &constants, &allowed);
        let script = script.ok_or_else(|| Error::Machine(format!("op {name} has no formula in torch")))?;
        Ok((safetensors(&tensors, name, &constants), script))
    }

    /// Writes `op.safetensors` and `repro.py` into a new or empty folder, or over an older repro. Nothing is left there
    /// that looks whole when it is not: the script comes last.
    pub(crate) fn write(&self, dir: &Path, checkpoint: &Checkpoint) -> Result<()> {
        free(dir)?;
        let (tensors, script) = self.files(checkpoint)?;
        let failed = |e: std::io::Error| Error::Machine(format!("{}: the repro can't be written: {e}", dir.display()));
        std::fs::create_dir_all(dir).map_err(failed)?;
        match std::fs::remove_file(dir.join(SCRIPT)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        std::fs::write(dir.join(TENSORS), tensors).map_err(failed)?;
        std::fs::write(dir.join(SCRIPT), script).map_err(failed)
    }
}

const TENSORS: &str = "op.safetensors";
const SCRIPT: &str = "repro.py";

/// Refuses a folder that holds anything but an older repro.
///
/// # Errors
/// (usage) The folder holds other files, or it is a file.
pub fn free(dir: &Path) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    let taken = || {
        let error = ModelError::usage("--repro: the folder holds something else");
        Error::Model(error.at(dir.display().to_string()).hint("name a new folder"))
    };
    let entries = std::fs::read_dir(dir).map_err(|_| taken())?;
    for entry in entries.flatten() {
        if ![TENSORS, SCRIPT].iter().any(|name| entry.file_name() == *name) {
            return Err(taken());
        }
    }
    Ok(())
}

/// ‖theirs - golden‖² of a row; the number of differing decisions. What is no number comes first.
fn row_error(golden: &Tensor, theirs: &Tensor, row: usize) -> f64 {
    let width = golden.width().min(theirs.width());
    let (a, b) = (row * golden.width(), row * theirs.width());
    match (&golden.data, &theirs.data) {
        (Data::F32(x), Data::F32(y)) => {
            let pairs = x[a..a + width].iter().zip(&y[b..b + width]).filter(|(x, y)| x != y);
            let error: f64 = pairs.map(|(x, y)| (f64::from(*y) - f64::from(*x)).powi(2)).sum();
            if error.is_nan() { f64::INFINITY } else { error }
        }
        (Data::I64(x), Data::I64(y)) => count(&x[a..a + width], &y[b..b + width]),
        (Data::U8(x), Data::U8(y)) => count(&x[a..a + width], &y[b..b + width]),
        _ => 0.0,
    }
}

fn count<T: PartialEq>(x: &[T], y: &[T]) -> f64 {
    x.iter().zip(y).filter(|(x, y)| x != y).count() as f64
}

/// Rows of a tensor.
pub(crate) fn pick(tensor: &Tensor, rows: &[usize]) -> Tensor {
    fn of<T: Copy>(values: &[T], rows: &[usize], width: usize) -> Vec<T> {
        rows.iter().flat_map(|i| values[i * width..(i + 1) * width].iter().copied()).collect()
    }
    let width = tensor.width();
    let data = match &tensor.data {
        Data::F32(v) => Data::F32(of(v, rows, width)),
        Data::F64(v) => Data::F64(of(v, rows, width)),
        Data::I64(v) => Data::I64(of(v, rows, width)),
        Data::U8(v) => Data::U8(of(v, rows, width)),
    };
    let mut shape = tensor.shape.clone();
    shape[0] = rows.len();
    Tensor::new(shape, data)
}

/// Numbers of the config that the ops of a layer need.
pub(crate) fn constants(config: &Config, l: u16) -> BTreeMap<&'static str, Value> {
    let ratio = config.layers.get(usize::from(l)).and_then(|kind| kind.ratio());
    [
        ("rms_norm_eps", json!(config.rms_norm_eps)),
        ("hc_mult", json!(config.hc_mult)),
        ("hc_eps", json!(config.hc_eps)),
        ("hc_sinkhorn_iters", json!(config.hc_sinkhorn_iters)),
        ("heads", json!(config.num_attention_heads)),
        ("head_dim", json!(config.head_dim)),
        ("groups", json!(config.o_groups)),
        ("sliding_window", json!(config.sliding_window)),
        ("ratio", json!(ratio.unwrap_or(0))),
        ("index_heads", json!(config.index_n_heads)),
        ("index_head_dim", json!(config.index_head_dim)),
        ("index_topk", json!(config.index_topk)),
        ("swiglu_limit", json!(config.swiglu_limit)),
        ("routed_scaling_factor", json!(config.routed_scaling_factor)),
    ]
    .into()
}
