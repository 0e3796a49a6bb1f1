//! Parts of a partitioned run, put together again: tables and verdict are those of the run that was never parted.

mod alike;
mod order;
mod patches;

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::{Bundle, DerivationRow, Error, Finding, Part, PartOf, Result, Run, Walls, gate};

pub use order::sort;

/// Which part (from 1) of `of` a conversation belongs to: by its names alone, so that it stays where it is when others
/// come and go.
pub fn part_of(scenario: &str, sequence: &str, of: u64) -> u64 {
    let mut hash = Sha256::new();
    hash.update((scenario.len() as u64).to_le_bytes());
    hash.update(scenario.as_bytes());
    hash.update(sequence.as_bytes());
    let bytes = hash.finalize();
    let number = bytes.iter().take(8).fold(0_u64, |n, b| n << 8 | u64::from(*b));
    1 + number % of.max(1)
}

/// The whole run that these bundles are the parts of, each with the name that messages give it. One whole run alone is
/// itself. Missing, doubled and differently configured parts are refused.
pub fn merge(parts: &[(String, Bundle)]) -> Result<Bundle> {
    if let [(_, alone)] = parts
        && alone.run.partition.is_none()
    {
        return Ok(alone.clone());
    }
    let merged = join(parts)?;
    let Some(partition) = &merged.run.partition else { return Ok(merged) };
    let have: BTreeSet<u64> = partition.parts.iter().map(|p| p.index).collect();
    let missing: Vec<String> = (1..=partition.of).filter(|i| !have.contains(i)).map(|i| i.to_string()).collect();
    if missing.is_empty() {
        return Ok(merged);
    }
    let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
    refuse(format!("part {} of {} is missing: only {} were given", missing.join(", "), partition.of, names.join(", ")))
}

/// The same for some of the parts: joining is associative, and the order of the bundles means nothing.
pub fn join(bundles: &[(String, Bundle)]) -> Result<Bundle> {
    let Some((first_name, first)) = bundles.first() else { return refuse("no bundle was given".to_string()) };
    let mut from: BTreeMap<u64, &str> = BTreeMap::new();
    for (name, bundle) in bundles {
        let Some(partition) = &bundle.run.partition else {
            return refuse(format!("{name} is a whole run, no part of one (--partition makes parts)"));
        };
        if let Some(what) = alike::differs(first, bundle) {
            return refuse(format!("{name} and {first_name} are no parts of one run: {what}"));
        }
        for part in &partition.parts {
            if let Some(other) = from.insert(part.index, name) {
                return refuse(format!("part {} of {} is in both {other} and {name}", part.index, partition.of));
            }
        }
        alike::owns_its_rows(name, bundle)?;
    }
    let mut out = Bundle { run: first.run.clone(), ..Bundle::default() };
    // Patches and parts are combined in the order of the parts, whatever that of the bundles.
    let mut sorted: Vec<&Bundle> = bundles.iter().map(|(_, bundle)| bundle).collect();
    sorted.sort_by_key(|b| b.run.partition.iter().flat_map(|p| &p.parts).map(|p| p.index).min());
    for bundle in sorted {
        out.taps.extend(bundle.taps.iter().cloned());
        out.tokens.extend(bundle.tokens.iter().cloned());
        out.flips.extend(bundle.flips.iter().cloned());
        out.recall.extend(bundle.recall.iter().cloned());
        out.histories.extend(bundle.histories.iter().cloned());
        derivations(&mut out.derivations, &bundle.derivations);
    }
    out.patches = patches::combine(bundles.iter().map(|(_, bundle)| bundle.patches.as_slice()));
    let mut partition = first.run.partition.clone().unwrap_or_default();
    partition.parts = bundles.iter().flat_map(|(_, b)| b.run.partition.iter().flat_map(|p| p.parts.clone())).collect();
    partition.parts.sort_by_key(|p| p.index);
    let conversations: Vec<(String, String)> =
        partition.conversations.iter().map(|c| (c.scenario.clone(), c.sequence.clone())).collect();
    sort(&mut out, &conversations);
    patches::search_limit(&mut out.recall, &conversations);
    provenance(&mut out.run, &partition.parts);
    out.verdict.forward_equivalents = forward_equivalents(&partition.parts);
    out.run.partition = Some(partition);
    let today = bundles.iter().filter_map(|(_, b)| b.run.partition.as_ref()?.today).max();
    if let Some(partition) = &mut out.run.partition {
        partition.today = today;
    }
    gate::settle(&mut out, today, &[]);
    Ok(out)
}

