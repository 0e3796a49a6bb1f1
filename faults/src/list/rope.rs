//! Positions and the softmax scale.
#![expect(clippy::unnecessary_wraps, reason = "the type of Fault::edit")]

use karat_model::config::LayerKind;
use karat_optimized::{Rope, Store};
use karat_seam::{Block, Op, Phase, Result, Tap, Tensor};
use serde_json::json;

use crate::Edit;
use crate::fault::{Fault, NONE};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        id: "ROPE-01",
        change: "compressed layers rotate with the base of the sliding ones",
        block: Block::Layer(1),
        rows: |pos, _| pos > 0,
        files: Some(|files| files.set("compress_rope_theta", json!(10000))),
        ..NONE
    },
    Fault {
        id: "ROPE-02",
        change: "entries are never rotated",
        block: Block::Layer(1),
        rows: |pos, _| pos > 4,
        taps: &[Tap::AttnCkv],
        edit: Some(unrotated_entries),
        ..NONE
    },
    Fault {
        id: "ROPE-03",
        change: "the softmax scale is multiplied by YaRN's 1.277",
        block: Block::Layer(2),
        taps: &[Tap::AttnO, Tap::AttnLse],
        edit: Some(|e| scaled_scores(e, 1.277)),
        ..NONE
    },
    Fault {
        id: "ROPE-05",
        change: "the attention output is not rotated back",
        block: Block::Layer(1),
        rows: |pos, _| pos > 0,
        taps: &[Tap::AttnOa],
        edit: Some(not_rotated_back),
        ..NONE
    },
    Fault {
        id: "ROPE-06",
        change: "the softmax scale lacks a factor of 1.59",
        block: Block::Layer(3),
        taps: &[Tap::AttnO, Tap::AttnLse],
        edit: Some(|e| scaled_scores(e, 1.0 / 1.59)),
        ..NONE
    },
    Fault {
        id: "ROPE-07",
        change: "decode rotates the queries of a compressed layer with the base of the sliding ones",
        block: Block::Layer(1),
        rows: |_, phase| phase == Phase::Decode,
        taps: &[Tap::AttnQ],
        edit: Some(other_base),
        ..NONE
    },
];

/// Entries turned back by the position of their first token.
pub(super) fn unrotated_entries(e: &mut Edit<'_>) -> Result<()> {
    let (rope, ratio) = (e.rope(), e.ratio());
    e.each_row(|entry, row| rope.at(entry * ratio).apply(Store::Bf16, row, true));
    Ok(())
}

pub(super) fn scaled_scores(e: &mut Edit<'_>, by: f32) -> Result<()> {
    let q = e.seen(Tap::AttnQ)?;
    let values = q.as_f32("attn.q")?.iter().map(|v| v * by).collect();
    let new = e.rerun(Op::Attend, &[(Tap::AttnQ, Tensor::f32(q.shape.clone(), values))])?;
    e.put(&new)
}

/// The output projection of values that were turned forward once more, so that turning them back does nothing.
fn not_rotated_back(e: &mut Edit<'_>) -> Result<()> {
    let (o, rope, hd) = (e.seen(Tap::AttnO)?, e.rope(), e.config().head_dim);
    let mut values = o.as_f32("attn.o")?.to_vec();
    for (pos, row) in values.chunks_exact_mut(o.width()).enumerate() {
        let turn = rope.at(pos as u32);
        row.chunks_exact_mut(hd).for_each(|head| turn.apply(Store::F32, head, false));
    }
    let new = e.rerun(Op::OutputDown, &[(Tap::AttnO, Tensor::f32(o.shape.clone(), values))])?;
    e.put(&new)
}

fn other_base(e: &mut Edit<'_>) -> Result<()> {
    let (right, wrong, hd) = (e.rope(), Rope::of(e.config(), LayerKind::Sliding), e.config().head_dim);
    e.each_row(|pos, row| {
        for head in row.chunks_exact_mut(hd) {
            right.at(pos).apply(Store::F32, head, true);
            wrong.at(pos).apply(Store::Bf16, head, false);
        }
    });
    Ok(())
}
