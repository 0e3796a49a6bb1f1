//! Controls: what really differs and is no fault. An audit must be silent about them.

use karat_model::formats::bf16;
use karat_seam::{Block, Tap};

use super::rope::scaled_scores;
use crate::fault::{Fault, NONE};

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
];
