//! The candidates' part of a block: those that can share a weight pass run side by side, the others one by one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Instant;

use karat_seam::{Error as SeamError, Lane, Path, Recorder, Streams, Together};

use crate::candidate::Candidate;
use crate::flow::Flow;
use crate::lockstep::Walk;
use crate::patch_rows::Calls;
use crate::progress::Steps;
use crate::{Result, align};

/// Candidates of one pass.
pub(crate) enum Group<'g> {
    /// Members of paths that share their weights.
    Together(&'g dyn Together, &'g [usize]),
    /// One path.
    Alone(&'g dyn Path),
}

/// What a pass left of a candidate, beside what it showed.
pub(crate) struct Ran {
    /// Which candidate.
    pub(crate) i: usize,
    /// Executions of its patches before the pass.
    pub(crate) before: BTreeMap<String, Calls>,
    /// The streams that left the block.
    pub(crate) streams: Option<Streams>,
    /// False when the path does not have this block.
    pub(crate) is_supported: bool,
}

/// Runs the block of every candidate of `missing` on its own x', each weight pass once. `see` makes what looks at a
/// lane. In the order of the candidates.
pub(crate) fn run(
    walk: &mut Walk<'_, '_>,
    missing: &[usize],
    block: &str,
    steps: &mut Steps<'_>,
    see: impl Fn() -> Recorder,
    pass: impl Fn(Group<'_>, &mut [Lane<'_>]) -> karat_seam::Result<()>,
) -> Result<Vec<Ran>> {
    let mut all = Vec::new();
    for group in groups(&walk.setup.candidates) {
        for i in &group {
            steps.next(&format!("{} {block}", walk.setup.candidates[*i].patch_set))?;
        }
        let group: Vec<usize> = group.into_iter().filter(|i| missing.contains(i)).collect();
        if group.is_empty() {
            continue;
        }
        let start = Instant::now();
        let candidates: Vec<&Candidate<'_>> = group.iter().map(|i| &walk.setup.candidates[*i]).collect();
        let before: Vec<_> = candidates.iter().map(|candidate| candidate.calls()).collect();
        let mut inputs = Vec::new();
        for (i, candidate) in group.iter().zip(&candidates) {
            let own = walk.runners[*i].x.as_ref().map(Flow::values).transpose()?;
            inputs.push(input(candidate, own, walk.x.values()?));
        }
        let mut seen: Vec<Recorder> = group.iter().map(|_| see()).collect();
        let mut lanes: Vec<Lane<'_>> = inputs.iter().zip(&mut seen).map(|(x, see)| Lane::new(x, see)).collect();
        let members: Vec<usize> = candidates.iter().filter_map(|candidate| Some(candidate.together?.1)).collect();
        let ran = match candidates[0].together {
            Some((together, _)) => pass(Group::Together(together, &members), &mut lanes),
            None => pass(Group::Alone(candidates[0].path), &mut lanes),
        };
        let is_supported = match ran {
            Ok(()) => true,
            Err(SeamError::Unsupported { .. }) => false,
            Err(other) => return Err(other.into()),
        };
        let streams: Vec<Option<Streams>> =
            lanes.iter_mut().map(|lane| lane.out.take().map(|out| out.streams)).collect();
        drop(lanes);
        drop(inputs);
        for ((i, before), (streams, seen)) in group.iter().zip(before).zip(streams.into_iter().zip(seen)) {
            walk.runners[*i].seen = seen;
            all.push(Ran { i: *i, before, streams, is_supported });
        }
        walk.out.wall[1] += start.elapsed().as_secs_f64();
    }
    all.sort_by_key(|ran| ran.i);
    Ok(all)
}

/// Candidates that share a weight pass, in the order of the first of each group.
fn groups(candidates: &[Candidate<'_>]) -> Vec<Vec<usize>> {
    let mut out: Vec<Vec<usize>> = Vec::new();
    for (i, candidate) in candidates.iter().enumerate() {
        let shares = |group: &&mut Vec<usize>| match (candidate.together, candidates[group[0]].together) {
            (Some((a, _)), Some((b, _))) => std::ptr::addr_eq(a, b),
            _ => false,
        };
        match out.iter_mut().find(shares) {
            Some(group) => group.push(i),
            None => out.push(vec![i]),
        }
    }
    out
}

/// What goes into a candidate's block: its own streams; for a trace any streams with the rows that it holds.
pub(crate) fn input<'a>(candidate: &Candidate<'_>, own: Option<&'a Streams>, golden: &'a Streams) -> Cow<'a, Streams> {
    match (&candidate.holds, own) {
        (Some(rows), _) if *rows != golden.rows => {
            let picked = align::gather(&golden.rows, &golden.data, rows);
            picked.map_or(Cow::Borrowed(golden), |data| {
                Cow::Owned(Streams { rows: rows.clone(), data: data.into_owned() })
            })
        }
        (_, own) => Cow::Borrowed(own.unwrap_or(golden)),
    }
}
