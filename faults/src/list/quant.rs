//! Scales, number formats, and how weights are loaded.

use karat_model::formats::{bf16, e4m3};
use karat_seam::{Block, Op, Result, Tap, Tensor};

use crate::Edit;
use crate::fault::{Fault, NONE, decoded};

const AT: Block = Block::Layer(2);

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        id: "QUANT-01",
        change: "the up projections of the experts have the gate's scale, a quarter of theirs",
        block: AT,
        files: Some(|files| files.experts(2, "w3.scale", |bytes, _| bytes.iter_mut().for_each(|b| *b -= 2))),
        ..NONE
    },
    Fault {
        id: "QUANT-02",
        change: "the experts' scales are divisors",
        block: AT,
        files: Some(|files| files.experts(2, "w1.scale", |bytes, _| bytes.iter_mut().for_each(|b| *b = 254 - *b))),
        ..NONE
    },
    Fault {
        id: "QUANT-03",
        change: "an activation scale of 2^11 is never multiplied back in the experts",
        block: Block::Layer(1),
        files: Some(|files| files.experts(1, "w3.scale", |bytes, _| bytes.iter_mut().for_each(|b| *b += 11))),
        ..NONE
    },
    Fault {
        id: "QUANT-04",
        change: "the rows of the experts' scales are in another order",
        block: AT,
        files: Some(|files| {
            for tensor in ["w1.scale", "w3.scale"] {
                files.experts(2, tensor, |bytes, shape| {
                    let (rows, cols, old) = (shape[0], shape[1], bytes.to_vec());
                    for (r, row) in bytes.chunks_exact_mut(cols).enumerate() {
                        let from = (r * 4) % rows + r * 4 / rows;
                        row.copy_from_slice(&old[from * cols..(from + 1) * cols]);
                    }
                });
            }
        }),
        ..NONE
    },
    Fault {
        id: "QUANT-05",
        change: "the scale of the attention output is rounded up to a power of two after it was used",
        block: Block::Layer(1),
        taps: &[Tap::AttnOa],
        edit: Some(inflated_scale),
        ..NONE
    },
    Fault {
        id: "QUANT-07",
        change: "half of the blocks of wo_a have twice their scale",
        block: Block::Layer(1),
        files: Some(|files| {
            files.bytes("layers.1.attn.wo_a.scale").iter_mut().step_by(2).for_each(|b| *b += 1);
        }),
        ..NONE
    },
    Fault {
        id: "QUANT-09",
        change: "the exponent byte of the experts' scales is taken for the scale",
        block: Block::Layer(3),
        files: Some(|files| {
            // The nearest power of two to the byte's own value: that is all that the format can hold.
            let taken = |b: &mut u8| *b = 127 + f32::from(*b).log2().round() as u8;
            files.experts(3, "w1.scale", |bytes, _| bytes.iter_mut().for_each(taken));
        }),
        ..NONE
    },
    Fault {
        id: "QUANT-10",
        change: "decode stores the unrotated part of the window's rows with twice their scale",
        block: Block::Layer(1),
        rows: decoded,
        taps: &[Tap::AttnKv],
        edit: Some(|e| {
            let nope = e.config().nope_head_dim();
            e.each_row(|_, row| row[..nope].iter_mut().for_each(|v| *v *= 2.0));
            Ok(())
        }),
        ..NONE
    },
    Fault {
        id: "QUANT-11",
        change: "the experts' codes are split in halves of a block, and read as pairs",
        block: AT,
        files: Some(|files| {
            for tensor in ["w1.weight", "w2.weight", "w3.weight"] {
                files.experts(2, tensor, |bytes, _| bytes.as_chunks_mut::<16>().0.iter_mut().for_each(split_block));
            }
        }),
        ..NONE
    },
    Fault {
        id: "QUANT-12",
        change: "the head's weight is stored as E4M3 without a scale",
        block: Block::Head,
        files: Some(|files| files.map_bf16("head.weight", |v| e4m3::decode(e4m3::encode(v)))),
        ..NONE
    },
    Fault {
        id: "QUANT-13",
        change: "a conversion of the experts flushes the smallest code of every other block of 32",
        block: Block::Layer(1),
        files: Some(|files| {
            for tensor in ["w1.weight", "w3.weight"] {
                files.experts(1, tensor, |bytes, _| {
                    let flushed = |code: u8| if code & 7 == 1 { 0 } else { code };
                    let blocks = bytes.as_chunks_mut::<16>().0.iter_mut().step_by(2).flatten();
                    blocks.for_each(|b| *b = flushed(*b & 15) | (flushed(*b >> 4) << 4));
                });
            }
        }),
        ..NONE
    },
    Fault {
        id: "QUANT-14",
        change: "the experts' input saturates at the largest value of another shard's tokens, half of theirs",
        block: Block::Layer(3),
        taps: &[Tap::FfnExpertAct],
        edit: Some(saturated_input),
        ..NONE
    },
    Fault {
        id: "QUANT-15",
        change: "position biases of the compressors and sinks are rounded to bf16",
        block: Block::Layer(0),
        files: Some(|files| {
            for name in ["layers.0.attn.attn_sink", "layers.1.attn.compressor.ape", "layers.2.attn.compressor.ape"] {
                let rounded: Vec<f32> = files.f32s(name).into_iter().map(bf16::round).collect();
                files.put_f32s(name, &rounded);
            }
        }),
        ..NONE
    },
    Fault {
        id: "QUANT-16",
        change: "a conversion of the shared expert reads codes as whole numbers",
        block: Block::Layer(2),
        files: Some(|files| {
            let codes = files.bytes("layers.2.ffn.shared_experts.w1.weight");
            codes.iter_mut().for_each(|b| *b = e4m3::encode(f32::from(*b)));
        }),
        ..NONE
    },
    Fault {
        id: "QUANT-17",
        change: "the query half of the fused projection is never loaded",
        block: Block::Layer(1),
        files: Some(|files| files.bytes("layers.1.attn.wq_a.weight").fill(0)),
        ..NONE
    },
];

