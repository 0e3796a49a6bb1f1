//! One op on given operands: golden, the contract of a plan, and somebody's kernel beside them.
//!
//! Golden and contract run the op of one layer of a model on the same operands. Against golden a kernel may err 1.5 times what the
//! contract errs on these very operands (METRICS 4: the op gate), against the contract of a patch only what adding in another order
//! costs. A file of operands is what `--repro` writes, and what the kernel is given.

mod file;
mod judge;
mod make;
mod sides;

use std::sync::Arc;

use karat_model::{Checkpoint, Error as Message};
use karat_optimized::Stock;
use karat_seam::{Op, OpSpec, Part, Phase, RowId, Tap, Tensor};

use crate::Result;

pub use file::{Answer, read_answer};
pub use judge::{Judged, OpRow, Side};
pub use sides::Sides;

/// Which op of which model, and the plan whose contract it is compared with.
pub struct OpJob {
    /// The model.
    pub checkpoint: Arc<Checkpoint>,
    /// The op.
    pub op: Op,
    /// Its layer.
    pub layer: u16,
    /// Stock profile of the contract.
    pub stock: Stock,
    /// Speed patches of the contract, `NAME` or `NAME:option=value`.
    pub patches: Vec<String>,
    /// In which phase the rows are computed.
    pub phase: Phase,
    /// Threads.
    pub threads: usize,
}

/// What an op is given: token rows of one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Operands {
    /// Where they come from, for messages.
    pub label: String,
    /// By tap: f32 `[S,...]`, entries `[T,...]`, experts I64, selections U8.
    pub given: Vec<(Tap, Tensor)>,
    /// Position of each row, ascending.
    pub positions: Vec<u32>,
    /// Token id of each row; empty where they are not known (only a hash layer's router needs them).
    pub ids: Vec<u32>,
}

impl Operands {
    /// Its rows.
    fn rows(&self) -> Vec<RowId> {
        self.positions.iter().map(|pos| RowId::new(0, *pos)).collect()
    }

    fn tensor(&self, tap: Tap) -> Option<&Tensor> {
        self.given.iter().find(|(t, _)| *t == tap).map(|(_, tensor)| tensor)
    }
}

/// The ops that can be asked: those of a layer.
pub fn op_names() -> impl Iterator<Item = &'static OpSpec> {
    OpSpec::graph().iter().filter(|spec| spec.part != Part::Head)
}

/// The op of this name.
///
/// # Errors
/// Usage: there is none.
pub fn op_named(name: &str) -> Result<Op> {
    let found = op_names().find(|spec| spec.name == name);
    let unknown = || {
        let names: Vec<&str> = op_names().map(|spec| spec.name).collect();
        Message::usage("unknown op").expected(names.join(", ")).found(format!("`{name}`"))
    };
    Ok(found.ok_or_else(unknown)?.op)
}

/// The first layer that has the op.
///
/// # Errors
/// Usage: no layer of the model has it.
pub fn first_layer(checkpoint: &Checkpoint, op: Op) -> Result<u16> {
    let layers = checkpoint.config().layers.len() as u16;
    let none = || Message::usage(format!("no layer of {} has the op {}", checkpoint.label(), op.spec().name));
    Ok((0..layers).find(|l| file::reads(checkpoint, *l, op).is_some()).ok_or_else(none)?)
}

#[cfg(test)]
mod tests;
