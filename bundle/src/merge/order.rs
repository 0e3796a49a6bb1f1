//! The order of the tables' rows: by block, patch set and conversation. Within those, as they were made.

use std::collections::BTreeMap;

use crate::Bundle;

/// Sorts every table. `conversations`: scenario and sequence in the order of the run. What one conversation's rows of one
/// block and patch set are like does not depend on other conversations, so parts in this order make the whole.
pub fn sort(bundle: &mut Bundle, conversations: &[(String, String)]) {
    let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (i, (scenario, sequence)) in conversations.iter().enumerate() {
        places.entry((scenario, sequence)).or_insert(i);
    }
    let place = |scenario: &str, sequence: &str| places.get(&(scenario, sequence)).copied().unwrap_or(usize::MAX);
    let sets = bundle.run.candidate.patch_sets.clone();
    let set = |name: &str| sets.iter().position(|s| s == name).unwrap_or(usize::MAX);
    // The head's rows come in three rounds over all patch sets: taps, changes that the head makes, logits.
    let round = |part: &str| match part {
        "argmax-injected" => 1,
        "argmax" => 2,
        _ => 0,
    };
    bundle
        .taps
        .sort_by_cached_key(|r| (r.order / BLOCK, round(&r.part), set(&r.patch_set), place(&r.scenario, &r.sequence)));
    // What is the same for all stands before what was measured on one.
    let of = |r: &crate::DerivationRow| (!r.sequence.is_empty()).then(|| place(&r.scenario, &r.sequence));
    bundle.derivations.sort_by_cached_key(|r| (r.order, of(r)));
    bundle.tokens.sort_by_cached_key(|r| (set(&r.patch_set), place(&r.scenario, &r.sequence)));
    bundle.flips.sort_by_cached_key(|r| (layer(&r.layer), set(&r.patch_set), place(&r.scenario, &r.sequence)));
    bundle.recall.sort_by_cached_key(|r| (set(&r.patch_set), place(&r.scenario, &r.conversation)));
}

/// Steps of the column `order` from one block to the next.
const BLOCK: u64 = 1000;

/// Place of a layer by its name in the tables: embed, numbers, then head and what follows it.
fn layer(name: &str) -> u64 {
    match name {
        "embed" => 0,
        _ => name.parse::<u64>().map_or(u64::MAX, |l| l.saturating_add(1)),
    }
}
