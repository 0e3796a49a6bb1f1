//! The compressor, its state across steps and turns, and the entries that it leaves.
#![expect(clippy::unnecessary_wraps, reason = "the type of Fault::edit")]

use karat_seam::{Block, Data, Op, Phase, Result, Tap, Tensor};

use super::rope::unrotated_entries;
use crate::Edit;
use crate::bench::SEAM;
use crate::fault::{Fault, NONE, prefilled};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        id: "COMP-01",
        change: "the first entry is zero",
        block: Block::Layer(1),
        rows: |pos, _| pos == 3,
        taps: &[Tap::AttnCkv],
        edit: Some(zeroed),
        ..NONE
    },
    Fault {
        id: "COMP-03",
        change: "two rejected drafts stay in the compressor's open window",
        block: Block::Layer(3),
        rows: |pos, _| (171..179).contains(&pos),
        taps: &[Tap::AttnCkv],
        edit: Some(rejected_drafts),
        ..NONE
    },
    Fault {
        id: "COMP-04",
        change: "the compressor starts the second turn without the rows of its open window and the window before",
        block: Block::Layer(1),
        rows: |pos, _| (SEAM..SEAM + 8).contains(&pos),
        taps: &[Tap::AttnCkv],
        edit: Some(|e| lost_rows(e, SEAM)),
        ..NONE
    },
    Fault {
        id: "COMP-06",
        change: "the second prefill reads its mask at half the stride",
        block: Block::Layer(2),
        rows: |pos, phase| phase == Phase::Prefill && pos > SEAM,
        taps: &[Tap::AttnO, Tap::AttnLse],
        edit: Some(half_stride),
        ..NONE
    },
    Fault {
        id: "COMP-07",
        change: "entries from position 128 on are never rotated",
        block: Block::Layer(2),
        rows: |pos, _| pos > 128,
        taps: &[Tap::AttnCkv],
        edit: Some(unrotated_entries),
        ..NONE
    },
    Fault {
        id: "COMP-08",
        change: "prefill counts no live group: nobody attends to an entry",
        block: Block::Layer(2),
        rows: prefilled,
        taps: &[Tap::AttnSelected],
        edit: Some(|e| fewer_entries(e, 0)),
        ..NONE
    },
    Fault {
        id: "COMP-09",
        change: "decode appends no entry after the first prompt's",
        block: Block::Layer(2),
        rows: |pos, phase| phase == Phase::Decode && pos > 174,
        taps: &[Tap::AttnSelected],
        edit: Some(|e| fewer_entries(e, 10)),
        ..NONE
    },
    Fault {
        id: "COMP-11",
        change: "a layer's compressed branch is off",
        block: Block::Layer(1),
        taps: &[Tap::AttnSelected],
        edit: Some(|e| fewer_entries(e, 0)),
        ..NONE
    },
    Fault {
        id: "INDEX-19",
        change: "the rows of an unfinished window are dropped where a context ends at 3 (mod 4)",
        block: Block::Layer(3),
        rows: |pos, _| pos == SEAM,
        taps: &[Tap::AttnCkv],
        edit: Some(|e| lost_rows(e, SEAM)),
        ..NONE
    },
    Fault {
        id: "COMP-10",
        change: "four rows of the open window are another request's, which had this batch row before",
        block: Block::Layer(1),
        rows: |pos, _| (164..172).contains(&pos),
        taps: &[Tap::AttnCkv],
        edit: Some(other_requests_rows),
        ..NONE
    },
];

fn zeroed(e: &mut Edit<'_>) -> Result<()> {
    e.each_row(|_, row| row.fill(0.0));
    Ok(())
}

/// Entries whose compressor rows before `seam` are zero.
pub(super) fn lost_rows(e: &mut Edit<'_>, seam: u32) -> Result<()> {
    let lost = |tap: Tap| -> Result<(Tap, Tensor)> {
        let tensor = e.seen(tap)?;
        let mut values = tensor.as_f32(tap.name())?.to_vec();
        let end = (seam as usize * tensor.width()).min(values.len());
        values[..end].fill(0.0);
        Ok((tap, Tensor::f32(tensor.shape.clone(), values)))
    };
    let replaced = [lost(Tap::AttnKvp)?, lost(Tap::AttnGateScore)?];
    let new = e.rerun(Op::CompressPool, &replaced)?;
    e.put(&new)
}

/// Row `SEAM + i` attends to the entries of row `SEAM + i/2`.
fn half_stride(e: &mut Edit<'_>) -> Result<()> {
    let mask = e.seen(Tap::AttnSelected)?;
    let (width, Data::U8(old)) = (mask.width(), &mask.data) else { return Ok(()) };
    let mut new = old.clone();
    for pos in SEAM as usize..mask.rows() {
        let from = SEAM as usize + (pos - SEAM as usize) / 2;
        new[pos * width..(pos + 1) * width].copy_from_slice(&old[from * width..(from + 1) * width]);
    }
    let new = e.rerun(Op::Attend, &[(Tap::AttnSelected, Tensor::u8(mask.shape.clone(), new))])?;
    e.put(&new)
}

/// Only the first `kept` entries can be attended to.
fn fewer_entries(e: &mut Edit<'_>, kept: usize) -> Result<()> {
    for i in (0..e.rows().len()).filter(|i| e.hits(*i)).collect::<Vec<_>>() {
        e.mask(i).iter_mut().skip(kept).for_each(|m| *m = 0);
    }
    Ok(())
}

/// The rows of two tokens are those of two others.
fn rejected_drafts(e: &mut Edit<'_>) -> Result<()> {
    let wrong = |tap: Tap| -> Result<(Tap, Tensor)> {
        let tensor = e.seen(tap)?;
        let (width, mut values) = (tensor.width(), tensor.as_f32(tap.name())?.to_vec());
        if values.len() >= 172 * width {
            values.copy_within(100 * width..102 * width, 170 * width);
        }
        Ok((tap, Tensor::f32(tensor.shape.clone(), values)))
    };
    let replaced = [wrong(Tap::AttnKvp)?, wrong(Tap::AttnGateScore)?];
    let new = e.rerun(Op::CompressPool, &replaced)?;
    e.put(&new)
}

/// Four tokens' rows are those of another request: the same numbers, turned round.
fn other_requests_rows(e: &mut Edit<'_>) -> Result<()> {
    let wrong = |tap: Tap| -> Result<(Tap, Tensor)> {
        let tensor = e.seen(tap)?;
        let (width, mut values) = (tensor.width(), tensor.as_f32(tap.name())?.to_vec());
        values.chunks_exact_mut(width).skip(164).take(4).for_each(<[f32]>::reverse);
        Ok((tap, Tensor::f32(tensor.shape.clone(), values)))
    };
    let replaced = [wrong(Tap::AttnKvp)?, wrong(Tap::AttnGateScore)?];
    let new = e.rerun(Op::CompressPool, &replaced)?;
    e.put(&new)
}
