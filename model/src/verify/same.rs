//! Tensors with the same bytes as another one: what a loader leaves that reads a layer, an expert or a scale twice.

use std::collections::HashMap;

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::Error;
use crate::checkpoint::store::{Id, Store};
use crate::checkpoint::{Check, Finding, Severity};

/// So many neighbours must differ: tensors of ones, and scales of a few runs, are equal in every model.
const CHANGES: usize = 64;

/// One finding for each set of equal tensors. The two copies of embeddings that a checkpoint may hold are no fault.
pub(super) fn bytes(store: &Store) -> Vec<Finding> {
    let hashed: Vec<Option<[u8; 32]>> =
        (0..store.entries.len()).into_par_iter().map(|id| hash(store.bytes(id))).collect();
    let mut groups: HashMap<[u8; 32], Vec<Id>> = HashMap::new();
    for (id, hash) in hashed.into_iter().enumerate() {
        if let Some(hash) = hash {
            groups.entry(hash).or_default().push(id);
        }
    }
    let is_copy = |id: &Id| {
        let name = store.name(*id);
        name.contains("embed") || name.contains("head.weight")
    };
    let mut groups: Vec<Vec<Id>> = groups.into_values().filter(|g| g.len() > 1 && !g.iter().all(is_copy)).collect();
    groups.sort();
    let finding = |group: Vec<Id>| {
        let others: Vec<&str> = group[1..].iter().map(|id| store.name(*id)).collect();
        let error = Error::input("the same bytes as another tensor")
            .at(store.place(group[0]))
            .found(format!("also {}", others.join(", ")))
            .hint("was one of them read from the other's place?");
        Finding::new(Severity::Warning, Check::Numbers, store.name(group[0]), error)
    };
    groups.into_iter().map(finding).collect()
}

/// sha256 of bytes that can't be equal to others by chance.
fn hash(bytes: &[u8]) -> Option<[u8; 32]> {
    let changes = bytes.windows(2).filter(|w| w[0] != w[1]).take(CHANGES).count();
    (changes >= CHANGES).then(|| Sha256::digest(bytes).into())
}
