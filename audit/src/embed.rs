//! The start of the lockstep loop: embeddings.

use std::time::Instant;

use karat_seam::{Block, Error as SeamError, Recorder};

use crate::flow::Flow;
use crate::layer::{Lanes, Made, compare_block};
use crate::lockstep::{Walk, not_state};
use crate::progress::Steps;
use crate::record::Record;
use crate::{Result, align, rerun};

/// Embeds on every path and compares: nothing comes in before, so golden's own embedding is R(x').
pub(crate) fn run(walk: &mut Walk<'_, '_>, steps: &mut Steps<'_>) -> Result<()> {
    let setup = walk.setup;
    let known = walk.look_up(Block::Embed);
    let missing = known.missing();
    steps.next("golden embedding")?;
    let mut golden = not_state();
    walk.x = match known.golden {
        Some(hash) if missing.is_empty() => Flow::known(hash),
        _ => {
            let start = Instant::now();
            let x = Flow::made(setup, setup.golden.embed(&mut golden)?);
            walk.keep_golden(&known, &golden, &x.hash);
            walk.out.wall[0] += start.elapsed().as_secs_f64();
            x
        }
    };
    let mut all = Vec::new();
    for (i, candidate) in setup.candidates.iter().enumerate() {
        steps.next(&format!("{} embedding", candidate.patch_set))?;
        if !missing.contains(&i) {
            continue;
        }
        let mut seen = not_state();
        let (start, before) = (Instant::now(), candidate.calls());
        let streams = match candidate.path.embed(&mut seen) {
            Ok(streams) => Some(streams),
            Err(SeamError::Unsupported { .. }) => None,
            Err(other) => return Err(other.into()),
        };
        rerun::embed(walk, i)?;
        walk.out.wall[1] += start.elapsed().as_secs_f64();
        let start = Instant::now();
        let x = walk.x.hold(setup.cache)?;
        let mut record = Record::default();
        let aligned = streams.as_ref().and_then(|s| align::streams(s, &x.rows));
        if aligned.is_none() {
            let who = candidate.path.name();
            record.part.notes.push(format!("{who}: no embedding, so golden's is taken as the input of layer 0"));
        }
        walk.runners[i].x_golden_rows = aligned.or_else(|| Some(x.clone()));
        walk.runners[i].seen = seen;
        let next = streams.map(|streams| Flow::made(setup, streams));
        record.next = next.as_ref().map(|flow| flow.hash);
        record.count(&before, candidate.calls());
        let mut on_x2 = Recorder::all();
        on_x2.taps.clone_from(&golden.taps);
        let lanes = Lanes { on_x: &golden, on_x2: &[(i, on_x2)].into(), floor: None, predicted: None, apart: None };
        record.part.extend(compare_block(walk, i, Block::Embed, &lanes, &|_| None)?);
        walk.out.wall[2] += start.elapsed().as_secs_f64();
        all.push(Made { i, next, record });
    }
    walk.advance(known, all);
    Ok(())
}
