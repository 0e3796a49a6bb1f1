//! Patch sets share one pass over the weights: the same bits as alone, and each linear decoded once for all of them.

use std::collections::BTreeSet;

use karat_model::config::LayerKind;
use karat_optimized::{DEFAULT_PATCHES, History, Optimized, PatchSets, Plan, Stock};
use karat_seam::{Lane, NoTaps, Path, Recorder, Requests, Site, Streams, Tap, Together};

use crate::optimized_drive::{assert_same, ids, record, tiny, turns};

/// Stock, each default patch alone, and all without each: what leave-one-in and leave-one-out runs ask for.
fn plans() -> Vec<Plan> {
    let all: Vec<String> = DEFAULT_PATCHES.map(str::to_string).to_vec();
    let mut sets = vec![Vec::new()];
    sets.extend(all.iter().map(|p| vec![p.clone()]));
    sets.extend(
        (0..all.len()).map(|i| all.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, p)| p.clone()).collect()),
    );
    sets.into_iter().map(|patches| Plan { stock: Stock::Official, patches, history: History::Cold }).collect()
}

/// Runs all sets through all layers and the head together; what each lane showed.
fn together(sets: &PatchSets) -> Vec<Recorder> {
    let members: Vec<usize> = (0..sets.sets().len()).collect();
    let mut seen: Vec<Recorder> = members.iter().map(|_| Recorder::all()).collect();
    let mut x: Vec<Streams> = sets.sets().iter().map(|path| path.embed(&mut NoTaps).unwrap()).collect();
    for l in 0..sets.sets()[0].blocks().layers {
        let mut lanes: Vec<Lane<'_>> = x.iter().zip(&mut seen).map(|(x, see)| Lane::new(x, see)).collect();
        sets.layer(l, &members, &mut lanes).unwrap();
        x = lanes.into_iter().map(|lane| lane.out.unwrap().streams).collect();
    }
    let mut lanes: Vec<Lane<'_>> = x.iter().zip(&mut seen).map(|(x, see)| Lane::new(x, see)).collect();
    sets.head(&members, &mut lanes).unwrap();
    drop(lanes);
    seen
}

#[test]
fn patch_sets_together_have_the_bits_of_each_alone_in_one_weight_pass() {
    let checkpoint = tiny();
    let requests = Requests { seqs: vec![turns("a", ids(140, 11), &[90, 50])] };
    let sets = PatchSets::new(&checkpoint, &requests, plans(), 2).unwrap();
    let seen = together(&sets);
    let loads = sets.weight_loads();

    for (path, seen) in sets.sets().iter().zip(&seen) {
        let alone = Optimized::new(checkpoint.clone(), requests.clone(), path.plan().clone(), 2).unwrap();
        assert_same(&path.name(), &record(&alone), seen);
    }

    // By hand, from the list of a layer's tensors (spec 4): wq_a, wq_b, wkv, wo_a, wo_b, gate, three of the shared
    // expert; two of a compressor; q, weights and two of the compressor of an indexer; three of each expert that a set chose.
    let config = checkpoint.config();
    let expected: usize = (0u16..)
        .zip(&config.layers[..config.num_hidden_layers()])
        .map(|(l, kind)| {
            let chosen: BTreeSet<i64> = seen
                .iter()
                .flat_map(|seen| {
                    seen.get(Site::layer(l, Tap::FfnIdx), 0).unwrap().tensor.as_i64("idx").unwrap().to_vec()
                })
                .collect();
            let compressed = match kind {
                LayerKind::Sliding => 0,
                kind if kind.has_indexer() => 6,
                _ => 2,
            };
            9 + compressed + 3 * chosen.len()
        })
        .sum();
    assert_eq!(loads, expected as u64, "{} patch sets", sets.sets().len());
}
