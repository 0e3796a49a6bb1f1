//! One lane of noise for all plans that round alike in a block, whatever else they do, in this run and in earlier ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use karat_seam::Tap;

use super::{Sizes, Squares, phases, phases_alike};
use crate::Result;
use crate::cache::{Hash, Key, Kind, Reader, Writer};
use crate::lockstep::Walk;

/// What noise leaves, by tap and sequence, then by position (index for entries).
pub(crate) type Rows = BTreeMap<(Tap, u32), BTreeMap<u32, Squares>>;

/// Noise of some plans in prefill and in decode, and the first candidate of each.
pub(super) type Asked = ([Sizes; 2], usize);

/// What a plan's noise leaves, and where the cache keeps it.
pub(super) type Left = (Arc<Rows>, Option<Hash>);

/// What the noise of each plan leaves. `ready` is what golden's own pass left of some; `run` makes it for those that it is given:
/// each another noise, none in the cache.
pub(super) fn left<'a>(
    walk: &mut Walk<'a, '_>,
    key: Option<&Key>,
    asked: &[Asked],
    ready: &[(Asked, Arc<Rows>)],
    run: impl FnOnce(&mut Walk<'a, '_>, &[&Asked]) -> Result<Vec<Rows>>,
) -> Result<Vec<Left>> {
    let mut lanes: Vec<&Asked> = Vec::new();
    let mut of = Vec::new();
    for one in asked {
        let same = |lane: &&Asked| same(walk, lane, one);
        of.push(lanes.iter().position(same).unwrap_or(lanes.len()));
        if of.last() == Some(&lanes.len()) {
            lanes.push(one);
        }
    }
    let keys: Vec<Option<Hash>> = lanes.iter().map(|lane| noise_key(walk, key, lane)).collect();
    let mut all: Vec<Option<Arc<Rows>>> = keys.iter().map(|key| get(walk, key.as_ref()).map(Arc::new)).collect();
    let wanted: Vec<usize> = (0..lanes.len()).filter(|i| all[*i].is_none()).collect();
    let mut made: Vec<(usize, Arc<Rows>)> = Vec::new();
    let mut left = Vec::new();
    for i in wanted {
        match ready.iter().find(|(of, _)| same(walk, of, lanes[i])) {
            Some((_, rows)) => made.push((i, rows.clone())),
            None => left.push(i),
        }
    }
    // Those of plans that turned out to have the same noise are not counted: how many there are depends on the rows of the run.
    walk.passes += made.len() as u64;
    let run_for: Vec<&Asked> = left.iter().map(|i| lanes[*i]).collect();
    let ran = if left.is_empty() { Vec::new() } else { run(walk, &run_for)? };
    made.extend(left.into_iter().zip(ran.into_iter().map(Arc::new)));
    for (i, rows) in made {
        if let Some((key, cache)) = keys[i].as_ref().zip(walk.cache()) {
            cache.put(key, &write(&rows));
        }
        all[i] = Some(rows);
    }
    Ok(of.into_iter().map(|i| (all[i].clone().unwrap_or_default(), keys[i])).collect())
}

/// True where two plans have the same noise at every row.
fn same(walk: &Walk<'_, '_>, a: &Asked, b: &Asked) -> bool {
    a.0 == b.0 && (is_even(a) || phases_alike(walk, a.1, b.1))
}

/// True where both phases have the same noise: in which one a row is computed then does not matter.
fn is_even((sizes, _): &Asked) -> bool {
    sizes[0] == sizes[1]
}

fn noise_key(walk: &Walk<'_, '_>, key: Option<&Key>, asked: &Asked) -> Option<Hash> {
    let key = key?.clone().part("entry", b"noise").shown("sizes", &asked.0);
    let phases = if is_even(asked) { Vec::new() } else { phases(walk, walk.setup.candidates[asked.1].path) };
    Some(key.shown("phases", &phases).finish())
}

/// What an earlier run kept under this key.
pub(super) fn get(walk: &Walk<'_, '_>, key: Option<&Hash>) -> Option<Rows> {
    let (key, cache) = key.filter(|_| walk.reads_cache).zip(walk.cache())?;
    cache.get(Kind::Other, key, read)
}

pub(super) fn write(rows: &Rows) -> Vec<u8> {
    let mut to = Writer::default();
    to.u64(rows.len() as u64);
    for ((tap, seq), squares) in rows {
        to.text(tap.name());
        to.u32(*seq);
        to.u64(squares.len() as u64);
        for (pos, [d, x]) in squares {
            to.u32(*pos);
            to.f64(*d);
            to.f64(*x);
        }
    }
    to.0
}

pub(super) fn read(bytes: &[u8]) -> Option<Rows> {
    let mut from = Reader::new(bytes);
    let mut all = BTreeMap::new();
    for _ in 0..from.count(20)? {
        let (tap, seq) = (Tap::from_name(from.text()?)?, from.u32()?);
        let n = from.count(20)?;
        let one = |_| Some((from.u32()?, [from.f64()?, from.f64()?]));
        let squares: BTreeMap<u32, Squares> = (0..n).map(one).collect::<Option<_>>()?;
        all.insert((tap, seq), squares);
    }
    from.is_done().then_some(all)
}
