//! Controls: what really differs and is no fault. An audit must be silent about them.

use karat_model::formats::bf16;
use karat_seam::{Block, Result, Tap};

use super::rope::scaled_scores;
use crate::Edit;
use crate::bench::SEAM;
use crate::fault::{Fault, NONE, prefilled};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        id: "INDEX-15",
        change: "index queries and keys are FP4, as the official code has them, where the others are FP8",
        block: Block::Layer(1),
        without: &["fp8-indexer"],
        ..NONE
    },
    Fault {
        id: "DET-02",
        change: "index scores are rounded to bf16, so that some are equal",
        block: Block::Layer(1),
        blocks: &[Block::Layer(3)],
        taps: &[Tap::AttnIndexScore],
        edit: Some(|e| {
            e.each_row(|_, row| row.iter_mut().for_each(|v| *v = bf16::round(*v)));
            Ok(())
        }),
        ..NONE
    },
    Fault {
        id: "DET-03",
        change: "scores of attention differ in the last places of f32",
        block: Block::Layer(2),
        taps: &[Tap::AttnO, Tap::AttnLse],
        edit: Some(|e| scaled_scores(e, 1.0 + 4.0 * f32::EPSILON)),
        ..NONE
    },
    Fault {
        id: "DET-01",
        change: "of entries whose scores are equal as bf16, the last chosen one and the best left out are exchanged",
        block: Block::Layer(1),
        blocks: &[Block::Layer(3)],
        taps: &[Tap::AttnSelected],
        edit: Some(exchanged_ties),
        ..NONE
    },
    Fault {
        id: "DET-04",
        change: "the same in prefill alone, where a call has over 64 rows",
        block: Block::Layer(1),
        blocks: &[Block::Layer(3)],
        rows: prefilled,
        taps: &[Tap::AttnSelected],
        edit: Some(exchanged_ties),
        ..NONE
    },
    Fault {
        id: "STATE-14",
        change: "after a prefix hit scores of attention differ in the last places of f32, in every layer",
        block: Block::Layer(0),
        blocks: &[Block::Layer(1), Block::Layer(2), Block::Layer(3)],
        rows: |pos, _| pos >= SEAM,
        taps: &[Tap::AttnO, Tap::AttnLse],
        edit: Some(|e| scaled_scores(e, 1.0 + 4.0 * f32::EPSILON)),
        ..NONE
    },
];

/// Another of equal choices, as atomics or another tie rule make it.
fn exchanged_ties(e: &mut Edit<'_>) -> Result<()> {
    for i in (0..e.rows().len()).filter(|i| e.hits(*i)).collect::<Vec<_>>() {
        let scores: Vec<f32> = e.other(Tap::AttnIndexScore, i)?.into_iter().map(bf16::round).collect();
        let mask = e.mask(i).to_vec();
        let of = |chosen: u8| {
            let (mask, scores) = (&mask, &scores);
            (0..mask.len()).filter(move |x| mask[*x] == chosen && scores[*x].is_finite())
        };
        let last = of(1).min_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        let best = of(0).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        if let (Some(last), Some(best)) = (last, best)
            && scores[last] == scores[best]
        {
            (e.mask(i)[last], e.mask(i)[best]) = (0, 1);
        }
    }
    Ok(())
}
