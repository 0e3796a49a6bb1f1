//! What the path's own MTP block drafts.

use std::sync::Arc;

use karat_model::Checkpoint;
use karat_optimized::{Optimized, Plan};
use karat_seam::Requests;

use super::pass::{mtp_block, run};
use crate::Result;

/// The id after each position; after the last its own.
pub(super) fn next_ids(ids: &[u32]) -> impl Iterator<Item = u32> {
    ids.iter().skip(1).chain(ids.last()).copied()
}

/// For each sequence the token that the block drafts for each position: its most likely id (the first of equals) at the
/// streams two positions before, with the id between. The first draft of a step is thus what a server drafts there. Of
/// further drafts a server has no streams of the model yet and feeds the block its own; here they are the model's, so that
/// they are right somewhat more often.
///
/// A schedule must be there before a number is computed, so they come from a cold run of their own.
pub(super) fn of(
    checkpoint: &Arc<Checkpoint>,
    requests: &Requests,
    plan: &Plan,
    threads: usize,
) -> Result<Option<Vec<Arc<[u32]>>>> {
    if mtp_block(checkpoint.config()).is_none() {
        return Ok(None);
    }
    let path = Optimized::new(checkpoint.clone(), requests.clone(), plan.clone(), threads)?;
    let next: Vec<u32> = requests.seqs.iter().flat_map(|s| next_ids(&s.ids)).collect();
    let mut first = 0;
    let rows: Vec<Vec<usize>> = requests
        .seqs
        .iter()
        .map(|s| {
            first += s.ids.len();
            (first - s.ids.len()..first).collect()
        })
        .collect();
    let logits = run(&path, &rows, &next)?.mtp;
    let vocab = checkpoint.config().vocab_size;
    let drafted = |(logits, sequence): (&Vec<f32>, &karat_seam::Sequence)| {
        let best = logits.chunks_exact(vocab).map(most_likely);
        // Nothing is drafted for the first two positions: no step begins before them.
        sequence.ids.iter().copied().take(2).chain(best).take(sequence.ids.len()).collect()
    };
    Ok(Some(logits.iter().zip(&requests.seqs).map(drafted).collect()))
}

fn most_likely(logits: &[f32]) -> u32 {
    (0..logits.len()).reduce(|best, i| if logits[i] > logits[best] { i } else { best }).unwrap_or(0) as u32
}
