//! State of a served conversation: what a layer reads that an earlier request, a transfer or an eviction left.

use karat_seam::{Block, Op, Result, Tap, Tensor};

use super::attn::other_rows;
use super::comp::lost_rows;
use crate::Edit;
use crate::bench::{ANSWER, SEAM};
use crate::fault::{Fault, NONE};

const BOTH: &[Tap] = &[Tap::AttnO, Tap::AttnLse];

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        id: "STATE-01",
        change: "the second turn finds the window's rows of one window earlier",
        block: Block::Layer(1),
        rows: in_window_of_seam,
        taps: BOTH,
        edit: Some(|e| moved_window(e, 16)),
        ..NONE
    },
    Fault {
        id: "STATE-03",
        change: "entries of the interrupted answer were never written, and the second turn reads their pages",
        block: Block::Layer(2),
        rows: |pos, _| pos >= SEAM,
        taps: BOTH,
        edit: Some(|e| other_entries(e, |entries, width| pages(entries, width, 10..12).fill(0.0))),
        ..NONE
    },
    Fault {
        id: "STATE-04",
        change: "a page of entries was freed and holds garbage in the second turn",
        block: Block::Layer(2),
        rows: |pos, _| pos >= SEAM,
        taps: BOTH,
        edit: Some(|e| {
            other_entries(e, |entries, width| {
                for (i, v) in pages(entries, width, 8..12).iter_mut().enumerate() {
                    *v = (i * 7 % 13) as f32 - 6.0;
                }
            })
        }),
        ..NONE
    },
    Fault {
        id: "STATE-05",
        change: "a page of entries belongs to another request in the second turn",
        block: Block::Layer(2),
        rows: |pos, _| pos >= SEAM,
        taps: BOTH,
        edit: Some(foreign_page),
        ..NONE
    },
    Fault {
        id: "STATE-07",
        change: "entries are read through the page ids of another pool in the second turn",
        block: Block::Layer(3),
        rows: |pos, _| pos >= SEAM,
        taps: BOTH,
        edit: Some(other_pages),
        ..NONE
    },
    Fault {
        id: "STATE-08",
        change: "the compressor's open window is zero where decode takes over",
        block: Block::Layer(3),
        rows: |pos, _| (ANSWER..ANSWER + 8).contains(&pos),
        taps: &[Tap::AttnCkv],
        edit: Some(|e| lost_rows(e, ANSWER)),
        ..NONE
    },
    Fault {
        id: "STATE-11",
        change: "the second turn finds the window's rows one page of four off",
        block: Block::Layer(2),
        rows: in_window_of_seam,
        taps: BOTH,
        edit: Some(|e| moved_window(e, 4)),
        ..NONE
    },
    Fault {
        id: "STATE-13",
        change: "one layer's entries of the first prompt were not copied to where the answer is decoded",
        block: Block::Layer(3),
        rows: |pos, _| pos >= ANSWER,
        taps: BOTH,
        edit: Some(|e| other_entries(e, |entries, width| pages(entries, width, 0..40).fill(0.0))),
        ..NONE
    },
    Fault {
        id: "SPEC-02",
        change: "steps after a rejected draft see three rows of the window that the draft left",
        block: Block::Layer(1),
        rows: |pos, _| (172..180).contains(&pos),
        taps: BOTH,
        edit: Some(|e| {
            let width = e.seen(Tap::AttnKv)?.width();
            other_rows(e, move |kv| {
                if kv.len() >= 172 * width {
                    kv.copy_within(100 * width..103 * width, 169 * width);
                }
            })
        }),
        ..NONE
    },
];

/// Rows of the second turn that still see the first.
fn in_window_of_seam(pos: u32, _: karat_seam::Phase) -> bool {
    (SEAM..SEAM + 15).contains(&pos)
}

/// The window before the seam holds the rows of `by` positions earlier.
fn moved_window(e: &mut Edit<'_>, by: usize) -> Result<()> {
    let width = e.seen(Tap::AttnKv)?.width();
    let seam = SEAM as usize;
    other_rows(e, move |kv| {
        if kv.len() >= seam * width {
            kv.copy_within((seam - 16 - by) * width..(seam - by) * width, (seam - 16) * width);
        }
    })
}

/// Attention over other entries.
pub(super) fn other_entries(e: &mut Edit<'_>, edit: impl Fn(&mut [f32], usize)) -> Result<()> {
    let ckv = e.seen(Tap::AttnCkv)?;
    let mut values = ckv.as_f32("attn.ckv")?.to_vec();
    edit(&mut values, ckv.width());
    let new = e.rerun(Op::Attend, &[(Tap::AttnCkv, Tensor::f32(ckv.shape.clone(), values))])?;
    e.put(&new)
}

/// Entries 4 to 7 are those of a request whose rows are the same numbers in another order.
fn foreign_page(e: &mut Edit<'_>) -> Result<()> {
    other_entries(e, |entries, width| {
        entries.chunks_exact_mut(width).skip(4).take(4).for_each(<[f32]>::reverse);
    })
}

/// Pages of four entries are read in the order of another pool's table.
fn other_pages(e: &mut Edit<'_>) -> Result<()> {
    other_entries(e, |entries, width| {
        let page = 4 * width;
        let (old, pages) = (entries.to_vec(), entries.len() / page);
        for (i, to) in entries.chunks_exact_mut(page).enumerate() {
            let from = (i * 7 + 3) % pages;
            to.copy_from_slice(&old[from * page..(from + 1) * page]);
        }
    })
}

/// Values of some entries, as far as there are so many.
fn pages(entries: &mut [f32], width: usize, which: std::ops::Range<usize>) -> &mut [f32] {
    let all = entries.len();
    &mut entries[(which.start * width).min(all)..(which.end * width).min(all)]
}
