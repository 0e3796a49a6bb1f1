//! What a seeded fault is: an entry of data, and the edits that it makes.

use karat_seam::{Block, Phase, Result, Tap};

use crate::{Edit, Files};

/// One seeded fault, on top of a candidate that is otherwise right.
///
/// A *load* fault changes the candidate's bytes ([`Fault::files`]), an *op* fault what an op leaves ([`Fault::edit`]),
/// an *encoding* fault its ids ([`Fault::ids`]). Golden always runs the right model on the right ids.
#[derive(Clone, Copy)]
pub struct Fault {
    /// Id of the report in the catalogue.
    pub id: &'static str,
    /// What is changed here, in the words of this project.
    pub change: &'static str,
    /// The block where it must show first.
    pub block: Block,
    /// Blocks whose taps are edited; empty: `block` alone.
    pub blocks: &'static [Block],
    /// Whether it changes the row of this position in this phase (an entry stands for its last token).
    pub rows: fn(u32, Phase) -> bool,
    /// Edits of the candidate's files.
    pub files: Option<fn(&mut Files)>,
    /// Edits of the files of a second path, whose ops [`Edit::rerun_donor`] runs.
    pub donor: Option<fn(&mut Files)>,
    /// Taps that `edit` changes, in op order.
    pub taps: &'static [Tap],
    /// Changes one of `taps`.
    pub edit: Option<fn(&mut Edit<'_>) -> Result<()>>,
    /// Edits of the candidate's ids.
    pub ids: Option<fn(&mut Vec<u32>)>,
    /// Whether it needs a batch of two requests: rows of the second are changed then, by what the first left.
    pub together: bool,
    /// Patches that are left out of the candidate because the fault is the same change.
    pub without: &'static [&'static str],
}

/// What an entry doesn't set.
pub(crate) const NONE: Fault = Fault::NONE;

/// Every row.
pub(crate) fn always(_: u32, _: Phase) -> bool {
    true
}

/// Rows that are decoded.
pub(crate) fn decoded(_: u32, phase: Phase) -> bool {
    phase == Phase::Decode
}

/// Rows that are prefilled.
pub(crate) fn prefilled(_: u32, phase: Phase) -> bool {
    phase == Phase::Prefill
}

impl Fault {
    /// A fault that changes nothing: what an entry doesn't set.
    pub const NONE: Self = Self {
        id: "",
        change: "",
        block: Block::Head,
        blocks: &[],
        rows: always,
        files: None,
        donor: None,
        taps: &[],
        edit: None,
        ids: None,
        together: false,
        without: &[],
    };

    /// True when it edits taps of this block.
    pub fn is_in(&self, block: Block) -> bool {
        self.edit.is_some() && (block == self.block || self.blocks.contains(&block))
    }

    /// Name of the block as the `layer` column has it.
    pub fn layer(&self) -> String {
        match self.block {
            Block::Embed => "embed".to_string(),
            Block::Layer(l) => l.to_string(),
            Block::Head => "head".to_string(),
            Block::Mtp(i) => format!("mtp.{i}"),
        }
    }
}
