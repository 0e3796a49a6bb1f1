//! Operands that golden itself has: a seeded sequence run up to a layer.

use std::collections::BTreeMap;

use karat_model::Error as Message;
use karat_reference::{Golden, Mode};
use karat_seam::{Lane, OpSpec, Path as _, Recorder, Requests, Sequence, Site};

use super::{OpJob, Operands};
use crate::{Result, own_error};

impl Operands {
    /// What golden gives the op when it runs `rows` ids drawn from `seed` through the layers before it.
    ///
    /// # Errors
    /// Usage: no rows, or a layer that has no such op.
    pub fn seeded(job: &OpJob, rows: usize, seed: u64) -> Result<Self> {
        let vocab = job.checkpoint.config().vocab_size as u64;
        let mut state = seed;
        let ids: Vec<u32> = (0..rows).map(|_| (splitmix(&mut state) % vocab) as u32).collect();
        let requests = Requests { seqs: vec![Sequence::prompt("seeded", ids.clone())] };
        let golden = Golden::new(job.checkpoint.clone(), requests, Mode::F32, job.threads)?;
        let (op, l) = (job.op, job.layer);
        let mut x = golden.embed(&mut Recorder::new(|_| false))?;
        for before in 0..l {
            let mut nothing = Recorder::new(|_| false);
            let mut lanes = [Lane::new(&x, &mut nothing)];
            golden.layer(before)?.run(&mut lanes)?;
            let out = lanes[0].out.take();
            x = out.ok_or_else(|| Message::input(format!("layer {before} left no streams")))?.streams;
        }
        let layer = golden.layer(l)?;
        let mut seen = Recorder::new(move |site: Site| {
            op.spec().reads.contains(&site.tap) || op.spec().reads.iter().any(|_| site.tap == karat_seam::Tap::AttnIn)
        });
        layer.run(&mut [Lane::new(&x, &mut seen)])?;
        let spec: &OpSpec = op.spec();
        let found = own_error::operands(spec, &*layer, &BTreeMap::new(), (l, 0), &x, &seen);
        let absent = || Message::usage(format!("layer {l} does not show what {} reads", spec.name));
        let (given, of) = found.ok_or_else(absent)?;
        let positions: Vec<u32> = of.iter().map(|row| row.pos).collect();
        Ok(Self { label: format!("seed {seed}"), given, positions, ids })
    }
}

/// SplitMix64: the next number of a sequence that a seed begins.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
