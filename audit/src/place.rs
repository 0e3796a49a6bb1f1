//! Where a row of a table stands: the columns that name it.

use karat_bundle::TapRow;
use karat_seam::{Block, OpSpec, Phase, Site, Tap};

use crate::candidate::Candidate;

/// A sequence under a patch set.
pub(crate) struct Place<'a> {
    pub(crate) candidate: &'a Candidate<'a>,
    pub(crate) scenario: &'a str,
    pub(crate) sequence: &'a str,
    /// Layers of the model, for the op order of what follows them.
    pub(crate) layers: u16,
}

impl Place<'_> {
    /// A row with its names filled in.
    pub(crate) fn row(&self, site: Site, phase: Phase) -> TapRow {
        TapRow {
            scenario: self.scenario.to_string(),
            sequence: self.sequence.to_string(),
            history: self.candidate.history.clone(),
            phase: phase.name().to_string(),
            patch_set: self.candidate.patch_set.clone(),
            backend: self.candidate.backend.clone(),
            layer: self.layer(site.block),
            op: OpSpec::writer_of(site.tap).map_or(site.tap.name(), |spec| spec.name).to_string(),
            tap: site.tap.name().to_string(),
            order: order(site, self.layers),
            ..TapRow::default()
        }
    }

    /// The `layer` column.
    pub(crate) fn layer(&self, block: Block) -> String {
        block_name(named(block, self.layers))
    }
}

/// MTP blocks follow the layers: a layer number past the last is one of them.
pub(crate) fn named(block: Block, layers: u16) -> Block {
    match block {
        Block::Layer(l) if l >= layers => Block::Mtp(l - layers),
        other => other,
    }
}

/// The `layer` column.
pub(crate) fn block_name(block: Block) -> String {
    match block {
        Block::Embed => "embed".to_string(),
        Block::Layer(l) => l.to_string(),
        Block::Head => "head".to_string(),
        Block::Mtp(i) => format!("mtp.{i}"),
    }
}

/// Place in op order over the whole model.
pub(crate) fn order(site: Site, layers: u16) -> u64 {
    let block = match named(site.block, layers) {
        Block::Embed => 0,
        Block::Layer(l) => 1 + u64::from(l),
        Block::Head => 1 + u64::from(layers),
        Block::Mtp(i) => 2 + u64::from(layers) + u64::from(i),
    };
    block * 1000 + site.tap as u64
}

/// Taps that the audit compares as numbers.
pub(crate) fn is_compared(tap: Tap) -> bool {
    // `h_final` is the last layer's `out`; `state.*` repeats rows of attn.kv, attn.ckv and the compressors.
    !tap.is_state() && !tap.is_discrete() && tap != Tap::HFinal
}
