//! Batches, graphs and sums over ranks: what a step reads that another step left.

use karat_seam::{Block, Data, Op, Phase, Result, Tap, Tensor};

use super::attn::other_lists;
use super::state::other_entries;
use crate::Edit;
use crate::fault::{Fault, NONE, decoded};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        id: "BATCH-01",
        change: "entries that decode completes begin with the list of chosen entries, which shares their buffer",
        block: Block::Layer(1),
        rows: decoded,
        taps: &[Tap::AttnCkv],
        edit: Some(|e| {
            let topk = e.config().index_topk;
            e.each_row(|_, row| row.iter_mut().take(topk).zip(0u8..).for_each(|(v, i)| *v = f32::from(i)));
            Ok(())
        }),
        ..NONE
    },
    Fault {
        id: "BATCH-04",
        change: "every decode step reads the list of entries of the step before",
        block: Block::Layer(1),
        rows: decoded,
        taps: &[Tap::AttnO, Tap::AttnLse],
        edit: Some(lagging_list),
        ..NONE
    },
    Fault {
        id: "BATCH-07",
        change: "one of two ranks' partial sums is lost at one decoded token",
        block: Block::Layer(2),
        rows: |pos, _| pos == 280,
        taps: &[Tap::AttnOut],
        edit: Some(|e| other_half(e, |_, half| half.fill(0.0))),
        ..NONE
    },
    Fault {
        id: "BATCH-08",
        change: "every decode step adds one rank's partial sum of the step before",
        block: Block::Layer(2),
        rows: |pos, phase| phase == Phase::Decode && pos > 0,
        taps: &[Tap::AttnOut],
        edit: Some(|e| other_half(e, |before, half| half.copy_from_slice(before))),
        ..NONE
    },
    Fault {
        id: "BATCH-10",
        change: "the experts' sum is reduced over two ranks once more in decode",
        block: Block::Layer(1),
        rows: decoded,
        taps: &[Tap::FfnOut],
        edit: Some(|e| {
            e.scale(2.0);
            Ok(())
        }),
        ..NONE
    },
    Fault {
        id: "BATCH-02",
        change: "every fourth decoded row is replayed with the entries of eight steps before",
        block: Block::Layer(3),
        rows: |pos, phase| phase == Phase::Decode && pos % 4 == 3,
        taps: &[Tap::AttnO, Tap::AttnLse],
        edit: Some(|e| other_lists(e, 8)),
        ..NONE
    },
    Fault {
        id: "BATCH-06",
        change: "decode reads entries by another request's block table",
        block: Block::Layer(2),
        rows: decoded,
        taps: &[Tap::AttnO, Tap::AttnLse],
        edit: Some(|e| other_entries(e, |entries, width| entries.chunks_exact_mut(width).for_each(<[f32]>::reverse))),
        ..NONE
    },
    Fault {
        id: "BATCH-11",
        change: "at every fifth decoded token half of the heads' partial results are overwritten",
        block: Block::Layer(1),
        rows: |pos, phase| phase == Phase::Decode && pos % 5 == 0,
        taps: &[Tap::AttnO],
        edit: Some(|e| {
            let half = e.width() / 2;
            e.each_row(|_, row| row[half..].fill(0.0));
            Ok(())
        }),
        ..NONE
    },
];

fn lagging_list(e: &mut Edit<'_>) -> Result<()> {
    let mask = e.seen(Tap::AttnSelected)?;
    let (width, Data::U8(old)) = (mask.width(), &mask.data) else { return Ok(()) };
    let mut new = old.clone();
    if let Some(rest) = new.get_mut(width..) {
        rest.copy_from_slice(&old[..old.len() - width]);
    }
    let new = e.rerun(Op::Attend, &[(Tap::AttnSelected, Tensor::u8(mask.shape.clone(), new))])?;
    e.put(&new)
}

/// The output projection with the second rank's half of its input changed, given that of the row before.
fn other_half(e: &mut Edit<'_>, edit: impl Fn(&[f32], &mut [f32])) -> Result<()> {
    let oa = e.seen(Tap::AttnOa)?;
    let (width, old) = (oa.width(), oa.as_f32("attn.oa")?);
    let mut new = old.to_vec();
    for (row, before) in new.chunks_exact_mut(width).skip(1).zip(old.chunks_exact(width)) {
        edit(&before[width / 2..], &mut row[width / 2..]);
    }
    let new = e.rerun(Op::OutputUp, &[(Tap::AttnOa, Tensor::f32(oa.shape.clone(), new))])?;
    e.put(&new)
}