/// Adds what a part derived. What is the same for all conversations stands in every part, and once in the whole.
fn derivations(to: &mut Vec<DerivationRow>, part: &[DerivationRow]) {
    let known: BTreeSet<String> = to.iter().filter(|r| r.sequence.is_empty()).map(|r| format!("{r:?}")).collect();
    to.extend(part.iter().filter(|r| !r.sequence.is_empty() || !known.contains(&format!("{r:?}"))).cloned());
}

/// What follows from the parts' own provenance.
fn provenance(run: &mut Run, parts: &[Part]) {
    let mut wall = parts.first().map_or_else(Walls::default, |part| part.wall_s.clone());
    (run.findings, run.notes) = (Vec::new(), Vec::new());
    for part in parts {
        run.findings
            .extend(part.findings.iter().filter(|f| !run.findings.contains(f)).cloned().collect::<Vec<Finding>>());
        run.notes.extend(part.notes.iter().filter(|n| !run.notes.contains(n)).cloned().collect::<Vec<String>>());
    }
    parts.iter().skip(1).for_each(|part| wall.add(&part.wall_s));
    run.wall_s = wall;
    run.peak_memory_bytes = parts.iter().map(|p| p.peak_memory_bytes).max().unwrap_or(0);
    run.threads = parts.iter().map(|p| p.threads).max().unwrap_or(0);
    if let Some(first) = parts.first() {
        run.command.clone_from(&first.command);
        run.cache = first.cache.clone();
    }
    for part in parts.iter().skip(1) {
        run.cache.add(&part.cache);
    }
}

/// Passes of all rows: the parts' own, weighted by their rows.
fn forward_equivalents(parts: &[Part]) -> f64 {
    let some: Vec<&Part> = parts.iter().filter(|p| p.rows > 0).collect();
    let Some(first) = some.first() else { return 0.0 };
    if some.iter().all(|p| p.forward_equivalents.to_bits() == first.forward_equivalents.to_bits()) {
        return first.forward_equivalents;
    }
    let rows: f64 = some.iter().map(|p| p.rows as f64).sum();
    some.iter().map(|p| p.forward_equivalents * p.rows as f64).sum::<f64>() / rows
}

/// Makes a bundle one part of a run: `of` parts, of which this is `index`. `conversations` are the run's with their rows,
/// `whole` its scenarios.
pub fn as_part(bundle: &mut Bundle, part: PartOf) {
    let run = &mut bundle.run;
    let (index, of) = (part.index, part.of);
    let rows = part.conversations.iter().filter(|c| c.part == index).map(|c| c.rows).sum();
    let own = Part {
        index,
        rows,
        forward_equivalents: bundle.verdict.forward_equivalents,
        threads: run.threads,
        wall_s: run.wall_s.clone(),
        peak_memory_bytes: run.peak_memory_bytes,
        cache: run.cache.clone(),
        command: run.command.clone(),
        findings: run.findings.clone(),
        notes: run.notes.clone(),
    };
    run.scenarios = part.scenarios;
    let conversations = part.conversations;
    run.partition = Some(crate::Partition { of, parts: vec![own], conversations, today: None });
    gate::settle(bundle, None, &[]);
}

fn refuse<T>(why: String) -> Result<T> {
    Err(Error::Parts { why })
}

#[cfg(test)]
mod tests;
