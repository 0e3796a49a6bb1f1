//! What results follow from, as a hash: of the whole path, and of one layer, whose results don't follow from rules that
//! only other blocks read.

use karat_model::config::LayerKind;
use karat_seam::Phase;
use sha2::{Digest, Sha256};

use crate::arith::NUMERICS_VERSION;
use crate::plan::Numerics;
use crate::{Optimized, Stock};

impl Optimized {
    /// Hash of everything that results follow from, under these rules.
    pub(crate) fn hash(&self, rules: impl Fn(Phase) -> Numerics) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        part(format!("optimized numerics {NUMERICS_VERSION}").as_bytes());
        part(&self.checkpoint.config_sha256());
        part(&self.checkpoint.weights_sha256());
        // The resolved rules, not the names: a profile or a default that changes changes the key.
        for phase in [Phase::Prefill, Phase::Decode] {
            part(format!("{:?}", rules(phase)).as_bytes());
            if let Some(real) = self.adder.real(rules(phase).reduce) {
                part(real.name().as_bytes());
            }
        }
        // Kernels are other code than contracts, and other kernels than these other code again.
        if let Some(by) = self.by_kernel.as_ref().filter(|by| by.any()) {
            part(by.kernels.identity().as_bytes());
            [Phase::Prefill, Phase::Decode].iter().for_each(|p| part(format!("{:?}", by.chosen(*p)).as_bytes()));
        }
        match &self.program {
            None => part(format!("{}, {:?}", self.plan.history, self.resolved.chunk).as_bytes()),
            Some(served) => part(format!("{:?} {:?}", served.geometry, served.program).as_bytes()),
        }
        for sequence in &self.requests.seqs {
            part(sequence.id.as_bytes());
            part(&sequence.ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>());
            part(format!("{:?}", sequence.spans()).as_bytes());
        }
        hash.finalize().into()
    }

    /// The hash without the rules that layer `l` does not read: those of the head; of the indexer where there is none;
    /// of the compressors where there are none. A changed patch keeps the layers before it acts.
    pub(crate) fn identity_of_layer(&self, l: u16) -> [u8; 32] {
        let kind = self.config().layers.iter().chain(&self.config().mtp).nth(usize::from(l)).copied();
        self.hash(|phase| without_unread(*self.resolved.rules(phase), kind))
    }
}

/// Rules that such a layer does not read are set to those of the profile without rounding.
fn without_unread(mut rules: Numerics, kind: Option<LayerKind>) -> Numerics {
    let unread = Stock::None.profile().numerics;
    let Some(kind) = kind else { return rules };
    rules.lm_head = unread.lm_head;
    rules.logits_store = unread.logits_store;
    if !kind.has_indexer() {
        rules.index = unread.index;
        rules.index_weights = unread.index_weights;
    }
    if kind == LayerKind::Sliding {
        rules.compress = unread.compress;
        rules.compress_store = unread.compress_store;
        rules.compress_state = unread.compress_state;
    }
    rules
}

#[cfg(test)]
mod tests;