/// Codes of 32 values, of which the first 16 lie in the low nibbles, as a reader of pairs takes them.
fn split_block(block: &mut [u8; 16]) {
    let code = |i: usize, b: &[u8; 16]| if i < 16 { b[i] & 15 } else { b[i - 16] >> 4 };
    let old = *block;
    for (i, b) in block.iter_mut().enumerate() {
        *b = code(2 * i, &old) | (code(2 * i + 1, &old) << 4);
    }
}

/// Every 128 channels of a group of heads come back times 2^ceil(log2 s) / s, with s = amax / 448.
fn inflated_scale(e: &mut Edit<'_>) -> Result<()> {
    let o = e.seen(Tap::AttnO)?;
    let group = o.width() / e.config().o_groups;
    let mut values = o.as_f32("attn.o")?.to_vec();
    for part in values.chunks_exact_mut(group) {
        for block in part.chunks_mut(128) {
            let scale = block.iter().fold(1e-4f32, |m, v| m.max(v.abs())) / 448.0;
            let wrong = scale.log2().ceil().exp2() / scale;
            block.iter_mut().for_each(|v| *v *= wrong);
        }
    }
    let new = e.rerun(Op::OutputDown, &[(Tap::AttnO, Tensor::f32(o.shape.clone(), values))])?;
    e.put(&new)
}

fn saturated_input(e: &mut Edit<'_>) -> Result<()> {
    let x = e.seen(Tap::FfnIn)?;
    let mut values = x.as_f32("ffn.in")?.to_vec();
    for row in values.chunks_exact_mut(x.width()) {
        let most = row.iter().fold(0.0f32, |m, v| m.max(v.abs())) / 2.0;
        row.iter_mut().for_each(|v| *v = v.clamp(-most, most));
    }
    let new = e.rerun(Op::Experts, &[(Tap::FfnIn, Tensor::f32(x.shape.clone(), values))])?;
    e.put(&new)
}
